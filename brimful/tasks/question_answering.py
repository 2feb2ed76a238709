"""Question answering: the span of a context that answers a question, or no answer (SQuAD, CMRC 2018).

`answer_form` finds the spans. Exact match and F1 are those that SQuAD (Rajpurkar et al., 2016) and CMRC 2018
(Cui et al., 2019) define.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import chain
from typing import Self

import numpy as np
from numpy import ndarray
from torch import Tensor

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.base.types import IGNORED, Numbers
from brimful.data.batch import PackedBatch
from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.model.cross_entropy import count_labels
from brimful.model.encoder import Encoder
from brimful.model.heads import SpanHead
from brimful.objectives.losses import (
    Imitation,
    require_no_temperature,
    span_cross_entropy_sum,
    squared_error_sum,
)
from brimful.tables.question_files import NOWHERE, QuestionTable
from brimful.tables.table import Table
from brimful.tasks.answer_form import LONGEST_ANSWER, Answers, Prediction
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.prediction_form import Row
from brimful.tasks.task import Metric, Task

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_HAN = re.compile(r"([\u4e00-\u9fa5])")
"""Han characters, as CMRC's evaluation script defines them."""
_CMRC_PUNCTUATION = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
"""Characters that CMRC's script drops. Its list has `……` too, which no single character equals."""
_SEPARATE = re.compile(r"(\.{2,}|\.$|,(?!\d)|[;@#$%&?!()\[\]{}<>\"«»‘—])")
"""Marks that nltk's tokenizer, which CMRC's script applies to all but Han, separates from words."""


@dataclass(frozen=True)
class QuestionAnswering(Answers, Task):
    """A span of the context; the loss is the mean cross-entropy of its first and of its last token."""

    metrics = (
        Metric("f1", "F1", percent=True),
        Metric("exact", "exact match", percent=True),
        Metric("lcs_f1", "F1 of CMRC 2018", percent=True),
        Metric("cmrc_exact", "exact match of CMRC 2018", percent=True),
    )
    description = "the answer in a context"
    overlap = 128

    @classmethod
    def from_table(cls, table: Table) -> Self:
        answers = chain.from_iterable(table.labels or ())
        if not any(answer.start != NOWHERE for answer in answers):
            raise BrimfulError(f"{table.path} has no answers; there is nothing to learn")
        return cls(None if all(table.labels or []) else 0.0)

    def fit_settings(self, answers: list[Prediction], dev: Encoded) -> Self:
        best = self._find_threshold(answers, _list_golds(dev))
        if best is None:
            return self
        return self.with_settings(self.settings | {"no_answer_threshold": best[0]})

    def learn(self, train: Encoded, others: Iterable[Encoded] = ()) -> Self:
        """Let answers be as long as the longest of train, so that all of its labels can be predicted."""
        limit = max(LONGEST_ANSWER, int(_count_answer_tokens(train).max(initial=0)))
        for data in others:
            long = np.flatnonzero(_count_answer_tokens(data) > limit)
            rows = np.unique(data.examples.text_of_example[long])
            if len(rows):
                warn(
                    f"{len(rows):,} of {len(data):,} answers of {data.table.path} are longer than {limit}"
                    f" tokens, such as {data.table.where(int(rows[0]))}: no prediction is, since no answer"
                    " of train is"
                )
        return self.with_settings(self.settings | {"max_answer_length": limit})

    @property
    def calibrates(self) -> bool:
        return self.no_answer_threshold is not None

    def new_head(self, encoder: Encoder) -> SpanHead:
        return SpanHead(encoder)

    def example_targets(self, table: Table, examples: Examples) -> dict[str, ndarray | Ragged]:
        """Return `span`, the first and the last token of the first answer that is in the context.

        It is 0 and 0 (the first token) where the window does not hold that answer or the question has none,
        and `IGNORED` where answers are given and none is in the context.
        """
        assert table.labels is not None
        assert examples.characters is not None
        spans = np.zeros((len(examples), 2), dtype=np.int64)
        is_absent, is_present, is_held = np.zeros((3, len(table)), dtype=bool)
        for example, row in enumerate(examples.text_of_example.tolist()):
            answers, places = table.labels[row], examples.characters[example]  # places: (tokens, 2)
            in_context = [answer for answer in answers if answer.start != NOWHERE]
            if answers and not in_context:
                spans[example], is_absent[row] = IGNORED, True
            if not in_context:
                continue
            is_present[row] = True
            start, end = in_context[0].start, in_context[0].start + len(in_context[0].text)
            inside = np.flatnonzero((places[:, 0] < end) & (places[:, 1] > start) & (places[:, 0] >= 0))
            if len(inside) and places[inside[0], 0] <= start and places[inside[-1], 1] >= end:
                spans[example], is_held[row] = (inside[0], inside[-1]), True
        absent, lost = is_absent.sum(), (is_present & ~is_held).sum()
        if absent:
            warn(
                f"{absent:,} of {len(table):,} questions of {table.path} have no answer that is in their"
                " context: training leaves them out"
            )
        if lost:
            warn(
                f"{lost:,} of {len(table):,} answers of {table.path} fit no window;"
                " raise --overlap or --max-length"
            )
        return {"span": spans}

    def strata(self, table: Table) -> Sequence[object]:
        """Return whether each question has an answer."""
        return list(map(bool, table.labels or ()))

    def losses(self, outputs: Tensor, batch: PackedBatch) -> dict[str, Tensor]:
        return {self.name: span_cross_entropy_sum(outputs, batch.targets["span"], batch)}

    def count(self, batch: PackedBatch) -> float:
        """Count the windows that have a target."""
        return count_labels(batch.targets["span"][:, 0])

    def imitation(self, temperature: float) -> Imitation:
        """Return the squared error of the logits."""
        require_no_temperature(temperature, "the logits are the target")
        return lambda ours, theirs: squared_error_sum(ours.flatten(), theirs.flatten()) / 2

    def measure(self, answers: list[Prediction], data: Encoded) -> Numbers:
        """Return exact match and F1, as SQuAD and as CMRC 2018 define them (`SCORES`), and n.

        If some questions have no answer and others have one, also return `exact` and `f1` of each of these
        kinds, as SQuAD 2.0 reports them. If the task can also predict that a question has no answer, return
        the primary metric with the threshold that is best on these rows, and that threshold: `best_f1` and
        `best_f1_threshold`.
        """
        golds = _list_golds(data)
        texts = list(map(self.text_of, answers))
        scores, metrics = dict[str, ndarray](), Numbers()
        for name in SCORES:
            scores[name] = _score_texts(name, texts, golds)
            metrics[name] = float(scores[name].mean())
        metrics["n"] = len(data)
        has_answer = np.array([gold != [""] for gold in golds])
        if not has_answer.all() and has_answer.any():
            for name in ("f1", "exact"):
                metrics[f"answerable_{name}"] = float(scores[name][has_answer].mean())
                metrics[f"unanswerable_{name}"] = float(scores[name][~has_answer].mean())
        best = self._find_threshold(answers, golds)
        if best is not None:
            name = f"best_{self.metrics[0].name}"
            metrics[f"{name}_threshold"], metrics[name] = best
        return metrics

    def _find_threshold(
        self, answers: list[Prediction], golds: list[list[str]]
    ) -> tuple[float, float] | None:
        """The threshold with the best primary metric, and that metric; None if all questions are of one
        kind, or the task always answers."""
        has_answer = np.array([gold != [""] for gold in golds])
        if not self.calibrates or has_answer.all() or not has_answer.any():
            return None
        name, n = self.metrics[0].name, len(answers)
        spans, margins = [""] * n, np.empty(n)
        for row, prediction in enumerate(answers):
            margins[row] = prediction.margin
            if prediction.spans:
                spans[row] = prediction.spans[0].text
        # A context without tokens has an infinite margin: a threshold in the middle must stay finite.
        margins = np.minimum(margins, margins[np.isfinite(margins)].max(initial=0.0) + 1)
        # In the order of their margins, the first k questions have their spans, and the others no answer.
        order = np.argsort(margins, kind="stable")
        margins = margins[order]
        without = _score_texts(name, [""] * n, golds)
        gains = (_score_texts(name, spans, golds) - without)[order]
        totals = without.sum() + np.concatenate([[0.0], np.cumsum(gains)])  # (n + 1,), for k = 0 to n
        # No threshold divides questions with equal margins: all of them get spans, or none does.
        can_divide = np.concatenate([[True], margins[1:] > margins[:-1], [True]])
        best = int(np.where(can_divide, totals, -np.inf).argmax())
        edges = np.concatenate([margins[:1] - 1, margins, margins[-1:] + 1])
        return float(edges[best : best + 2].mean()), float(totals[best] / n)

    def compare_rows(self, answers: list[Prediction], data: Encoded) -> list[Row]:
        """Return `id`, the texts of the right answers as `gold`, and the predicted text as `prediction`."""
        assert isinstance(data.table, QuestionTable)
        rows = []
        for name, gold, prediction in zip(data.table.ids, data.labels, answers, strict=True):
            texts = [answer.text for answer in gold]
            rows.append({"id": name, "gold": texts, "prediction": self.text_of(prediction)})
        return rows


def _count_answer_tokens(data: Encoded) -> ndarray:
    """int64 (examples,), the tokens of the answer; 1 where a window holds no answer."""
    spans = data.examples.targets["span"]
    assert isinstance(spans, ndarray)
    return spans[:, 1] - spans[:, 0] + 1


def _list_golds(data: Encoded) -> list[list[str]]:
    """The texts of the right answers to each question; the empty text where no answer is right."""
    return [[answer.text for answer in answers] or [""] for answers in data.labels]


def _score_texts(name: str, texts: list[str], golds: list[list[str]]) -> ndarray:
    """The score of each text by the right answer that is nearest, float64 (n,)."""
    score, scores = SCORES[name], np.empty(len(texts))
    for row, (text, answers) in enumerate(zip(texts, golds, strict=True)):
        scores[row] = max(score(text, answer) for answer in answers)
    return scores


def _normalise(text: str) -> str:
    """Lower case without ASCII punctuation, articles and superfluous spaces: SQuAD's normalisation."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact(prediction: str, answer: str) -> float:
    """Return 1 if both are the same after normalisation."""
    return float(_normalise(prediction) == _normalise(answer))


def f1(prediction: str, answer: str) -> float:
    """Return F1 of the words that both have; 1 for two answers without words.

    As in SQuAD's script, words stand between spaces, so Chinese without spaces is one word. `lcs_f1` is the
    score for Chinese.
    """
    ours, theirs = _normalise(prediction).split(), _normalise(answer).split()
    return _f1((Counter(ours) & Counter(theirs)).total(), ours, theirs)


def cmrc_exact(prediction: str, answer: str) -> float:
    """Return 1 if both are the same in lower case without the punctuation that CMRC drops."""
    return float(_normalise_cmrc(prediction) == _normalise_cmrc(answer))


def lcs_f1(prediction: str, answer: str) -> float:
    """Return CMRC's F1, from the longest run of words and Han characters that both have.

    Contractions such as `don't` are one word; nltk divides them.
    """
    ours, theirs = _split_cmrc(prediction), _split_cmrc(answer)
    longest = SequenceMatcher(None, ours, theirs, autojunk=False).find_longest_match()
    return _f1(longest.size, ours, theirs)


def _f1(common: int, ours: list[str], theirs: list[str]) -> float:
    if not ours or not theirs:
        return float(ours == theirs)
    return 2 * common / (len(ours) + len(theirs))


def _normalise_cmrc(text: str) -> str:
    return text.lower().strip().translate(_CMRC_PUNCTUATION)


def _split_cmrc(text: str) -> list[str]:
    """The words and Han characters of a text, divided as by CMRC's evaluation script."""
    words = []
    for run in _HAN.split(_normalise_cmrc(text)):
        words += _SEPARATE.sub(r" \1 ", run.strip()).split()
    return words


SCORES = {"f1": f1, "exact": exact, "lcs_f1": lcs_f1, "cmrc_exact": cmrc_exact}
"""Functions of a prediction and a right answer, by the name of the metric that is their mean."""
