"""Predictions of labelled spans of each text, such as the names in it.

A text of any length is read in windows. Each token takes its scores from the window in which its distance
from a cut is largest. The best sequence of tags for the whole text gives the spans.

Tags are BIO (Ramshaw and Marcus, 1995; the variant in which every span begins with B-): B-X for the first
token of a span of label X, I-X for its other tokens, O for tokens outside of spans.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy import ndarray
from scipy.special import log_softmax

from brimful.base.compiled import compiled
from brimful.base.types import Values
from brimful.data.ragged import Ragged
from brimful.tables.schemes import CONTINUED, OUTSIDE, Tag, read_tags
from brimful.tables.table import LabelledSpan
from brimful.tables.tagged_files import TaggedTable, read_tagged
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.prediction_form import PROBABILITY_DECIMALS, Outputs, PredictionForm, Row
from brimful.tasks.token_places import find_word_units, merge_windows, trim_spaces


@dataclass(frozen=True)
class Tagging:
    """The tags of a model, in the order of its outputs."""

    tags: tuple[Tag, ...]
    unmarked: frozenset[str] = frozenset()
    """Labels whose tags have no marks."""

    @classmethod
    def of(cls, names: Sequence[str]) -> Self:
        """Read tags from their names.

        Raises:
            BrimfulError: the names describe no spans.
        """
        tag_of_name = read_tags(names)
        unmarked = frozenset(name for name, tag in tag_of_name.items() if tag.label == name)
        return cls(tuple(tag_of_name[name] for name in names), unmarked)

    @property
    def labels(self) -> list[str]:
        """The labels of spans, in the order of their first tags."""
        return list(dict.fromkeys(tag.label for tag in self.tags if tag.label))

    def best(self, scores: ndarray) -> ndarray:
        """Return the most probable sequence of tags that the scheme allows (Viterbi, 1967), int64 (n,).

        In BIO, every I-X follows B-X or I-X. If the model lacks the tag I-X, all spans of X have one token.

        Args:
            scores: float64 (n, tags), log-probabilities; n >= 1.
        """
        tags, *rules = self._states
        return tags[_best_path(scores[:, tags], *rules)]

    @cached_property
    def _states(self) -> tuple[ndarray, ndarray, ndarray, ndarray]:
        """The states of a text's tokens, and the pairs of states that may follow each other.

        A state is a tag, or a tag whose word goes on (`CONTINUED`). The same states may follow both.

        Returns:
            tags: int64 (states,), the tag of each state.
            begins: bool (states,), whether a text may begin with the state; it may then follow all that end.
            ends: bool (states,), whether a text may end with the state; all that begin may then follow it.
            follows: int64 (states, k), other states that the state may follow, then -1.
        """
        marks_of: dict[str, set[str]] = {label: set() for label in self.labels}
        for mark, label in self.tags:
            if label:
                marks_of[label].add(mark)
        all_marks = set[str]().union(*marks_of.values())
        # If a label has I and no B, the scheme is IO, IOB1 or IOE, and all spans may begin with I. Labels
        # without marks do not show the scheme. In IOE1, E stands only between spans that touch.
        lacks_b, is_loose, has_bare_i = set[str](), False, False
        for label, marks in marks_of.items():
            if "I" in marks and "B" not in marks:
                lacks_b.add(label)
                is_loose |= label not in self.unmarked
                has_bare_i |= label not in self.unmarked and marks == {"I"}
        is_ioe1 = "B" not in all_marks and has_bare_i
        count = len(self.tags)
        begins, ends = np.zeros(count, bool), np.zeros(count, bool)
        follows = np.zeros((count, count), bool)
        for state, (mark, label) in enumerate(self.tags):
            marks = marks_of.get(label, set())
            if mark == "B":
                begins[state] = True
                ends[state] = "S" not in all_marks or not marks & {"I", "E"}
            elif mark == "I":
                begins[state] = is_loose or label in lacks_b
                ends[state] = "E" not in marks or is_ioe1
            elif mark == "E":
                begins[state] = "B" not in all_marks or not marks & {"B", "I"}
                ends[state] = True
            else:
                begins[state] = ends[state] = mark in ("S", OUTSIDE)
            if mark in ("I", "E"):
                follows[state] = [tag.label == label and tag.mark in ("B", "I") for tag in self.tags]
        tags = np.arange(count)
        continued = [state for state, tag in enumerate(self.tags) if tag.mark == CONTINUED]
        if continued:
            # State count + i is tag i whose word goes on: it follows tag i and itself, and ends where i does.
            goes_on = np.eye(count, dtype=bool)
            follows = np.block([[follows, follows], [goes_on, goes_on]])
            tags = np.append(tags, np.full(count, continued[0]))
            begins = np.append(begins, [tag.mark == OUTSIDE for tag in self.tags])
            ends = np.append(ends, ends)
        # Most states follow few others. A table of those is searched at each token, not all states.
        order = np.argsort(~follows, axis=1, kind="stable")[:, : follows.sum(1).max(initial=0)]
        return tags, begins, ends, np.where(np.take_along_axis(follows, order, 1), order, -1)


@compiled
def _best_path(scores: ndarray, begins: ndarray, ends: ndarray, follows: ndarray) -> ndarray:
    """The states, int64 (n,), with the highest sum of scores (n, states) on an allowed path."""
    n, count = scores.shape
    before = np.zeros((n, count), dtype=np.int64)
    best = np.where(begins, scores[0], -np.inf)
    following = np.empty(count)
    for position in range(1, n):
        top = _best_end(best, ends)
        for state in range(count):
            previous = -1  # none yet
            if begins[state]:
                previous = top
            for other in follows[state]:
                if other >= 0 and (previous < 0 or best[other] > best[previous]):
                    previous = other
            before[position, state] = previous
            following[state] = -np.inf
            if previous >= 0:
                following[state] = best[previous] + scores[position, state]
        best[:] = following
    states = np.empty(n, dtype=np.int64)
    states[n - 1] = _best_end(best, ends)
    for position in range(n - 1, 0, -1):
        states[position - 1] = before[position, states[position]]
    return states


@compiled
def _best_end(best: ndarray, ends: ndarray) -> int:
    top = -1
    for state in range(len(best)):
        if ends[state] and (top < 0 or best[state] > best[top]):
            top = state
    return top


class Found(NamedTuple):
    """A predicted span, and the lowest probability among the tags of its tokens."""

    span: LabelledSpan
    probability: float


@dataclass(frozen=True)
class Spans(PredictionForm):
    """Spans with labels, from tags of tokens. Models of other tools keep their own tags (`schemes`)."""

    labels: list[str]
    name = "token-classification"
    problem_type = "token_classification"
    characters = True
    read = staticmethod(read_tagged)

    @classmethod
    def from_labels(cls, labels: list[str]) -> Self:
        names = list_tag_names(Tagging.of(labels).labels)
        return cls(names if sorted(labels) == sorted(names) else labels)

    @cached_property
    def tagging(self) -> Tagging:
        """The meaning of the tags, and which may follow which."""
        return Tagging.of(self.labels)

    @property
    def kinds(self) -> list[str]:
        """The labels of spans."""
        return self.tagging.labels

    @property
    def facts(self) -> Values:
        return {"labels": self.kinds}

    def answers(self, outputs: Outputs, data: Encoded) -> list[list[Found]]:
        """Return the spans of each text, in order."""
        assert isinstance(outputs, Ragged)
        words = data.table.words if isinstance(data.table, TaggedTable) else [[]] * len(data)
        places, scores = merge_windows(outputs, data.examples)
        return list(map(self._decode, data.table.texts, words, places, scores))

    def _decode(
        self, text: str, words: list[tuple[int, int]], places: ndarray, scores: ndarray
    ) -> list[Found]:
        """Return the spans of one text, from the characters (n, 2) and scores (n, tags) of its tokens."""
        places = trim_spaces(places, text)
        is_filled = places[:, 0] < places[:, 1]
        places, scores = places[is_filled], scores[is_filled]
        if words:
            places, tokens = find_word_units(words, places)
            scores = scores[tokens]
        if not len(places):
            return []
        logs = log_softmax(scores.astype(np.float64), -1)
        tags = self.tagging.best(logs)
        probabilities = np.exp(np.take_along_axis(logs, tags[:, None], -1)[:, 0])  # (n,)
        units = zip(tags.tolist(), places.tolist(), probabilities.tolist(), strict=True)
        spans: list[Found] = []
        inside = is_open = False  # as in `schemes.spans_of`
        for tag, (start, end), probability in units:
            if spans:  # several tokens can be parts of one character, as in byte-level BPE
                start = max(start, spans[-1].span.end)
            if start == end:
                continue
            mark, label = self.tagging.tags[tag]
            if mark != CONTINUED:
                goes_on = is_open and mark not in "BS" and spans[-1].span.label == label
                inside = mark != OUTSIDE
                is_open = inside and mark not in "ES"
                if inside and not goes_on:
                    spans.append(Found(LabelledSpan(start, end, label), probability))
                    continue
            if inside:
                span, lowest = spans[-1]
                spans[-1] = Found(span._replace(end=end), min(lowest, probability))
        return spans

    def rows(self, answers: list[list[Found]], data: Encoded) -> list[Row]:
        """Return `prediction`: for each span its start and end in characters, label, text and probability.

        Rows of CoNLL columns begin with the `text` that the words were joined to.
        """
        shows_text = isinstance(data.table, TaggedTable) and any(data.table.words)
        rows = []
        for spans, text in zip(answers, data.table.texts, strict=True):
            prediction = []
            for (start, end, label), probability in spans:
                place = {"start": start, "end": end, "label": label, "text": text[start:end]}
                prediction.append(place | {"probability": round(probability, PROBABILITY_DECIMALS)})
            row: Row = {"prediction": prediction}
            if shows_text:
                row = {"text": text} | row
            rows.append(row)
        return rows


def list_tag_names(labels: Sequence[str]) -> list[str]:
    """Return O, then B-X and I-X of each label. Tag 2k + 1 begins a span of label k, 2k + 2 continues it."""
    names = [OUTSIDE]
    for label in labels:
        names += [f"B-{label}", f"I-{label}"]
    return names
