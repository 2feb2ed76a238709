"""Predictions of the span of a context that answers a question, or of no answer.

A long context is read in windows. The best span of all windows is the answer (Devlin et al., 2018, section
4.2); no answer is the first token as a span of its own (section 4.3).
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
from numpy import ndarray

from brimful.base.errors import BrimfulError
from brimful.base.types import Values
from brimful.data.ragged import Ragged
from brimful.tables.question_files import QuestionTable, read_questions
from brimful.tables.table import Table
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.prediction_form import PROBABILITY_DECIMALS, Outputs, PredictionForm, Row
from brimful.tasks.token_places import trim_spaces

LONGEST_ANSWER = 30
"""Most tokens of an answer, as in BERT's program for SQuAD; longer answers of a training table raise it."""
N_BEST = 20
"""Spans of a context that are kept; also first tokens of a window, and last tokens, that are combined."""


class CandidateAnswer(NamedTuple):
    """A candidate, and its probability among all candidates; no answer is the empty text at 0."""

    start: int
    text: str
    probability: float


class Scored(NamedTuple):
    """A span of the context, and the sum of the logits of its first and last token."""

    start: int
    text: str
    score: float


class Prediction(NamedTuple):
    """The best spans of a context, best first, and the score of no answer.

    A context without tokens has no spans.
    """

    spans: list[Scored]
    no_answer: float

    @property
    def margin(self) -> float:
        """The score of no answer minus the score of the best span; infinite without a span."""
        if not self.spans:
            return math.inf
        return self.no_answer - self.spans[0].score


@dataclass(frozen=True)
class Answers(PredictionForm):
    """A span of the context.

    Attributes:
        no_answer_threshold: the largest margin with which a span is still the prediction. None: every
            question has an answer, as in SQuAD 1.1 and CMRC 2018.
        max_answer_length: most tokens of an answer (a name of `transformers`).
    """

    no_answer_threshold: float | None = None
    max_answer_length: int = LONGEST_ANSWER
    name = "question-answering"
    problem_type = "question_answering"
    characters = True
    labels = ["start", "end"]  # noqa: RUF012
    read = staticmethod(read_questions)

    @classmethod
    def from_texts(cls, texts: list[str], second: list[str] | None) -> Table:
        """Return the table of questions, and the context of each."""
        if second is None:
            raise BrimfulError("each question needs its context: predict(questions, contexts)")
        return QuestionTable(Path("texts"), texts, second, None, ids=list(map(str, range(len(texts)))))

    @property
    def settings(self) -> Values:
        settings: Values = {}
        if self.no_answer_threshold is not None:
            settings["no_answer_threshold"] = self.no_answer_threshold
        if self.max_answer_length != LONGEST_ANSWER:
            settings["max_answer_length"] = self.max_answer_length
        return settings

    def with_settings(self, settings: Values) -> Self:
        threshold = settings.get("no_answer_threshold")
        if threshold is not None and not (type(threshold) in (int, float) and abs(threshold) < 1e30):
            raise BrimfulError("no_answer_threshold is not a number")
        longest = settings.get("max_answer_length", LONGEST_ANSWER)
        if not (type(longest) is int and 0 < longest < 2**31):
            raise BrimfulError("max_answer_length is not a number of tokens")
        task = copy(self)  # `replace` would drop a primary metric that was chosen
        object.__setattr__(task, "no_answer_threshold", threshold)
        object.__setattr__(task, "max_answer_length", longest)
        return task

    @property
    def facts(self) -> Values:
        return self.settings

    def answers(self, outputs: Outputs, data: Encoded) -> list[Prediction]:
        """Return the best spans for each question, from logits (tokens, 2) of each window."""
        assert isinstance(outputs, Ragged)
        examples, contexts = data.examples, data.table.second
        assert examples.characters is not None
        assert contexts is not None
        spans_of_row = defaultdict[int, dict[tuple[int, int], float]](dict)
        no_answer = np.full(len(data), np.inf)
        for example, row in enumerate(examples.text_of_example.tolist()):
            scores, spans = outputs[example].astype(np.float64), spans_of_row[row]
            # The least score of all windows, since an answer may be in any of them (section 4.3).
            no_answer[row] = min(no_answer[row], scores[0].sum())
            places = trim_spaces(examples.characters[example], contexts[row])
            for span, score in _list_window_spans(scores, places, self.max_answer_length):
                spans[span] = max(score, spans.get(span, -np.inf))
        predictions = []
        for row, context in enumerate(contexts):
            best = sorted(spans_of_row[row].items(), key=lambda item: (-item[1], item[0]))[:N_BEST]
            scored = [Scored(start, context[start:end], score) for (start, end), score in best]
            predictions.append(Prediction(scored, float(no_answer[row])))
        return predictions

    def candidates(self, prediction: Prediction) -> list[CandidateAnswer]:
        """Return the best candidates, of which the first is the answer."""
        scored = list(prediction.spans)
        if self.no_answer_threshold is not None or not scored:
            scored.append(Scored(0, "", prediction.no_answer - (self.no_answer_threshold or 0.0)))
        scored.sort(key=attrgetter("score"), reverse=True)
        scores = np.array([candidate.score for candidate in scored])
        weights = np.exp(scores - scores.max())  # the largest is 1: nothing overflows
        pairs = zip(scored, (weights / weights.sum()).tolist(), strict=True)
        return [CandidateAnswer(start, text, probability) for (start, text, _), probability in pairs]

    def text_of(self, prediction: Prediction) -> str:
        """Return the text of the answer, which is empty for no answer."""
        return self.candidates(prediction)[0].text

    def rows(self, answers: list[Prediction], data: Encoded) -> list[Row]:
        """Return `id`, `prediction`, its `start` and `probability`, `no_answer_margin` (None without any
        span), and the `n_best` candidates."""
        assert isinstance(data.table, QuestionTable)
        rows = []
        for name, prediction in zip(data.table.ids, answers, strict=True):
            best = self.candidates(prediction)
            row = {
                "id": name,
                "prediction": best[0].text,
                "start": best[0].start,
                "probability": round(best[0].probability, PROBABILITY_DECIMALS),
                "no_answer_margin": round(prediction.margin, 4) if prediction.spans else None,
                "n_best": [candidate._asdict() for candidate in best],
            }
            rows.append(row)
        return rows


def _list_window_spans(
    scores: ndarray, places: ndarray, longest: int
) -> Iterator[tuple[tuple[int, int], float]]:
    """Yield the characters and scores of the best spans of a window, from the logits (tokens, 2)."""
    context = np.flatnonzero(places[:, 0] < places[:, 1])  # neither a special token nor white space
    # The best first tokens and, by themselves, the best last tokens: (tokens, 2) -> (N_BEST, 2).
    order = np.argsort(-scores[context], axis=0, kind="stable")[:N_BEST]
    starts, ends = context[order].T.tolist()
    for start in starts:
        for end in ends:
            if start <= end < start + longest:
                yield (int(places[start, 0]), int(places[end, 1])), float(scores[start, 0] + scores[end, 1])
