"""The ladder: other models from the same labels, beside a fine-tuned encoder. It needs scikit-learn.

Each rung is trained on the same rows as the encoder. Its settings are chosen on the same dev rows, and it is
measured on the same test rows.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy import ndarray

from brimful.base.console import say, warn
from brimful.base.environment import describe_missing
from brimful.base.errors import BrimfulError
from brimful.base.types import Values
from brimful.model.encoder import Encoder
from brimful.model.inference import text_vectors
from brimful.tables.table import Table
from brimful.tasks.encoded_tables import Targets
from brimful.tasks.judging.comparison import Answer
from brimful.tasks.multi_label import unpack_labels
from brimful.tasks.task import Task
from brimful.tasks.task_data import TaskData, cut_part, draw_rows
from brimful.train.objective import Runtime

TFIDF_STRENGTHS = (1.0, 3.0, 10.0, 30.0)
"""C of the logistic regressions on TF-IDF that are tried; a large one regularises weakly."""
FROZEN_STRENGTHS = (0.001, 0.01, 0.1, 1.0, 10.0)
"""The same on embeddings, whose features have a deviation of 1."""
MAX_LINEAR_ROWS = 50_000
"""Rows of train, and a quarter of them of dev, that a linear model takes: other ranks wait for it."""
MAX_FEATURES = 200_000
"""Features of TF-IDF, of words and of characters each."""
MAX_OUTPUTS = 1_000
"""Classes or labels of a linear model: its time grows with them."""
MAX_FITTED_VALUES = 5_000_000
"""Rows times classes or labels that it takes."""
CERTAIN_LOGIT = 20.0
"""A logit that stands for certainty, where a label never changes in training."""
MIN_SHARE = float(np.exp(-CERTAIN_LOGIT))

Fitted = Callable[[Any], ndarray]
"""Features (n, features) -> answers (n, outputs), as `Task.measure` takes them."""


def find_obstacle(task: Task) -> str | None:
    """Say why there is no ladder; None if there is one."""
    if task.problem_type not in _MODELS:
        return f"the baselines are for classes, several labels or a value of a text, and not for {task.name}"
    return describe_missing("the ladder of baselines", "sklearn")


class UnreadError(ValueError):
    """No text has what a kind of features reads, such as words."""


class Tfidf:
    """TF-IDF by scikit-learn: words and pairs of words, runs of one to three characters, or both, each with a
    norm of 1; each text of a pair has features of its own. `fit` reads the training table by
    the chosen `kind`."""

    name = "TF-IDF"
    kinds: Sequence[str] = ("words", "characters", "words and characters")
    kind = kinds[-1]
    strengths: Sequence[float] = TFIDF_STRENGTHS

    def fit(self, table: Table) -> Any:
        """Return the features of a training table, which decides the features of other texts. UnreadError
        says that no text has what this kind reads."""
        from scipy.sparse import hstack
        from sklearn.feature_extraction.text import TfidfVectorizer

        columns = [table.texts, table.second] if any(table.second or ()) else [table.texts]
        self._readers: list[tuple[int, Any]] = []
        features = []
        for column, texts in enumerate(columns):
            for name in self.kind.split(" and "):
                reader = TfidfVectorizer(sublinear_tf=True, max_features=MAX_FEATURES, **_READERS[name])
                try:
                    features.append(reader.fit_transform(texts))
                except ValueError as error:
                    if "empty vocabulary" not in str(error):  # its error has no class of its own
                        raise
                else:
                    self._readers.append((column, reader))
        if not features:
            raise UnreadError(f"no text has {self.kind}")
        return hstack(features).tocsr()

    def transform(self, table: Table) -> Any:
        """Return the features of other texts."""
        from scipy.sparse import hstack

        columns = [table.texts, table.second]
        return hstack([reader.transform(columns[column]) for column, reader in self._readers]).tocsr()

    transform_anew = transform


_READERS: dict[str, Values] = {
    "words": {"token_pattern": r"(?u)\b\w+\b", "ngram_range": (1, 2)},
    "characters": {"analyzer": "char", "ngram_range": (1, 3)},
}


class Frozen:
    """Embeddings by an encoder that is not trained, each dimension with the deviation 1 in training.

    They are pooled as the encoder was trained, if its folder says so, else by the mean. Methods are the same
    as in `Tfidf`; a text that was embedded before is embedded again by `transform_anew` only.

    Args:
        task, max_length, overlap: how the fine-tuned model reads texts.
    """

    name = "the frozen encoder"
    kinds: Sequence[str] = ("vectors",)
    kind = kinds[-1]
    strengths: Sequence[float] = FROZEN_STRENGTHS

    def __init__(
        self, encoder: Encoder, task: Task, max_length: int, overlap: int | None, runtime: Runtime
    ) -> None:
        assert encoder.tokenizer is not None
        self.encoder = encoder.to(runtime.device).eval()
        self.encode = partial(
            task.encode, tokenizer=encoder.tokenizer, max_length=max_length, overlap=overlap, labelled=False
        )
        self.precision = runtime.precision
        self._vectors: dict[tuple[str, str], ndarray] = {}

    def fit(self, table: Table) -> ndarray:
        embeddings = self._embed_new(table)
        self._mean, self._deviation = embeddings.mean(0), embeddings.std(0) + 1e-6  # (hidden,)
        return self.transform(table)

    def transform(self, table: Table) -> ndarray:
        return (self._embed_new(table) - self._mean) / self._deviation

    def transform_anew(self, table: Table) -> ndarray:
        return (self._embed(table) - self._mean) / self._deviation

    def _embed_new(self, table: Table) -> ndarray:
        """The embeddings of a table, of which the texts that are new are computed."""
        keys = table.keys()
        new = [row for row, key in enumerate(keys) if key not in self._vectors]
        if new:
            for row, vector in zip(new, self._embed(table.take(new)), strict=True):
                self._vectors[keys[row]] = vector
        return np.stack([self._vectors[key] for key in keys])

    def _embed(self, table: Table) -> ndarray:
        return text_vectors(self.encoder, self.encode(table).examples, precision=self.precision)


Features = Tfidf | Frozen
"""How a baseline reads texts."""


def _predict_always(row: ndarray) -> Fitted:
    return lambda features: np.repeat(row[None].astype(np.float32), features.shape[0], 0)


def _fit_logistic(features: Any, labels: ndarray, strength: float) -> Any:
    """Logistic regression; for sparse features in the dual, which takes few passes but only two classes."""
    from scipy.sparse import issparse
    from sklearn.linear_model import LogisticRegression

    options: Values = {}
    if issparse(features):
        options = {"solver": "liblinear", "dual": True, "tol": 0.1, "random_state": 0}
    return LogisticRegression(C=strength, max_iter=1000, **options).fit(features, labels)


def _fit_each(labels: Iterable[ndarray], features: Any, strength: float | None) -> Fitted:
    """The log-odds of each label by a logistic regression of its own; without a strength, from its share."""
    fitted: list[Fitted] = []
    for label in labels:
        share = np.clip(label.mean(), MIN_SHARE, 1 - MIN_SHARE)  # so that the logarithm is finite
        if strength is None or len(np.unique(label)) == 1:
            fitted.append(_predict_always(np.log([share / (1 - share)])))
        else:
            fitted.append(_fit_logistic(features, label, strength).decision_function)

    def answer(features: Any) -> ndarray:
        log_odds = np.empty((features.shape[0], len(fitted)), dtype=np.float32)
        for place, predict in enumerate(fitted):
            log_odds[:, place] = predict(features).reshape(-1)
        return log_odds

    return answer


def _fit_classes(outputs: int, features: Any, targets: Targets, strength: float | None) -> Fitted:
    """Logistic regression, of sparse features one for each class; without a strength, shares of classes."""
    from scipy.sparse import issparse

    labels = targets["label"]
    classes = np.unique(labels)
    if strength is None or len(classes) == 1:
        shares = np.bincount(labels, minlength=outputs) / len(labels)
        return _predict_always(np.log(np.maximum(shares, MIN_SHARE)))
    if issparse(features) and len(classes) > 2:
        return _fit_each((labels == one for one in range(outputs)), features, strength)
    model = _fit_logistic(features, labels, strength)

    def answer(features: Any) -> ndarray:
        # Classes that train lacks are as good as impossible.
        logits = np.full((features.shape[0], outputs), -CERTAIN_LOGIT, dtype=np.float32)
        logits[:, model.classes_] = np.log(np.maximum(model.predict_proba(features), MIN_SHARE))
        return logits

    return answer


def _fit_labels(outputs: int, features: Any, targets: Targets, strength: float | None) -> Fitted:
    """A logistic regression for each label."""
    return _fit_each(unpack_labels(targets["labels"], outputs).T, features, strength)


def _fit_value(outputs: int, features: Any, targets: Targets, strength: float | None) -> Fitted:
    """Ridge regression, whose penalty is 1 / C."""
    from sklearn.linear_model import Ridge

    values = targets["label"].astype(np.float64)
    if strength is None:
        return _predict_always(values.mean(keepdims=True))
    model = Ridge(alpha=1 / strength).fit(features, values)
    return lambda features: model.predict(features)[:, None].astype(np.float32)


_MODELS = {
    "single_label_classification": _fit_classes,
    "multi_label_classification": _fit_labels,
    "regression": _fit_value,
}


@dataclass(frozen=True)
class Rung:
    """A baseline that is trained.

    Attributes:
        answers: answers to the test rows.
        seconds: the time of training: reading the texts, choosing C, and fitting.
        answer: how it answers other texts, for its speed; None: it is not timed.
        rows: the rows of train that it was fitted to.
        reads: the kind of features, where it was one of several.
    """

    answers: ndarray
    seconds: float
    answer: Answer | None = None
    rows: int = 0
    reads: str | None = None


def fit_majority(data: TaskData) -> Rung:
    """Return the rung with the same answer to every text: the shares of the classes, or the mean."""
    started, task = time.perf_counter(), data.task
    answer = _MODELS[task.problem_type](len(task.labels), None, data.train.targets, None)
    answers = answer(np.empty((len(data.test), 0)))
    return Rung(answers, time.perf_counter() - started, rows=len(data.train))


def fit_linear(data: TaskData, features: Features) -> Rung | None:
    """Fit a linear model on features to train, after choosing their kind and C by the primary metric on dev.

    Without a dev table, dev is a fifth of train. At most `MAX_LINEAR_ROWS` rows of train are read, fewer for
    many classes. The result is None for more than `MAX_OUTPUTS` classes, and where scikit-learn cannot fit
    the model, as to texts of spaces. A line says each of these.
    """
    task, outputs = data.task, max(len(data.task.labels), 1)
    if outputs > MAX_OUTPUTS:
        say(f"no linear model on {features.name}: {outputs:,} labels; {MAX_OUTPUTS:,} would take long")
        return None
    max_rows = min(MAX_LINEAR_ROWS, MAX_FITTED_VALUES // outputs)
    if len(data.train) > max_rows:
        say(f"{features.name} takes {max_rows:,} of the {len(data.train):,} rows, drawn: all would take long")
        fit, dev, train = data.fit, data.dev, data.train
        if dev is not None:
            dev = draw_rows(dev, max_rows // 4, "linear model")
        fit, train = draw_rows(fit, max_rows, "linear model"), draw_rows(train, max_rows, "linear model")
        data = replace(data, fit=fit, dev=dev, train=train)
    say(f"ladder: {features.name} on {len(data.train):,} rows")
    started = time.perf_counter()
    fit_model = partial(_MODELS[task.problem_type], len(task.labels))
    try:
        features.kind, strength = _choose_settings(data, features, fit_model)
        model = fit_model(features.fit(data.train.table), data.train.targets, strength)
    except ValueError as error:
        warn(f"no linear model on {features.name}: {error}")
        return None
    seconds = time.perf_counter() - started  # without the test rows, which any model must read
    answers = model(features.transform(data.test.table))
    reads = features.kind if len(features.kinds) > 1 else None
    if reads:
        say(f"{features.name} reads {reads}")
    return Rung(answers, seconds, lambda table: model(features.transform_anew(table)), len(data.train), reads)


def _choose_settings(
    data: TaskData, features: Features, fit_model: Callable[..., Fitted]
) -> tuple[str, float]:
    """The kind and the C that are best on dev, or a fifth of train: first the kind, then its C. They are the
    last kind and 1 where train is too small, or where no kind can read it."""
    task, fit, dev = data.task, data.fit, data.dev
    if dev is None:
        try:
            fit, dev = cut_part(task, data.train, "dev")
        except BrimfulError:  # too few rows
            return features.kinds[-1], 1.0

    def score(strength: float, train_features: Any, dev_features: Any) -> float:
        answers = fit_model(train_features, fit.targets, strength)(dev_features)
        return task.metrics[0].score(task.measure(answers, dev))

    # Every kind with every C would take three times as long.
    middle = features.strengths[len(features.strengths) // 2]
    best_score, best_kind, best_strength, best_features = -np.inf, features.kinds[-1], 1.0, None
    for kind in features.kinds:
        features.kind = kind
        with suppress(UnreadError):
            both = features.fit(fit.table), features.transform(dev.table)
            reached = score(middle, *both)
            if reached > best_score:
                best_score, best_kind, best_strength, best_features = reached, kind, middle, both
    if best_features is None:
        return best_kind, best_strength
    scores = []
    for strength in features.strengths:
        scores.append(best_score if strength == middle else score(strength, *best_features))
    # The first of equal scores has the smallest C, which regularises most.
    return best_kind, features.strengths[int(np.argmax(scores))]
