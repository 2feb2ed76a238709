"""Question answering: the span of a context that answers a question, or none (SQuAD, CMRC 2018).

A long context is read in windows. The best span of all windows is the answer (Devlin et al., 2018, section
4.2); no answer is the first token as a span of its own (section 4.3).
"""

import math
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from tokenizers import Tokenizer
from torch import Tensor

from brimful.console import warn
from brimful.data.batch import PackedBatch
from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.errors import BrimfulError
from brimful.model.encoder import Encoder
from brimful.model.heads import SpanHead
from brimful.objectives.losses import count, require_no_temperature, span_cross_entropy_sum, squared_error_sum
from brimful.tables.labelled_spans import without_spaces
from brimful.tables.layouts import OWN_LAYOUT, FileLayout
from brimful.tables.question_files import NOWHERE, QuestionTable, read_questions
from brimful.tables.table import Table, Take, everything
from brimful.tasks.answers import cmrc_exact, exact, f1, lcs_f1
from brimful.tasks.encoded import Encoded, encode
from brimful.tasks.task import Metric, Outputs, Row, Task
from brimful.types import IGNORED, Imitation

LONGEST_ANSWER = 30
"""In tokens, as in BERT's own program for SQuAD."""
N_BEST = 20
SCORES = {"f1": f1, "exact": exact, "lcs_f1": lcs_f1, "cmrc_exact": cmrc_exact}
"""Of a prediction and a right answer, by the name of the metric that is their mean."""


class CandidateAnswer(NamedTuple):
    """A possible answer and its probability among all; no answer is the empty text at 0."""

    start: int
    text: str
    probability: float


class Scored(NamedTuple):
    """A span of the context, and the sum of the logits of its first and last token."""

    start: int
    text: str
    score: float


class Prediction(NamedTuple):
    """The best spans of a context, the first the best, and the score of no answer.

    There are no spans where the context has no tokens.
    """

    spans: list[Scored]
    no_answer: float

    @property
    def margin(self) -> float:
        """By how much no answer is ahead of the best span; infinite without one."""
        return self.no_answer - self.spans[0].score if self.spans else math.inf


@dataclass(frozen=True)
class QuestionAnswering(Task):
    """A span of the context; the loss is the mean cross-entropy of its first and of its last token.

    Attributes:
        no_answer_threshold: no answer is the prediction where its margin is above this. None: a question
            always has an answer, as in SQuAD 1.1 and CMRC 2018.
    """

    no_answer_threshold: float | None = None

    name = "question-answering"
    problem_type = "question_answering"
    metrics = (
        Metric("f1", "F1", percent=True),
        Metric("exact", "exact match", percent=True),
        Metric("lcs_f1", "F1 of CMRC 2018", percent=True),
        Metric("cmrc_exact", "exact match of CMRC 2018", percent=True),
    )
    sentence = "The answers to {texts} have an F1 of {primary}."
    labels = ["start", "end"]  # noqa: RUF012
    description = "the answer in a context"
    overlap = 128

    @classmethod
    def read(
        cls, path: Path | str, *, labelled: bool, layout: FileLayout = OWN_LAYOUT, take: Take = everything
    ) -> Table:
        layout.require_own_columns(cls.name)
        return read_questions(path, labelled=labelled, take=take)

    @classmethod
    def from_texts(cls, texts: list[str], second: list[str] | None) -> Table:
        """Questions, and the context of each."""
        if second is None:
            raise BrimfulError("each question needs its context: predict(questions, contexts)")
        return QuestionTable(Path("texts"), texts, second, None, ids=[str(row) for row in range(len(texts))])

    @classmethod
    def from_table(cls, table: Table) -> Self:
        if not any(answer.start != NOWHERE for answers in table.labels or [] for answer in answers):
            raise BrimfulError(f"{table.path} has no answers; there is nothing to learn")
        return cls(None if all(table.labels or []) else 0.0)

    @property
    def settings(self) -> dict[str, Any]:
        return {} if self.no_answer_threshold is None else {"no_answer_threshold": self.no_answer_threshold}

    def with_settings(self, settings: Mapping[str, Any]) -> Self:
        threshold = settings.get("no_answer_threshold")
        if threshold is not None and not (type(threshold) in (int, float) and abs(threshold) < 1e30):
            raise BrimfulError("no_answer_threshold is not a number")
        task = copy(self)
        object.__setattr__(task, "no_answer_threshold", threshold)
        return task

    def fitted(self, answers: list[Prediction], dev: Encoded) -> Self:
        best = self._best_threshold(answers, _golds(dev))
        return self.with_settings({"no_answer_threshold": best[0]}) if best else self

    @property
    def facts(self) -> dict[str, Any]:
        return self.settings

    def new_head(self, encoder: Encoder) -> SpanHead:
        return SpanHead(encoder)

    def encode(
        self, table: Table, tokenizer: Tokenizer, max_length: int, overlap: int | None, *, labelled: bool
    ) -> Encoded:
        """As `Task.encode`. The target `span` of an example is the first and the last token of the first
        answer that is in the context, or 0 and 0 (the first token) where the window does not hold it; none
        where no answer is in the context."""
        data = encode(table, tokenizer, max_length, overlap=overlap, characters=True)
        if labelled:
            data.examples.targets["span"] = self._spans(table, data.examples)
        return data

    def _spans(self, table: Table, examples: Examples) -> np.ndarray:
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
        return spans

    def losses(self, outputs: Tensor, batch: PackedBatch) -> dict[str, Tensor]:
        return {self.name: span_cross_entropy_sum(outputs, batch.targets["span"], batch)}

    def count(self, batch: PackedBatch) -> float:
        """The number of windows that have a target."""
        return count(batch.targets["span"][:, 0])

    def imitation(self, loss: Imitation, temperature: float) -> Callable[[Tensor, Tensor], Tensor]:
        """The squared error of the logits."""
        require_no_temperature(temperature, "the logits are the target")
        return lambda ours, theirs: squared_error_sum(ours.flatten(), theirs.flatten()) / 2

    def answers(self, outputs: Outputs, data: Encoded) -> list[Prediction]:
        """The best spans for each question."""
        assert isinstance(outputs, Ragged)
        examples = data.examples
        assert examples.characters is not None
        assert data.table.second is not None
        found: list[dict[tuple[int, int], float]] = [{} for _ in range(len(data))]
        nothing = np.full(len(data), np.inf)
        for example, row in enumerate(examples.text_of_example.tolist()):
            scores = outputs[example].astype(np.float64)
            nothing[row] = min(nothing[row], scores[0].sum())
            places = without_spaces(examples.characters[example], data.table.second[row])
            for span, score in _best_spans(scores, places):
                found[row][span] = max(score, found[row].get(span, -np.inf))
        return [
            Prediction(_best(spans, context), no_answer)
            for spans, no_answer, context in zip(found, nothing.tolist(), data.table.second, strict=True)
        ]

    def candidates(self, prediction: Prediction) -> list[CandidateAnswer]:
        """The best candidates; the first is the answer."""
        scored = list(prediction.spans)
        if self.no_answer_threshold is not None or not scored:
            scored.append(Scored(0, "", prediction.no_answer - (self.no_answer_threshold or 0.0)))
        scored.sort(key=lambda candidate: -candidate.score)
        scores = np.array([candidate.score for candidate in scored])
        weights = np.exp(scores - scores.max())
        each = zip(scored, (weights / weights.sum()).tolist(), strict=True)
        return [CandidateAnswer(start, text, probability) for (start, text, _), probability in each]

    def _text(self, prediction: Prediction) -> str:
        return self.candidates(prediction)[0].text

    def measure(self, answers: list[Prediction], data: Encoded) -> dict[str, float]:
        """Exact match and F1, as SQuAD and as CMRC 2018 define them (`SCORES`).

        Where some questions have no answer, also `exact` and `f1` of the two kinds of questions apart, as
        SQuAD 2.0 reports them. If the task predicts no answer at all, also the primary metric that the best
        threshold of these very rows would give, and that threshold: `best_f1` and `best_f1_threshold`.
        """
        golds = _golds(data)
        pairs = list(zip(map(self._text, answers), golds, strict=True))
        scores = {
            name: np.array([max(score(text, gold) for gold in row) for text, row in pairs])
            for name, score in SCORES.items()
        }
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
        score = SCORES[self.metrics[0].name]
        margins = np.array([prediction.margin for prediction in answers])
        margins = np.minimum(margins, margins[np.isfinite(margins)].max(initial=0.0) + 1)
        spans = [prediction.spans[0].text if prediction.spans else "" for prediction in answers]
        with_span = np.array([max(score(s, g) for g in gs) for s, gs in zip(spans, golds, strict=True)])
        order = np.argsort(margins, kind="stable")
        gains = np.where(answered, with_span, -1.0)[order]  # of a span, over predicting no answer
        totals = (~answered).sum() + np.concatenate([[0.0], np.cumsum(gains)])
        best = int(totals.argmax())  # this many have a span; the threshold is halfway to the next
        ranked = margins[order]
        edges = np.concatenate([ranked[:1] - 1, ranked, ranked[-1:] + 1])
        threshold = edges[best : best + 2].mean()
        return float(threshold), float(totals[best] / len(margins))

    def rows(self, answers: list[Prediction], data: Encoded) -> list[Row]:
        """`id`, `answer`, its `start` and `probability`, `no_answer_margin` (None without any span), and the
        `n_best` candidates."""
        assert isinstance(data.table, QuestionTable)
        rows = []
        for name, prediction in zip(data.table.ids, answers, strict=True):
            best = self.candidates(prediction)
            rows.append(
                {
                    "id": name,
                    "answer": best[0].text,
                    "start": best[0].start,
                    "probability": round(best[0].probability, 6),
                    "no_answer_margin": round(prediction.margin, 4) if prediction.spans else None,
                    "n_best": [candidate._asdict() for candidate in best],
                }
            )
        return rows

    def compared_rows(self, answers: list[Prediction], data: Encoded) -> list[Row]:
        """`id`, the texts of the right answers as `label`, and the predicted text as `prediction`."""
        assert isinstance(data.table, QuestionTable)
        assert data.table.labels is not None
        rows = zip(data.table.ids, data.table.labels, answers, strict=True)
        return [
            {"id": name, "label": [a.text for a in gold], "prediction": self._text(prediction)}
            for name, gold, prediction in rows
        ]


def _golds(data: Encoded) -> list[list[str]]:
    """The texts of the right answers to each question; the empty text alone where there is none."""
    assert data.table.labels is not None
    return [[answer.text for answer in answers] or [""] for answers in data.table.labels]


def _best_spans(scores: np.ndarray, places: np.ndarray) -> Iterator[tuple[tuple[int, int], float]]:
    """The characters and scores of the best spans of a window, from the logits (tokens, 2) of its tokens."""
    context = np.flatnonzero(places[:, 0] < places[:, 1])  # neither a special token nor white space
    starts, ends = (context[np.argsort(-scores[context, k], kind="stable")[:N_BEST]] for k in (0, 1))
    for start in starts.tolist():
        for end in ends.tolist():
            if start <= end < start + LONGEST_ANSWER:
                yield (int(places[start, 0]), int(places[end, 1])), float(scores[start, 0] + scores[end, 1])


def _best(found: Mapping[tuple[int, int], float], context: str) -> list[Scored]:
    """The best spans, in order."""
    spans = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:N_BEST]
    return [Scored(start, context[start:end], score) for (start, end), score in spans]


TASK = QuestionAnswering
