"""The ladder: what else the same labels can give, beside a fine-tuned encoder. It needs scikit-learn.

Each rung is trained on the same rows as the encoder. What it has to choose is chosen on the same dev rows,
and it is measured on the same test rows.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from brimful.base.console import say, warn
from brimful.base.environment import describe_missing
from brimful.base.errors import BrimfulError
from brimful.model.encoder import Encoder
from brimful.model.inference import text_vectors
from brimful.tables.table import Table
from brimful.tasks.judging.comparison import Answer
from brimful.tasks.task import Task
from brimful.tasks.task_data import TaskData, cut_part, draw_rows
from brimful.train.objective import Runtime

TFIDF_STRENGTHS = (1.0, 3.0, 10.0, 30.0)
"""C of the logistic regressions on TF-IDF that are tried: large is weak regularisation."""
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
LEAST_SHARE = float(np.exp(-CERTAIN_LOGIT))

Fitted = Callable[[Any], np.ndarray]
"""Features (n, features) -> answers (n, outputs), as `Task.measure` takes them."""


def available(task: Task) -> str | None:
    """Why there is no ladder; None if there is one."""
    if task.problem_type not in _MODELS:
        return f"the baselines are for classes, several labels or a value of a text, and not for {task.name}"
    return describe_missing("the ladder of baselines", "sklearn")


class UnreadError(ValueError):
    """No text has what a kind of features reads, such as words."""


class Tfidf:
    """Words and pairs of words, runs of one to three characters, or both, by scikit-learn's TF-IDF, each with
    a norm of 1; of pairs each text has its own. `fit` reads the training table by the chosen `kind`."""

    name = "TF-IDF"
    kinds: Sequence[str] = ("words", "characters", "words and characters")
    kind = kinds[-1]
    strengths: Sequence[float] = TFIDF_STRENGTHS

    def fit(self, table: Table) -> Any:
        """The features of a training table, on which those of other texts then depend.

        Raises:
            UnreadError: no text has what this kind reads.
        """
        from scipy.sparse import hstack
        from sklearn.feature_extraction.text import TfidfVectorizer

        columns = [table.texts, table.second] if any(table.second or ()) else [table.texts]
        self._readers: list[tuple[int, Any]] = []
        read = []
        for column, texts in enumerate(columns):
            for name in self.kind.split(" and "):
                reader = TfidfVectorizer(sublinear_tf=True, max_features=MAX_FEATURES, **_READERS[name])
                try:
                    read.append(reader.fit_transform(texts))
                except ValueError as error:
                    if "empty vocabulary" not in str(error):
                        raise
                else:
                    self._readers.append((column, reader))
        if not read:
            raise UnreadError(f"no text has {self.kind}")
        return hstack(read).tocsr()

    def of(self, table: Table) -> Any:
        """The features of other texts."""
        from scipy.sparse import hstack

        columns = [table.texts, table.second]
        return hstack([reader.transform(columns[column]) for column, reader in self._readers]).tocsr()

    def new(self, table: Table) -> Any:
        """The same, computed again, as a user would wait for them."""
        return self.of(table)


_READERS: dict[str, dict[str, Any]] = {
    "words": {"token_pattern": r"(?u)\b\w+\b", "ngram_range": (1, 2)},
    "characters": {"analyzer": "char", "ngram_range": (1, 3)},
}


class Frozen:
    """Embeddings by an encoder that is not trained, each dimension with the deviation 1 in training.

    They are pooled as the encoder was trained, where that is known, else by the mean. Methods are those of
    `Tfidf`; a text that was embedded before is embedded again by `new` alone.

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
        self._known: dict[tuple[str, str], np.ndarray] = {}

    def fit(self, table: Table) -> np.ndarray:
        embeddings = self._embeddings(table)
        self._mean, self._deviation = embeddings.mean(0), embeddings.std(0) + 1e-6
        return self.of(table)

    def of(self, table: Table) -> np.ndarray:
        return (self._embeddings(table) - self._mean) / self._deviation

    def new(self, table: Table) -> np.ndarray:
        return (self._embed(table) - self._mean) / self._deviation

    def _embeddings(self, table: Table) -> np.ndarray:
        keys = table.keys()
        new = [row for row, key in enumerate(keys) if key not in self._known]
        if new:
            self._known |= zip((keys[row] for row in new), self._embed(table.take(new)), strict=True)
        return np.stack([self._known[key] for key in keys])

    def _embed(self, table: Table) -> np.ndarray:
        return text_vectors(self.encoder, self.encode(table).examples, precision=self.precision)


Features = Tfidf | Frozen
"""How a baseline reads texts."""


def _constant(row: np.ndarray) -> Fitted:
    return lambda features: np.repeat(row[None].astype(np.float32), features.shape[0], 0)


def _logistic(features: Any, labels: np.ndarray, strength: float) -> Any:
    """Logistic regression; of sparse features in the dual, for two classes, which takes few passes."""
    from scipy.sparse import issparse
    from sklearn.linear_model import LogisticRegression

    dual = {"solver": "liblinear", "dual": True, "tol": 0.1, "random_state": 0} if issparse(features) else {}
    return LogisticRegression(C=strength, max_iter=1000, **dual).fit(features, labels)


def _log_odds(model: Any, features: Any) -> np.ndarray:
    return model.decision_function(features)[:, None]


def _one_by_one(labels: Iterable[np.ndarray], features: Any, strength: float | None) -> Fitted:
    """The log-odds of each label by a logistic regression of its own; without a strength, and of a label that
    never changes, those of its share whatever the text is."""
    fitted: list[Fitted] = []
    for label in labels:
        share = np.clip(label.mean(), LEAST_SHARE, 1 - LEAST_SHARE)
        if strength is None or len(np.unique(label)) == 1:
            fitted.append(_constant(np.log([share / (1 - share)])))
        else:
            fitted.append(partial(_log_odds, _logistic(features, label, strength)))
    return lambda x: np.concatenate([one(x) for one in fitted], 1).astype(np.float32)


def _classes(outputs: int, features: Any, targets: dict[str, np.ndarray], strength: float | None) -> Fitted:
    """Logistic regression, of sparse features of each class against all others; without a strength, the
    shares of the classes whatever the text is."""
    from scipy.sparse import issparse

    labels = targets["label"]
    classes = np.unique(labels)
    if strength is None or len(classes) == 1:
        shares = np.bincount(labels, minlength=outputs) / len(labels)
        return _constant(np.log(np.maximum(shares, LEAST_SHARE)))
    if issparse(features) and len(classes) > 2:
        return _one_by_one((labels == one for one in range(outputs)), features, strength)
    model = _logistic(features, labels, strength)

    def answers(x: Any) -> np.ndarray:
        logits = np.full((x.shape[0], outputs), -CERTAIN_LOGIT, dtype=np.float32)
        logits[:, model.classes_] = np.log(np.maximum(model.predict_proba(x), LEAST_SHARE))
        return logits

    return answers


def _labels(outputs: int, features: Any, targets: dict[str, np.ndarray], strength: float | None) -> Fitted:
    """A logistic regression for each label."""
    labels = np.unpackbits(targets["labels"], axis=1, count=1 + outputs)[:, 1:]
    return _one_by_one(labels.T, features, strength)


def _value(outputs: int, features: Any, targets: dict[str, np.ndarray], strength: float | None) -> Fitted:
    """Ridge regression, whose penalty is 1 / C."""
    from sklearn.linear_model import Ridge

    values = targets["label"].astype(np.float64)
    if strength is None:
        return _constant(values.mean(keepdims=True))
    model = Ridge(alpha=1 / strength).fit(features, values)
    return lambda x: model.predict(x)[:, None].astype(np.float32)


_MODELS = {
    "single_label_classification": _classes,
    "multi_label_classification": _labels,
    "regression": _value,
}


@dataclass(frozen=True)
class Rung:
    """A baseline that is trained.

    Attributes:
        answers: of the test rows.
        seconds: of training: reading the texts, choosing C, and fitting.
        answer: how it answers other texts, for its speed; None: it is not timed.
        rows: of train that it was fitted to.
        reads: the kind of features, where it was one of several.
    """

    answers: np.ndarray
    seconds: float
    answer: Answer | None = None
    rows: int = 0
    reads: str | None = None


def majority(task: Task, data: TaskData) -> Rung:
    """The same answer to every text: the shares of the classes, or the mean."""
    started = time.perf_counter()
    answer = _MODELS[task.problem_type](len(task.labels), None, data.train.targets, None)
    answers = answer(np.empty((len(data.test), 0)))
    seconds = time.perf_counter() - started
    return Rung(answers, seconds, rows=len(data.train))


def linear(task: Task, data: TaskData, features: Features) -> Rung | None:
    """A linear model on features: their kind and its C are the best on dev by the primary metric, and then it
    is fitted to train. Without a dev table, dev is a fifth of train, as for learning rates.

    It takes at most `MAX_LINEAR_ROWS` rows of train, of many classes fewer. There is none for more than
    `MAX_OUTPUTS`, nor where scikit-learn cannot fit it, as to texts of spaces. A line says each.
    """
    outputs = max(len(task.labels), 1)
    if outputs > MAX_OUTPUTS:
        say(f"no linear model on {features.name}: {outputs:,} labels; {MAX_OUTPUTS:,} would take long")
        return None
    most = min(MAX_LINEAR_ROWS, MAX_FITTED_VALUES // outputs)
    if len(data.train) > most:
        say(f"{features.name} takes {most:,} of the {len(data.train):,} rows, drawn: all would take long")
        fit, train = (draw_rows(part, most, "linear model") for part in (data.fit, data.train))
        dev = None if data.dev is None else draw_rows(data.dev, most // 4, "linear model")
        data = replace(data, fit=fit, dev=dev, train=train)
    say(f"ladder: {features.name} on {len(data.train):,} rows")
    started = time.perf_counter()
    fit_model = partial(_MODELS[task.problem_type], len(task.labels))
    try:
        features.kind, strength = _choice(task, data, features, fit_model)
        model = fit_model(features.fit(data.train.table), data.train.targets, strength)
    except ValueError as error:
        warn(f"no linear model on {features.name}: {error}")
        return None
    seconds = time.perf_counter() - started
    answers = model(features.of(data.test.table))
    reads = features.kind if len(features.kinds) > 1 else None
    if reads:
        say(f"{features.name} reads {reads}")
    return Rung(answers, seconds, lambda table: model(features.new(table)), len(data.train), reads)


def _choice(
    task: Task, data: TaskData, features: Features, fit_model: Callable[..., Fitted]
) -> tuple[str, float]:
    """The kind and the C that are best on dev, or on a fifth of train: the kind at one C, then its C. The
    last kind and 1 where train is too small for that, or where no kind can read it."""
    fit, dev = data.fit, data.dev
    if dev is None:
        try:
            fit, dev = cut_part(task, data.train, "dev")
        except BrimfulError:  # too few rows
            return features.kinds[-1], 1.0

    def score(strength: float) -> float:
        answers = fit_model(ours, fit.targets, strength)(theirs)
        return task.metrics[0].score(task.measure(answers, dev))

    middle, most, best = features.strengths[len(features.strengths) // 2], -np.inf, None
    for kind in features.kinds:
        features.kind = kind
        with suppress(UnreadError):
            ours, theirs = features.fit(fit.table), features.of(dev.table)
            reached = score(middle)
            if reached > most:
                most, best = reached, (kind, ours, theirs)
    if best is None:
        return features.kinds[-1], 1.0
    kind, ours, theirs = best
    scores = {strength: most if strength == middle else score(strength) for strength in features.strengths}
    return kind, max(scores, key=lambda one: scores[one])
