"""Question answering: the span of a context that answers a question, or none (SQuAD, CMRC 2018), as
`answer_form` finds it.

How right an answer is, SQuAD (Rajpurkar et al., 2016) and CMRC 2018 (Cui et al., 2019) say.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from torch import Tensor

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.base.types import IGNORED
from brimful.data.batch import PackedBatch
from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.model.encoder import Encoder
from brimful.model.heads import SpanHead
from brimful.objectives.losses import count, require_no_temperature, span_cross_entropy_sum, squared_error_sum
from brimful.tables.question_files import NOWHERE, QuestionTable
from brimful.tables.table import Table
from brimful.tasks.answer_form import LONGEST_ANSWER, Answers, Prediction
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.prediction_form import Row
from brimful.tasks.task import Metric, Task

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_HAN = re.compile(r"([\u4e00-\u9fa5])")
"""What CMRC's script takes for a Han character."""
_DROPPED = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
"""What CMRC's script drops. Its list names `……` too, which no single character equals."""
_APART = re.compile(r"(\.{2,}|\.$|,(?!\d)|[;@#$%&?!()\[\]{}<>\"«»‘—])")
"""What nltk's tokenizer, which CMRC's script applies to all but Han, divides from words."""


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
        if not any(answer.start != NOWHERE for answers in table.labels or [] for answer in answers):
            raise BrimfulError(f"{table.path} has no answers; there is nothing to learn")
        return cls(None if all(table.labels or []) else 0.0)

    def fit_settings(self, answers: list[Prediction], dev: Encoded) -> Self:
        best = self._best_threshold(answers, _golds(dev)) if self.calibrates else None
        return self.with_settings(self.settings | {"no_answer_threshold": best[0]}) if best else self

    def learn(self, train: Encoded, others: Iterable[Encoded] = ()) -> Self:
        """Answers may be as long as the longest of train: what is labelled can be predicted."""
        limit = max(LONGEST_ANSWER, int(_answer_lengths(train).max(initial=0)))
        for data in others:
            long = np.flatnonzero(_answer_lengths(data) > limit)
            if len(rows := np.unique(data.examples.text_of_example[long])):
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

    def example_targets(self, table: Table, examples: Examples) -> dict[str, np.ndarray | Ragged]:
        """`span`, the first and the last token of the first answer that is in the context, or 0 and 0 (the
        first token) where the window does not hold it; none where no answer is in the context."""
        assert table.labels is not None
        assert examples.characters is not None
        spans = np.zeros((len(examples), 2), dtype=np.int64)
        for example, row in enumerate(examples.text_of_example.tolist()):
            answers, places = table.labels[row], examples.characters[example]
            if not answers:
                continue
            answer = next((each for each in answers if each.start != NOWHERE), None)
            if answer is None:
                spans[example] = IGNORED
                continue
            start, end = answer.start, answer.start + len(answer.text)
            inside = np.flatnonzero((places[:, 0] < end) & (places[:, 1] > start) & (places[:, 0] >= 0))
            if len(inside) and places[inside[0], 0] <= start and places[inside[-1], 1] >= end:
                spans[example] = inside[0], inside[-1]
        held = np.zeros(len(table), dtype=bool)
        np.logical_or.at(held, examples.text_of_example, spans[:, 1] != 0)
        if nowhere := len(np.unique(examples.text_of_example[spans[:, 1] == IGNORED])):
            warn(
                f"{nowhere:,} of {len(table):,} questions of {table.path} have no answer that is in their"
                " context: training leaves them out"
            )
        if lost := sum(bool(answers) and not h for answers, h in zip(table.labels, held, strict=True)):
            warn(
                f"{lost:,} of {len(table):,} answers of {table.path} fit no window;"
                " raise --overlap or --max-length"
            )
        return {"span": spans}

    def strata(self, table: Table) -> Sequence[object]:
        """Whether there is an answer."""
        return [bool(answers) for answers in table.labels or []]

    def losses(self, outputs: Tensor, batch: PackedBatch) -> dict[str, Tensor]:
        return {self.name: span_cross_entropy_sum(outputs, batch.targets["span"], batch)}

    def count(self, batch: PackedBatch) -> float:
        """The number of windows that have a target."""
        return count(batch.targets["span"][:, 0])

    def imitation(self, temperature: float) -> Callable[[Tensor, Tensor], Tensor]:
        """The squared error of the logits."""
        require_no_temperature(temperature, "the logits are the target")
        return lambda ours, theirs: squared_error_sum(ours.flatten(), theirs.flatten()) / 2

    def measure(self, answers: list[Prediction], data: Encoded) -> dict[str, float]:
        """Exact match and F1, as SQuAD and as CMRC 2018 define them (`SCORES`).

        Where some questions have no answer, also `exact` and `f1` of the two kinds of questions apart, as
        SQuAD 2.0 reports them. If the task predicts no answer at all, also the primary metric that the best
        threshold of these very rows would give, and that threshold: `best_f1` and `best_f1_threshold`.
        """
        texts, golds = [self.text_of(each) for each in answers], _golds(data)
        scores = {name: _best_scores(name, texts, golds) for name in SCORES}
        measured = {name: float(values.mean()) for name, values in scores.items()} | {"n": len(data)}
        answered = np.array([gold != [""] for gold in golds])
        if not answered.all() and answered.any():
            for name in ("f1", "exact"):
                measured[f"answerable_{name}"] = float(scores[name][answered].mean())
                measured[f"unanswerable_{name}"] = float(scores[name][~answered].mean())
        if self.no_answer_threshold is not None and (best := self._best_threshold(answers, golds)):
            name = f"best_{self.metrics[0].name}"
            measured |= {f"{name}_threshold": best[0], name: best[1]}
        return measured

    def _best_threshold(
        self, answers: list[Prediction], golds: list[list[str]]
    ) -> tuple[float, float] | None:
        """The threshold with the best primary metric, and that; None if all questions are of one kind."""
        answered = np.array([gold != [""] for gold in golds])
        if answered.all() or not answered.any():
            return None
        name = self.metrics[0].name
        margins = np.array([prediction.margin for prediction in answers])
        margins = np.minimum(margins, margins[np.isfinite(margins)].max(initial=0.0) + 1)
        without = _best_scores(name, [""] * len(answers), golds)
        spans = [prediction.spans[0].text if prediction.spans else "" for prediction in answers]
        order = np.argsort(margins, kind="stable")
        gains = (_best_scores(name, spans, golds) - without)[order]
        totals = without.sum() + np.concatenate([[0.0], np.cumsum(gains)])
        ranked = margins[order]
        apart = np.concatenate([[True], ranked[1:] > ranked[:-1], [True]])  # equal margins: equal answers
        best = int(np.where(apart, totals, -np.inf).argmax())  # this many have a span
        edges = np.concatenate([ranked[:1] - 1, ranked, ranked[-1:] + 1])
        return float(edges[best : best + 2].mean()), float(totals[best] / len(margins))

    def compare_rows(self, answers: list[Prediction], data: Encoded) -> list[Row]:
        """`id`, the texts of the right answers as `gold`, and the predicted text as `prediction`."""
        assert isinstance(data.table, QuestionTable)
        assert data.table.labels is not None
        rows = zip(data.table.ids, data.table.labels, answers, strict=True)
        return [
            {"id": name, "gold": [a.text for a in gold], "prediction": self.text_of(prediction)}
            for name, gold, prediction in rows
        ]


def _answer_lengths(data: Encoded) -> np.ndarray:
    """int64 (examples,), the tokens of the answer; 1 where there is none."""
    spans = data.examples.targets["span"]
    assert isinstance(spans, np.ndarray)
    return spans[:, 1] - spans[:, 0] + 1


def _golds(data: Encoded) -> list[list[str]]:
    """The texts of the right answers to each question; the empty text alone where there is none."""
    assert data.table.labels is not None
    return [[answer.text for answer in answers] or [""] for answers in data.table.labels]


def _best_scores(name: str, texts: list[str], golds: list[list[str]]) -> np.ndarray:
    """The score of each text by the right answer that is nearest, float64 (n,)."""
    score = SCORES[name]
    pairs = zip(texts, golds, strict=True)
    return np.array([max(score(text, answer) for answer in right) for text, right in pairs])


def normalised(text: str) -> str:
    """Lower case without ASCII punctuation, articles and superfluous spaces: SQuAD's normalisation."""
    kept = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(_ARTICLES.sub(" ", kept).split())


def exact(prediction: str, answer: str) -> float:
    """1 if both are the same after normalisation."""
    return float(normalised(prediction) == normalised(answer))


def f1(prediction: str, answer: str) -> float:
    """F1 of the words that both have. Of two answers without words it is 1.

    Words stand between spaces, so Chinese without spaces is one word, as in SQuAD's script: `lcs_f1` is the
    score for Chinese.
    """
    found, wanted = (normalised(text).split() for text in (prediction, answer))
    return _f1(sum((Counter(found) & Counter(wanted)).values()), found, wanted)


def cmrc_exact(prediction: str, answer: str) -> float:
    """1 if both are the same in lower case without the punctuation that CMRC drops."""
    return float(_kept(prediction) == _kept(answer))


def lcs_f1(prediction: str, answer: str) -> float:
    """CMRC's F1: of the longest run of words and Han characters that both have, without what CMRC drops.

    Contractions such as `don't` are one word; nltk divides them.
    """
    found, wanted = (_segments(text) for text in (prediction, answer))
    return _f1(_longest_common_run(found, wanted), found, wanted)


def _f1(common: int, found: list[str], wanted: list[str]) -> float:
    if not found or not wanted:
        return float(found == wanted)
    return 2 * common / (len(found) + len(wanted))


def _kept(text: str) -> str:
    return text.lower().strip().translate(_DROPPED)


def _segments(text: str) -> list[str]:
    runs = _HAN.split(_kept(text))
    return [word for run in runs for word in _APART.sub(r" \1 ", run.strip()).split()]


def _longest_common_run(first: list[str], second: list[str]) -> int:
    lengths = [0] * (len(second) + 1)
    longest = 0
    for word in first:
        previous = 0
        for j, other in enumerate(second, 1):
            previous, lengths[j] = lengths[j], previous + 1 if word == other else 0
            longest = max(longest, lengths[j])
    return longest


SCORES = {"f1": f1, "exact": exact, "lcs_f1": lcs_f1, "cmrc_exact": cmrc_exact}
"""Of a prediction and a right answer, by the name of the metric that is their mean."""
