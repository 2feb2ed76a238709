"""A bounded table from text segments to their tokens, and the compiled loops that cut texts and look them up.

Words repeat, so most segments of a text have been tokenized before. A segment is compared character by
character, never by its hash alone. When the table is full, new segments are tokenized each time they come,
and then the table starts afresh: what comes out never depends on what is remembered.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from brimful.compiled import compiled
from brimful.corpus.code_points import code_points
from brimful.corpus.tokenization.cuts import PLAIN_HAN, SEPARATOR

LONGEST_SEGMENT = 32
SEGMENTS = 1 << 19
CHARACTERS = 1 << 22

# What a segment is: text inside a document, the beginning of one, an entry of the vocabulary.
INSIDE, FIRST, PIECE = range(3)
_SEED = np.uint64(0x9E3779B97F4A7C15)
_FACTOR = np.uint64(0xFF51AFD7ED558CCD)
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


class Rules(NamedTuple):
    """How to cut: see `cuts.Cuts`. `longest_piece`: characters of the longest PIECE entry."""

    kinds: np.ndarray
    matrix: np.ndarray
    positional: bool
    longest_run: int
    longest_piece: int


class Table(NamedTuple):
    """Entry e is a segment of kind `kinds[e]` that reads `keys[ends[e]:ends[e + 1]]`.

    A slot holds the upper half of a hash, and the entry's number + 1 in its lower half; 0 is an empty slot.
    """

    slots: np.ndarray
    keys: np.ndarray
    ends: np.ndarray
    kinds: np.ndarray


class Values(NamedTuple):
    """Entry e has the token ids `tokens[ends[e]:ends[e + 1]]`; `places` are their first characters in it."""

    tokens: np.ndarray
    places: np.ndarray
    ends: np.ndarray


@dataclass
class _Segments:
    """Texts, cut.

    Attributes:
        begins: where each segment begins, int32 (segments,).
        entries: its entry, or -1 - n for number n of `fresh`, int32 (segments,).
        counts: segments of each text, int64 (texts,).
        fresh: begin, end and kind of the segments that the memo does not take, int64 (fresh, 3).
    """

    begins: np.ndarray
    entries: np.ndarray
    counts: np.ndarray
    fresh: np.ndarray


class Memo:
    """What an authority says of segments, remembered.

    Args:
        rules: where texts are cut into segments.
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
        # Memory is taken only as it is written.
        self._table = Table(
            np.zeros(2 * SEGMENTS, np.uint64),
            np.empty(CHARACTERS, np.uint32),
            np.zeros(SEGMENTS + 1, np.int32),
            np.empty(SEGMENTS, np.uint8),
        )
        self._values = Values(
            np.empty(CHARACTERS, np.uint32), np.empty(CHARACTERS, np.int32), np.zeros(SEGMENTS + 1, np.int64)
        )
        self._count = 0
        for piece in self._pieces:
            self._count = _add(code_points(piece), PIECE, self._table, self._count)
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
        if self._count == SEGMENTS or self._table.ends[self._count] + LONGEST_SEGMENT > CHARACTERS:
            self._start()
        known = self._count
        segments = self._find(codes, begins, ends)
        fresh = self._learn(known, codes, segments)
        return _spell(segments.begins, segments.entries, segments.counts, self._values, fresh)

    def _find(self, codes: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> _Segments:
        room = int((ends - begins).sum())
        segment_begins, entries = np.empty(room, np.int32), np.empty(room, np.int32)
        counts, fresh = np.zeros(len(begins), np.int64), np.empty((room, 3), np.int64)
        total, others, self._count = _find(
            codes, begins, ends, self._rules, self._table, self._count, segment_begins, entries, counts, fresh
        )
        return _Segments(segment_begins[:total], entries[:total], counts, fresh[:others])

    def _learn(self, known: int, codes: np.ndarray, segments: _Segments) -> Values:
        """Ask for the values of the entries from `known` on and store them; those of the fresh segments."""
        ends = self._table.ends[known : self._count + 1]
        keys = _text(self._table.keys[ends[0] : ends[-1]])
        texts = [keys[begin:end] for begin, end in pairwise((ends - ends[0]).tolist())]
        texts += [_text(codes[begin:end]) for begin, end, _ in segments.fresh.tolist()]
        kinds = self._table.kinds[known : self._count].tolist() + segments.fresh[:, 2].tolist()
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
def _extend(state: np.uint64, code: np.uint32) -> np.uint64:
    state = (state ^ np.uint64(code)) * _FACTOR
    return state ^ (state >> _HALF)


@compiled
def _lookup(codes: np.ndarray, begin: int, end: int, state: np.uint64, kind: int, table: Table) -> int:
    """The entry of the segment `codes[begin:end]`, or -1."""
    length = end - begin
    mask = np.uint64(len(table.slots) - 1)
    slot = state & mask
    while table.slots[slot] != 0:
        held = table.slots[slot]
        if held >> _HALF == state >> _HALF:
            entry = np.int64(held & _LOW) - 1
            first = table.ends[entry]
            if table.ends[entry + 1] - first == length and table.kinds[entry] == kind:
                same = 0
                while same < length and table.keys[first + same] == codes[begin + same]:
                    same += 1
                if same == length:
                    return int(entry)
        slot = (slot + np.uint64(1)) & mask
    return -1


@compiled
def _insert(
    codes: np.ndarray, begin: int, end: int, state: np.uint64, kind: int, table: Table, entry: int
) -> int:
    """Make the segment `codes[begin:end]` entry number `entry`; returns the number of entries."""
    mask = np.uint64(len(table.slots) - 1)
    slot = state & mask
    while table.slots[slot] != 0:
        slot = (slot + np.uint64(1)) & mask
    table.slots[slot] = (state >> _HALF << _HALF) | np.uint64(entry + 1)
    first = table.ends[entry]
    for index in range(end - begin):
        table.keys[first + index] = codes[begin + index]
    table.ends[entry + 1] = first + end - begin
    table.kinds[entry] = kind
    return entry + 1


@compiled
def _add(codes: np.ndarray, kind: int, table: Table, entry: int) -> int:
    state = _SEED + np.uint64(kind)
    for code in codes:
        state = _extend(state, code)
    return _insert(codes, 0, len(codes), state, kind, table, entry)


@compiled
def _match_pieces(
    codes: np.ndarray, begin: int, end: int, rules: Rules, table: Table,
    segment_begins: np.ndarray, entries: np.ndarray, total: int,
) -> int:  # fmt: skip
    """WordPiece's greedy longest match; returns the new `total`, or -1 where some character is no piece."""
    states = np.empty(rules.longest_piece + 1, np.uint64)
    position = begin
    while position < end:
        run_end = min(end, begin + ((position - begin) // rules.longest_run + 1) * rules.longest_run)
        longest = min(rules.longest_piece, run_end - position)
        states[0] = _SEED + np.uint64(PIECE)
        for length in range(longest):
            states[length + 1] = _extend(states[length], codes[position + length])
        entry = -1
        length = longest
        while length > 0:
            entry = _lookup(codes, position, position + length, states[length], PIECE, table)
            if entry >= 0:
                break
            length -= 1
        if entry < 0:
            return -1
        segment_begins[total], entries[total] = position, entry
        total += 1
        position += length
    return total


@compiled
def _find(
    codes: np.ndarray, begins: np.ndarray, ends: np.ndarray, rules: Rules, table: Table, count: int,
    segment_begins: np.ndarray, entries: np.ndarray, counts: np.ndarray, fresh: np.ndarray,
) -> tuple[int, int, int]:  # fmt: skip
    total = others = 0
    for text in range(len(begins)):
        first_of_text = total
        position, stop = begins[text], ends[text]
        kind = FIRST if rules.positional else INSIDE
        while position < stop:
            before = rules.kinds[codes[position]]
            if before == SEPARATOR:
                position += 1
                continue
            begin = position
            state = _extend(_SEED + np.uint64(kind), codes[position])
            plain = before == PLAIN_HAN
            position += 1
            while position < stop:
                after = rules.kinds[codes[position]]
                if rules.matrix[before, after]:
                    break
                plain &= after == PLAIN_HAN
                state = _extend(state, codes[position])
                before = after
                position += 1
            if plain and rules.longest_run > 0:
                matched = _match_pieces(codes, begin, position, rules, table, segment_begins, entries, total)
                if matched >= 0:
                    total = matched
                    continue
            entry = -1
            if position - begin <= LONGEST_SEGMENT:
                entry = _lookup(codes, begin, position, state, kind, table)
                if (
                    entry < 0
                    and count < len(table.kinds)
                    and table.ends[count] + LONGEST_SEGMENT <= len(table.keys)
                ):
                    entry = count
                    count = _insert(codes, begin, position, state, kind, table, count)
            if entry < 0:
                fresh[others, 0], fresh[others, 1], fresh[others, 2] = begin, position, kind
                others += 1
                entry = -others
            segment_begins[total], entries[total] = begin, entry
            total += 1
            kind = INSIDE
        counts[text] = total - first_of_text
    return total, others, count


@compiled
def _spell(
    segment_begins: np.ndarray, entries: np.ndarray, counts: np.ndarray, known: Values, fresh: Values
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Put the tokens of segments together; see `Memo.__call__`."""
    total = 0
    for entry in entries:
        values = known if entry >= 0 else fresh
        number = entry if entry >= 0 else -1 - entry
        total += values.ends[number + 1] - values.ends[number]
    tokens, begins = np.empty(total, np.uint32), np.empty(total, np.int64)
    lengths = np.zeros(len(counts), np.int64)
    segment = at = 0
    for text in range(len(counts)):
        first_of_text = at
        for _ in range(counts[text]):
            entry = entries[segment]
            values = known if entry >= 0 else fresh
            number = entry if entry >= 0 else -1 - entry
            for index in range(values.ends[number], values.ends[number + 1]):
                tokens[at] = values.tokens[index]
                begins[at] = segment_begins[segment] + values.places[index]
                at += 1
            segment += 1
        lengths[text] = at - first_of_text
    return tokens, begins, lengths
