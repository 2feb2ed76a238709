"""The ladder: what else the same labels can give, beside a fine-tuned encoder. It needs scikit-learn.

Each rung is trained on the same rows as the encoder. What it has to choose is chosen on the same dev rows,
and it is measured on the same test rows.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from brimful.console import say, warn
from brimful.errors import BrimfulError
from brimful.extras import missing
from brimful.judging.speed import Speed, speed_of
from brimful.model.encoder import Encoder
from brimful.model.inference import text_vectors
from brimful.randomness import derive_key, permutation
from brimful.tables.table import Table
from brimful.tasks.data import TaskData, cut_part
from brimful.tasks.encoded import Encoded
from brimful.tasks.task import Task
from brimful.text.characters import HAN, character_classes, code_points
from brimful.train.objective import Runtime

TFIDF_STRENGTHS = (1.0, 3.0, 10.0, 30.0)
"""C of the logistic regressions on TF-IDF that are tried: large is weak regularisation."""
FROZEN_STRENGTHS = (0.001, 0.01, 0.1, 1.0, 10.0)
"""The same on embeddings, whose features have a deviation of 1."""
MOST = 50_000
"""Rows of train, and a quarter of them of dev, that a linear model takes: other ranks wait for it."""
RUNGS = ("majority", "tfidf", "frozen", "random")
"""The models of the ladder, by their keys in a summary and in its order."""
LARGE = 20.0
"""A logit that stands for certainty, where a label never changes in training."""

Fitted = Callable[[Any], np.ndarray]
"""Features (n, features) -> answers (n, outputs), as `Task.measure` takes them."""


def available(task: Task) -> str | None:
    """Why there is no ladder; None if there is one."""
    if task.problem_type not in _MODELS:
        return f"the baselines are for classes, several labels or a value of a text, and not for {task.name}"
    return missing("the ladder of baselines", "sklearn")


def is_chinese(texts: Sequence[str]) -> bool:
    """Whether a tenth of the characters are Han: words are not divided by spaces then."""
    sample = "".join(texts[:1000])
    return bool(sample) and bool((character_classes()[code_points(sample)] == HAN).mean() > 0.1)


def tfidf_vectorizer(texts: Sequence[str]) -> Any:
    """TF-IDF of words and pairs of words; of characters and pairs of characters where texts are Chinese."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    if is_chinese(texts):
        return TfidfVectorizer(analyzer="char", ngram_range=(1, 2), sublinear_tf=True)
    return TfidfVectorizer(token_pattern=r"(?u)\b\w+\b", ngram_range=(1, 2), sublinear_tf=True)


class Features(Protocol):
    """How a baseline reads texts."""

    name: str
    """What a message calls them."""
    strengths: tuple[float, ...]
    """C to choose from."""

    def fit(self, table: Table) -> Any:
        """The features of a training table, on which these features then depend."""

    def of(self, table: Table) -> Any:
        """The features of other texts."""

    def new(self, table: Table) -> Any:
        """The same, computed again, as a user would wait for them."""


class Tfidf:
    """Words, or characters, by TF-IDF; of pairs each text has its own."""

    name = "TF-IDF"
    strengths: tuple[float, ...] = TFIDF_STRENGTHS

    def fit(self, table: Table) -> Any:
        self._reads_second = any(table.second or ())
        self._columns = [tfidf_vectorizer(texts).fit(texts) for texts in self._texts(table)]
        return self.of(table)

    def of(self, table: Table) -> Any:
        from scipy.sparse import hstack

        pairs = zip(self._columns, self._texts(table), strict=True)
        return hstack([column.transform(texts) for column, texts in pairs]).tocsr()

    def new(self, table: Table) -> Any:
        return self.of(table)

    def _texts(self, table: Table) -> list[Sequence[str]]:
        return [table.texts, table.second] if self._reads_second and table.second else [table.texts]


class Frozen:
    """Embeddings by an encoder that is not trained, each dimension with the deviation 1 in training.

    They are pooled as the encoder was trained, where that is known, else by the mean.

    Args:
        encode: texts -> examples, without targets.
    """

    name = "the frozen encoder"
    strengths: tuple[float, ...] = FROZEN_STRENGTHS

    def __init__(self, encoder: Encoder, encode: Callable[[Table], Encoded], runtime: Runtime) -> None:
        self.encoder = encoder.to(runtime.device).eval()
        self.encode = encode
        self.runtime = runtime
        self._known: dict[tuple[str, str], np.ndarray] = {}

    def fit(self, table: Table) -> np.ndarray:
        found = self._embeddings(table)
        self._mean, self._deviation = found.mean(0), found.std(0) + 1e-6
        return self.of(table)

    def of(self, table: Table) -> np.ndarray:
        return (self._embeddings(table) - self._mean) / self._deviation

    def new(self, table: Table) -> np.ndarray:
        return (self._embed(table) - self._mean) / self._deviation

    def _embeddings(self, table: Table) -> np.ndarray:
        """float32 (n, hidden); a text that was embedded before is not embedded again."""
        keys = table.keys()
        new = [row for row, key in enumerate(keys) if key not in self._known]
        if new:
            self._known |= zip((keys[row] for row in new), self._embed(table.take(new)), strict=True)
        return np.stack([self._known[key] for key in keys])

    def _embed(self, table: Table) -> np.ndarray:
        return text_vectors(self.encoder, self.encode(table).examples, precision=self.runtime.precision)


def _constant(row: np.ndarray) -> Fitted:
    return lambda features: np.repeat(row[None].astype(np.float32), features.shape[0], 0)


def _classes(outputs: int, features: Any, targets: dict[str, np.ndarray], strength: float | None) -> Fitted:
    """Logistic regression; without a strength, the shares of the classes whatever the text is."""
    from sklearn.linear_model import LogisticRegression

    labels, weights = targets["label"], None
    if "weight" in targets:  # a training weighs windows, this model rows
        counts = np.bincount(labels, minlength=outputs)
        weights = (len(labels) / (outputs * np.maximum(counts, 1)))[labels]
    shares = np.bincount(labels, weights=weights, minlength=outputs) / len(labels)
    if strength is None or len(np.unique(labels)) == 1:
        return _constant(np.log(np.maximum(shares, np.exp(-LARGE))))
    model = LogisticRegression(C=strength, max_iter=1000).fit(features, labels, weights)

    def answers(x: Any) -> np.ndarray:
        found = np.full((x.shape[0], outputs), -LARGE, dtype=np.float32)
        found[:, model.classes_] = np.log(np.maximum(model.predict_proba(x), np.exp(-LARGE)))
        return found

    return answers


def _labels(outputs: int, features: Any, targets: dict[str, np.ndarray], strength: float | None) -> Fitted:
    """A logistic regression for each label."""
    from sklearn.linear_model import LogisticRegression

    fitted: list[Callable[[Any], np.ndarray]] = []
    for label in targets["labels"].T > 0.5:
        share = np.clip(label.mean(), np.exp(-LARGE), 1 - np.exp(-LARGE))
        if strength is None or len(np.unique(label)) == 1:
            fitted.append(_constant(np.log([share / (1 - share)])))
            continue
        model = LogisticRegression(C=strength, max_iter=1000).fit(features, label)
        fitted.append(partial(_scores, model))
    return lambda x: np.concatenate([one(x) for one in fitted], 1).astype(np.float32)


def _scores(model: Any, features: Any) -> np.ndarray:
    return model.decision_function(features)[:, None]


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
        metrics: on the test rows.
        seconds: of training: reading the texts, choosing C, and fitting.
        speed: where it was measured.
        strength: the C that was chosen.
        rows: of train that it was fitted to.
    """

    answers: np.ndarray
    metrics: dict[str, float]
    seconds: float
    speed: Speed | None = None
    strength: float | None = None
    rows: int = 0


def majority(task: Task, data: TaskData) -> Rung:
    """The same answer to every text: the shares of the classes, or the mean."""
    started = time.perf_counter()
    targets = {name: values for name, values in data.train.targets.items() if name != "weight"}
    answer = _MODELS[task.problem_type](len(task.labels), None, targets, None)
    answers = answer(np.empty((len(data.test), 0)))
    seconds = time.perf_counter() - started
    return Rung(answers, task.measure(answers, data.test), seconds, rows=len(data.train))


def _drawn(data: Encoded, most: int) -> Encoded:
    """`most` rows or fewer, in order; the same ones on every call."""
    if len(data) <= most:
        return data
    return data.take(np.sort(permutation(len(data), derive_key("linear model"))[:most]))


def linear(task: Task, data: TaskData, features: Features, *, timed: bool = True) -> Rung | None:
    """As `_linear`, with at most `MOST` rows of train; None where scikit-learn cannot fit the model: for
    example to texts without a word. A line says either."""
    if len(data.train) > MOST:
        say(f"{features.name} takes {MOST:,} of the {len(data.train):,} rows, drawn: all would take long")
        dev = None if data.dev is None else _drawn(data.dev, MOST // 4)
        data = replace(data, fit=_drawn(data.fit, MOST), dev=dev, train=_drawn(data.train, MOST))
    try:
        return _linear(task, data, features, timed=timed)
    except ValueError as error:
        warn(f"no linear model on {features.name}: {error}")
        return None


def _linear(task: Task, data: TaskData, features: Features, *, timed: bool) -> Rung:
    """A linear model on features: its C is the best on dev by the primary metric, and then it is fitted to
    train. Without a dev table, dev is a fifth of train, as for learning rates."""
    started = time.perf_counter()
    fit_model = partial(_MODELS[task.problem_type], len(task.labels))
    strength = _strength(task, data, features)
    model = fit_model(features.fit(data.train.table), data.train.targets, strength)
    seconds = time.perf_counter() - started
    answers = model(features.of(data.test.table))
    speed = speed_of(lambda table: model(features.new(table)), data.test.table) if timed else None
    return Rung(answers, task.measure(answers, data.test), seconds, speed, strength, len(data.train))


def _strength(task: Task, data: TaskData, features: Features) -> float:
    """The C that is best on dev, or on a fifth of train; 1 where train is too small for that."""
    fit_model = partial(_MODELS[task.problem_type], len(task.labels))
    fit, dev = data.fit, data.dev
    if dev is None:
        try:
            fit, dev = cut_part(task, data.train, "dev")
        except BrimfulError:  # too few rows
            return 1.0
    ours, theirs = features.fit(fit.table), features.of(dev.table)
    scores = {
        strength: task.metrics[0].score(task.measure(fit_model(ours, fit.targets, strength)(theirs), dev))
        for strength in features.strengths
    }
    return max(scores, key=lambda one: scores[one])


def frozen(encoder: Encoder, task: Task, data: TaskData, overlap: int | None, runtime: Runtime) -> Frozen:
    """The features of an encoder that reads texts as the fine-tuned one does."""
    assert encoder.tokenizer is not None
    tokenizer, max_length = encoder.tokenizer, data.train.examples.max_length

    def encode(table: Table) -> Encoded:
        return task.encode(table, tokenizer, max_length, overlap, labelled=False)

    return Frozen(encoder, encode, runtime)
