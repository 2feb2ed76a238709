"""The best sequence of tags of the tokens of a text, among those that their scheme allows."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from brimful.base.compiled import compiled
from brimful.tables.labelled_spans import OUTSIDE
from brimful.tables.schemes import CONTINUED, Tag, read_tags


class _States(NamedTuple):
    """What may follow what. A state is a tag, or a tag whose word goes on (`CONTINUED`).

    Attributes:
        tags: int64 (states,), the tag of each.
        first: bool (states,), whether a text may begin with it.
        begins: bool (states,), whether it may follow every state that ends.
        ends: bool (states,), whether a text may end with it, or a state that begins may follow it.
        follows: int64 (states, k), the other states that it may follow; -1 behind them.
    """

    tags: np.ndarray
    first: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    follows: np.ndarray


@dataclass(frozen=True)
class Tagging:
    """The tags of a model, in the order of its outputs."""

    tags: tuple[Tag, ...]
    unmarked: frozenset[str] = frozenset()
    """Labels that have no marks."""

    @classmethod
    def of(cls, names: Sequence[str]) -> "Tagging":
        """The tags of these names.

        Raises:
            BrimfulError: they describe no spans.
        """
        known = read_tags(names)
        unmarked = frozenset(name for name, tag in known.items() if tag.label == name)
        return cls(tuple(known[name] for name in names), unmarked)

    @property
    def labels(self) -> list[str]:
        """The labels of spans, in the order of their first tags."""
        return list(dict.fromkeys(tag.label for tag in self.tags if tag.label))

    def best(self, scores: np.ndarray) -> np.ndarray:
        """The most probable sequence of tags that the scheme allows (Viterbi, 1967), int64 (n,).

        A tag that the model lacks never occurs. So in BIO, every I-X follows B-X or I-X; and a label without
        I-X has spans of one token.

        Args:
            scores: float64 (n, tags), log-probabilities; n >= 1.
        """
        tags, *rules = self._states
        return tags[_best_path(scores[:, tags], *rules)]

    @cached_property
    def _loose(self) -> set[str]:
        """The labels whose spans may begin with I. Where one has I and no B, the scheme is IO, IOB1 or IOE; a
        label without marks says nothing about the others."""
        with_i = {label for label, marks in self._given.items() if "I" in marks}
        lacking = {label for label in with_i if "B" not in self._given[label]}
        return with_i if lacking - self.unmarked else lacking

    @cached_property
    def _given(self) -> dict[str, set[str]]:
        """The marks that each label has."""
        given: dict[str, set[str]] = {label: set() for label in self.labels}
        for tag in self.tags:
            if tag.label:
                given[tag.label].add(tag.mark)
        return given

    @property
    def _used(self) -> set[str]:
        return set[str]().union(*self._given.values())

    @property
    def _ioe1(self) -> bool:
        """Whether E stands only between spans that touch."""
        marked = self._given.keys() - self.unmarked
        return "B" not in self._used and any(self._given[label] == {"I"} for label in marked)

    @cached_property
    def _states(self) -> _States:
        given, used = self._given, self._used
        first, ends, before = [], [], list[list[int]]()
        of_label = {
            label: [i for i, tag in enumerate(self.tags) if tag.label == label and tag.mark in "BI"]
            for label in given
        }
        for mark, label in self.tags:
            marks = given.get(label, set())
            match mark:
                case "B":
                    starts, closed = True, "S" not in used or not marks & {"I", "E"}
                case "I":
                    starts, closed = label in self._loose, "E" not in marks or self._ioe1
                case "E":
                    starts, closed = "B" not in used or not marks & {"B", "I"}, True
                case _:
                    starts = closed = mark in ("S", OUTSIDE)
            first.append(starts)
            ends.append(closed)
            before.append(of_label[label] if mark in ("I", "E") else [])
        tags, begins = list(range(len(self.tags))), list(first)
        goes_on = next((i for i, tag in enumerate(self.tags) if tag.mark == CONTINUED), None)
        if goes_on is not None:
            count = len(tags)
            before = [[*each, *(count + i for i in each)] for each in before]
            before += [[i, count + i] for i in range(count)]
            tags += [goes_on] * count
            first += [tag.mark == OUTSIDE for tag in self.tags]
            begins += [False] * count
            ends *= 2
        width = max(map(len, before), default=0)
        follows = [each + [-1] * (width - len(each)) for each in before]
        return _States(
            np.array(tags),
            np.array(first),
            np.array(begins),
            np.array(ends),
            np.array(follows, dtype=np.int64).reshape(len(tags), width),
        )


@compiled
def _best_path(
    scores: np.ndarray, first: np.ndarray, begins: np.ndarray, ends: np.ndarray, follows: np.ndarray
) -> np.ndarray:
    """The states, int64 (n,), with the highest sum of scores (n, states) on an allowed path."""
    n, count = scores.shape
    before = np.zeros((n, count), dtype=np.int64)
    best = np.where(first, scores[0], -np.inf)
    following = np.empty(count)
    for position in range(1, n):
        top = _best_end(best, ends)
        for state in range(count):
            previous = top if begins[state] else -1
            for other in follows[state]:
                if other >= 0 and (previous < 0 or best[other] > best[previous]):
                    previous = other
            before[position, state] = previous
            following[state] = best[previous] + scores[position, state] if previous >= 0 else -np.inf
        best[:] = following
    states = np.empty(n, dtype=np.int64)
    states[n - 1] = _best_end(best, ends)
    for position in range(n - 1, 0, -1):
        states[position - 1] = before[position, states[position]]
    return states


@compiled
def _best_end(best: np.ndarray, ends: np.ndarray) -> int:
    top = -1
    for state in range(len(best)):
        if ends[state] and (top < 0 or best[state] > best[top]):
            top = state
    return top
