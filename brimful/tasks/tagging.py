"""The best sequence of tags of the tokens of a text, among those that their scheme allows."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from brimful.base.compiled import compiled
from brimful.tables.schemes import CONTINUED, OUTSIDE, Tag, read_tags


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
    def _states(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """What may follow what. A state is a tag, or a tag whose word goes on (`CONTINUED`), which decides
        what may follow as the tag does.

        Returns:
            tags: int64 (states,), the tag of each.
            begins: bool (states,), whether a text may begin with it, and it may follow any state that ends.
            ends: bool (states,), whether a text may end with it, or a state that begins may follow it.
            follows: int64 (states, k), the other states that it may follow; -1 behind them.
        """
        given: dict[str, set[str]] = {label: set() for label in self.labels}
        for tag in self.tags:
            if tag.label:
                given[tag.label].add(tag.mark)
        used = set[str]().union(*given.values())
        marked = given.keys() - self.unmarked
        lacking = {label for label, marks in given.items() if "I" in marks and "B" not in marks}
        # Where one label has I and no B, the scheme is IO, IOB1 or IOE, and all spans may begin with I. A
        # label without marks says nothing about the others.
        is_loose = bool(lacking & marked)
        # In IOE1, E stands only between spans that touch.
        is_ioe1 = "B" not in used and any(given[label] == {"I"} for label in marked)
        begins, ends, before = [], [], list[list[int]]()
        for mark, label in self.tags:
            marks = given.get(label, set())
            starts = closes = mark in ("B", "S", OUTSIDE)
            if mark == "B":
                closes = "S" not in used or not marks & {"I", "E"}
            elif mark == "I":
                starts, closes = is_loose or label in lacking, "E" not in marks or is_ioe1
            elif mark == "E":
                starts, closes = "B" not in used or not marks & {"B", "I"}, True
            begins.append(starts)
            ends.append(closes)
            within: list[int] = []
            if mark in ("I", "E"):
                spans = [(label, "B"), (label, "I")]
                within = [i for i, tag in enumerate(self.tags) if (tag.label, tag.mark) in spans]
            before.append(within)
        count = len(self.tags)
        tags = list(range(count))
        going_on = [i for i, tag in enumerate(self.tags) if tag.mark == CONTINUED]
        if going_on:  # state count + i is tag i whose word goes on
            before = [[*each, *(count + i for i in each)] for each in before]
            before += [[i, count + i] for i in range(count)]
            tags += going_on[:1] * count
            begins += [tag.mark == OUTSIDE for tag in self.tags]
            ends *= 2
        width = max(map(len, before), default=0)
        follows = [each + [-1] * (width - len(each)) for each in before]
        table = np.array(follows, dtype=np.int64).reshape(len(tags), width)
        return np.array(tags), np.array(begins), np.array(ends), table


@compiled
def _best_path(scores: np.ndarray, begins: np.ndarray, ends: np.ndarray, follows: np.ndarray) -> np.ndarray:
    """The states, int64 (n,), with the highest sum of scores (n, states) on an allowed path."""
    n, count = scores.shape
    before = np.zeros((n, count), dtype=np.int64)
    best = np.where(begins, scores[0], -np.inf)
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
