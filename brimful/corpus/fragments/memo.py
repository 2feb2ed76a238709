"""A bounded memory of the answers that an authority, such as a tokenizer, gives for fragments of texts.

When the memory is full, new fragments are asked about each time they come, until the next call starts with an
empty memory. The results never depend on what is remembered.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from brimful.base.compiled import compiled
from brimful.corpus.fragments.find import LONGEST_FRAGMENT, PIECE, Rules, add, empty_table, find
from brimful.corpus.text.characters import code_points

# The most fragments and characters that are remembered, beside the pieces.
FRAGMENTS = 1 << 19
CHARACTERS = 1 << 22


class Values(NamedTuple):
    """Entry e has the token ids `tokens[ends[e]:ends[e + 1]]`; `places` are their first characters in it."""

    tokens: np.ndarray
    places: np.ndarray
    ends: np.ndarray


@dataclass
class _Found:
    """Texts, cut.

    Attributes:
        begins: where each fragment begins, int32 (fragments,).
        entries: its entry, or -1 - n for number n of `fresh`, int32 (fragments,).
        counts: fragments of each text, int64 (texts,).
        fresh: begin, end and kind of the fragments that do not fit into the memory, int64 (fresh, 3).
    """

    begins: np.ndarray
    entries: np.ndarray
    counts: np.ndarray
    fresh: np.ndarray


class Memo:
    """Remembers what an authority answers for fragments.

    Args:
        rules: where texts are cut into fragments.
        ask: the authority: texts and their kinds -> values.
        pieces: entries for runs of PLAIN_HAN, which are cut into these by longest match.
    """

    def __init__(
        self, rules: Rules, ask: Callable[[list[str], list[int]], Values], pieces: Sequence[str] = ()
    ) -> None:
        self._rules = rules
        self._ask = ask
        self._pieces = pieces
        self._start()

    def _start(self) -> None:
        fragments = FRAGMENTS + len(self._pieces)
        characters = CHARACTERS + sum(map(len, self._pieces))
        self._table = empty_table(fragments, characters)
        self._values = Values(
            np.empty(characters, np.uint32), np.empty(characters, np.int32), np.zeros(fragments + 1, np.int64)
        )
        self._count = 0
        for piece in self._pieces:
            self._count = add(code_points(piece), PIECE, self._table, self._count)
        if self._pieces:
            self._store(0, self._ask(list(self._pieces), [PIECE] * len(self._pieces)))

    def __call__(
        self, codes: np.ndarray, begins: np.ndarray, ends: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The values of the texts `codes[begins[i]:ends[i]]`.

        Returns:
            tokens uint32 (T,); their places as indices of `codes`, int64 (T,); tokens of each text, int64
            (texts,).
        """
        table = self._table
        if self._count == len(table.kinds) or table.ends[self._count] + LONGEST_FRAGMENT > len(table.keys):
            self._start()
        known = self._count
        fragments = self._find(codes, begins, ends)
        fresh = self._learn(known, codes, fragments)
        return _spell(fragments.begins, fragments.entries, fragments.counts, self._values, fresh)

    def _find(self, codes: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> _Found:
        room = int((ends - begins).sum())
        fragment_begins, entries = np.empty(room, np.int32), np.empty(room, np.int32)
        counts, fresh = np.zeros(len(begins), np.int64), np.empty((room, 3), np.int64)
        total, others, self._count = find(
            codes,
            begins,
            ends,
            self._rules,
            self._table,
            self._count,
            fragment_begins,
            entries,
            counts,
            fresh,
        )
        return _Found(fragment_begins[:total], entries[:total], counts, fresh[:others])

    def _learn(self, known: int, codes: np.ndarray, fragments: _Found) -> Values:
        """Ask for new values; store those of the entries from `known` on, return those of fresh ones."""
        ends = self._table.ends[known : self._count + 1]
        keys = _text(self._table.keys[ends[0] : ends[-1]])
        texts = [keys[begin:end] for begin, end in pairwise((ends - ends[0]).tolist())]
        texts += [_text(codes[begin:end]) for begin, end, _ in fragments.fresh.tolist()]
        kinds = self._table.kinds[known : self._count].tolist() + fragments.fresh[:, 2].tolist()
        values = self._ask(texts, kinds) if texts else _nothing()
        new = self._count - known
        split = values.ends[new]
        self._store(known, Values(values.tokens[:split], values.places[:split], values.ends[: new + 1]))
        return Values(values.tokens[split:], values.places[split:], values.ends[new:] - split)

    def _store(self, entry: int, values: Values) -> None:
        begin = int(self._values.ends[entry])
        end = begin + len(values.tokens)
        if end > len(self._values.tokens):
            tokens = np.concatenate([self._values.tokens, np.empty(end, np.uint32)])
            places = np.concatenate([self._values.places, np.empty(end, np.int32)])
            self._values = Values(tokens, places, self._values.ends)
        self._values.tokens[begin:end], self._values.places[begin:end] = values.tokens, values.places
        self._values.ends[entry : entry + len(values.ends)] = begin + values.ends


def _nothing() -> Values:
    return Values(np.empty(0, np.uint32), np.empty(0, np.int32), np.zeros(1, np.int64))


def _text(codes: np.ndarray) -> str:
    return codes.tobytes().decode("utf-32-le", "surrogatepass")


@compiled
def _spell(
    fragment_begins: np.ndarray, entries: np.ndarray, counts: np.ndarray, known: Values, fresh: Values
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Put the tokens of fragments together; see `Memo.__call__`."""
    total = 0
    for entry in entries:
        values = known if entry >= 0 else fresh
        number = entry if entry >= 0 else -1 - entry
        total += values.ends[number + 1] - values.ends[number]
    tokens, begins = np.empty(total, np.uint32), np.empty(total, np.int64)
    lengths = np.zeros(len(counts), np.int64)
    fragment = at = 0
    for text in range(len(counts)):
        first_of_text = at
        for _ in range(counts[text]):
            entry = entries[fragment]
            values = known if entry >= 0 else fresh
            number = entry if entry >= 0 else -1 - entry
            for index in range(values.ends[number], values.ends[number + 1]):
                tokens[at] = values.tokens[index]
                begins[at] = fragment_begins[fragment] + values.places[index]
                at += 1
            fragment += 1
        lengths[text] = at - first_of_text
    return tokens, begins, lengths
