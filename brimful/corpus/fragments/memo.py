"""A bounded memory of the answers that an authority, such as a tokenizer, gives for fragments of texts.

Compiled loops cut texts into fragments and look these up in a table. A fragment is compared character by
character, never by its hash alone. When the memory is full, new fragments are asked about each time they
come, until the next call starts with an empty memory. The results never depend on what is remembered.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy import ndarray

from brimful.base.compiled import compiled
from brimful.corpus.text.characters import code_points, text_of

# Kinds of characters. The tokens of a character never depend on a neighbour from which `SAFE_CUTS` allows
# a cut. No cut is made beside UNSURE. After SOLID, only a space is cut off. UNASKED: not known yet.
UNASKED, UNSURE, SEPARATOR, SPACE, SOLID, ALONE, WORD, NUMBER, SYMBOL, HAN, PLAIN_HAN = range(11)

# The most fragments and characters that are remembered in addition to the pieces.
FRAGMENTS = 1 << 19
CHARACTERS = 1 << 22
# A longer fragment hardly comes again, so it is asked about each time.
LONGEST_FRAGMENT = 32

# The same characters are other fragments inside a text, at its beginning, and as a piece of the vocabulary.
INSIDE, FIRST, PIECE = range(3)
_SEED = np.uint64(0x9E3779B97F4A7C15)
_FACTOR = np.uint64(0xFF51AFD7ED558CCD)
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


def _make_matrix() -> ndarray:
    cuts = np.zeros((PLAIN_HAN + 1, PLAIN_HAN + 1), bool)
    cuts[ALONE:, ALONE:] = True
    for kind in (WORD, NUMBER, SYMBOL, HAN, PLAIN_HAN):
        cuts[kind, kind] = False
    cuts[HAN, PLAIN_HAN] = cuts[PLAIN_HAN, HAN] = False
    cuts[SOLID:, SPACE] = True
    # A separator makes no token: it belongs to neither side.
    cuts[SEPARATOR] = cuts[:, SEPARATOR] = True
    return cuts


SAFE_CUTS = _make_matrix()
"""bool (kinds, kinds): whether a text may be cut between characters of kinds i and j."""


class Rules(NamedTuple):
    """The rules by which a text is cut.

    Attributes:
        kinds: the kind of every code point, uint8 (0x110000,).
        positional: whether a fragment at the beginning of a text differs from the same fragment inside.
        longest_run: a run of PLAIN_HAN is matched in parts of this many characters; 0: like other runs.
        longest_piece: characters of the longest PIECE entry.
    """

    kinds: ndarray
    positional: bool
    longest_run: int
    longest_piece: int


class _Table(NamedTuple):
    """Entry e is a fragment of kind `kinds[e]` that reads `keys[ends[e]:ends[e + 1]]`.

    A slot holds the upper half of a hash, and the entry's number + 1 in its lower half; 0 is an empty slot.
    """

    slots: ndarray
    keys: ndarray
    ends: ndarray
    kinds: ndarray


class FragmentTokens(NamedTuple):
    """Entry e has the token ids `tokens[ends[e]:ends[e + 1]]`; `places` are their first characters."""

    tokens: ndarray
    places: ndarray
    ends: ndarray


class Memo:
    """Remembers what an authority answers for fragments.

    Args:
        rules: where texts are cut into fragments.
        ask: the authority: texts and their kinds -> answers.
        pieces: entries for runs of PLAIN_HAN, which are cut into these by longest match.
    """

    def __init__(
        self, rules: Rules, ask: Callable[[list[str], list[int]], FragmentTokens], pieces: Sequence[str] = ()
    ) -> None:
        self._rules = rules
        self._ask = ask
        self._pieces = pieces
        self._start()

    def _start(self) -> None:
        """Forget everything but the pieces."""
        fragments = FRAGMENTS + len(self._pieces)
        characters = CHARACTERS + sum(map(len, self._pieces))
        # Pages of empty arrays take memory only when they are written: a small corpus takes little.
        self._table = _Table(
            np.zeros(1 << (fragments * 3 // 2).bit_length(), np.uint64),
            np.empty(characters, np.uint32),
            np.zeros(fragments + 1, np.int32),
            np.empty(fragments, np.uint8),
        )
        self._answers = FragmentTokens(
            np.empty(characters, np.uint32), np.empty(characters, np.int32), np.zeros(fragments + 1, np.int64)
        )
        self._count = 0
        for piece in self._pieces:
            self._count = _add_piece(code_points(piece), self._table, self._count)
        if self._pieces:
            answers = self._ask(list(self._pieces), [PIECE] * len(self._pieces))
            self._store(0, answers, len(self._pieces))

    def __call__(self, codes: ndarray, begins: ndarray, ends: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        """Return the answers for the texts `codes[begins[i]:ends[i]]`.

        Returns:
            tokens uint32 (T,); their places as indices of `codes`, int64 (T,); tokens of each text, int64
            (texts,).
        """
        table = self._table
        if self._count == len(table.kinds) or table.ends[self._count] + LONGEST_FRAGMENT > len(table.keys):
            self._start()
        first_new = self._count
        room = int((ends - begins).sum())  # each fragment has a character at least
        fragments, entries = np.empty(room, np.int32), np.empty(room, np.int32)
        counts, fresh = np.zeros(len(begins), np.int64), np.empty((room, 3), np.int64)
        total, fresh_count, self._count = _find(
            codes, begins, ends, self._rules, self._table, first_new, fragments, entries, counts, fresh
        )
        fresh_answers = self._learn(first_new, codes, fresh[:fresh_count])
        return _spell(fragments[:total], entries[:total], counts, self._answers, fresh_answers)

    def _learn(self, first_new: int, codes: ndarray, fresh: ndarray) -> FragmentTokens:
        """Ask for new answers. Store the answers for the entries from `first_new` on, return the others."""
        ends = self._table.ends[first_new : self._count + 1]
        keys = text_of(self._table.keys[ends[0] : ends[-1]])
        texts = [keys[begin:end] for begin, end in pairwise((ends - ends[0]).tolist())]
        texts += [text_of(codes[begin:end]) for begin, end, _ in fresh.tolist()]
        if not texts:  # all of it is known: the tokenizer is not asked
            return FragmentTokens(np.empty(0, np.uint32), np.empty(0, np.int32), np.zeros(1, np.int64))
        kinds = self._table.kinds[first_new : self._count].tolist() + fresh[:, 2].tolist()
        answers = self._ask(texts, kinds)
        new = self._count - first_new
        self._store(first_new, answers, new)
        split = answers.ends[new]
        return FragmentTokens(answers.tokens[split:], answers.places[split:], answers.ends[new:] - split)

    def _store(self, entry: int, answers: FragmentTokens, count: int) -> None:
        """Store the first `count` answers for the entries from `entry` on."""
        begin, size = int(self._answers.ends[entry]), int(answers.ends[count])
        end = begin + size
        if end > len(self._answers.tokens):  # a character may be several tokens
            tokens = np.concatenate([self._answers.tokens, np.empty(end, np.uint32)])
            places = np.concatenate([self._answers.places, np.empty(end, np.int32)])
            self._answers = FragmentTokens(tokens, places, self._answers.ends)
        self._answers.tokens[begin:end] = answers.tokens[:size]
        self._answers.places[begin:end] = answers.places[:size]
        self._answers.ends[entry : entry + count + 1] = begin + answers.ends[: count + 1]


@compiled
def _extend(state: np.uint64, code: np.uint32) -> np.uint64:
    # A step of FNV-1a with a wider factor; the shift brings the upper bits into the slot number.
    state = (state ^ np.uint64(code)) * _FACTOR
    return state ^ (state >> _HALF)


@compiled
def _lookup(codes: ndarray, begin: int, end: int, state: np.uint64, kind: int, table: _Table) -> int:
    """Return the entry of the fragment `codes[begin:end]`, or -1."""
    length = end - begin
    mask = np.uint64(len(table.slots) - 1)
    slot = state & mask
    while table.slots[slot] != 0:
        held = table.slots[slot]
        # Half of the hash rules out nearly all other fragments before any character is compared.
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
    codes: ndarray, begin: int, end: int, state: np.uint64, kind: int, table: _Table, entry: int
) -> int:
    """Make the fragment `codes[begin:end]` entry number `entry`, and return the number of entries."""
    mask = np.uint64(len(table.slots) - 1)
    slot = state & mask
    while table.slots[slot] != 0:
        slot = (slot + np.uint64(1)) & mask
    table.slots[slot] = (state >> _HALF << _HALF) | np.uint64(entry + 1)
    first = table.ends[entry]
    table.ends[entry + 1] = first + end - begin
    table.keys[first : first + end - begin] = codes[begin:end]
    table.kinds[entry] = kind
    return entry + 1


@compiled
def _add_piece(codes: ndarray, table: _Table, entry: int) -> int:
    """Make a piece entry number `entry`, and return the number of entries."""
    state = _SEED + np.uint64(PIECE)
    for code in codes:
        state = _extend(state, code)
    return _insert(codes, 0, len(codes), state, PIECE, table, entry)


@compiled
def _match_pieces(
    codes: ndarray, begin: int, end: int, rules: Rules, table: _Table,
    fragment_begins: ndarray, entries: ndarray, total: int,
) -> int:  # fmt: skip
    """Match pieces greedily, the longest first, as WordPiece does.

    Returns:
        the new `total`, or -1 where the vocabulary has no piece for some character.
    """
    states = np.empty(rules.longest_piece + 1, np.uint64)
    position = begin
    while position < end:
        run_end = min(end, begin + ((position - begin) // rules.longest_run + 1) * rules.longest_run)
        longest = min(rules.longest_piece, run_end - position)
        # The hashes of all beginnings come in one pass; the longest is looked up first.
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
        fragment_begins[total], entries[total] = position, entry
        total += 1
        position += length
    return total


@compiled
def _find(
    codes: ndarray, begins: ndarray, ends: ndarray, rules: Rules, table: _Table, count: int,
    fragment_begins: ndarray, entries: ndarray, counts: ndarray, fresh: ndarray,
) -> tuple[int, int, int]:  # fmt: skip
    """Cut the texts `codes[begins[i]:ends[i]]` and look their fragments up.

    New fragments become entries while there is room, the others are fresh.

    Args:
        count: the number of entries so far.
        fragment_begins: filled with where each fragment begins, int32, at least (characters,).
        entries: filled with its entry, or -1 - n for number n of `fresh`, int32, at least (characters,).
        counts: filled with the fragments of each text, int64 (texts,).
        fresh: filled with begin, end and kind of the fresh fragments, int64, at least (characters, 3).

    Returns:
        the numbers of fragments, of fresh ones, and of entries.
    """
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
            # A fragment ends before the first character that does not depend on the one before it.
            while position < stop:
                after = rules.kinds[codes[position]]
                if SAFE_CUTS[before, after]:
                    break
                plain &= after == PLAIN_HAN
                state = _extend(state, codes[position])
                before = after
                position += 1
            if plain and rules.longest_run > 0:
                matched = _match_pieces(codes, begin, position, rules, table, fragment_begins, entries, total)
                if matched >= 0:
                    total = matched
                    continue
            entry = -1
            if position - begin <= LONGEST_FRAGMENT:
                entry = _lookup(codes, begin, position, state, kind, table)
                has_room = table.ends[count] + LONGEST_FRAGMENT <= len(table.keys)
                if entry < 0 and count < len(table.kinds) and has_room:
                    entry = count
                    count = _insert(codes, begin, position, state, kind, table, count)
            if entry < 0:  # too long, or the memory is full
                fresh[others] = begin, position, kind
                others += 1
                entry = -others
            fragment_begins[total], entries[total] = begin, entry
            total += 1
            kind = INSIDE
        counts[text] = total - first_of_text
    return total, others, count


@compiled
def _spell(
    fragment_begins: ndarray, entries: ndarray, counts: ndarray,
    remembered: FragmentTokens, fresh: FragmentTokens,
) -> tuple[ndarray, ndarray, ndarray]:  # fmt: skip
    """Put the tokens of fragments together; see `Memo.__call__`."""
    total = 0
    for entry in entries:
        answers = remembered if entry >= 0 else fresh
        number = entry if entry >= 0 else -1 - entry
        total += answers.ends[number + 1] - answers.ends[number]
    tokens, begins = np.empty(total, np.uint32), np.empty(total, np.int64)
    lengths = np.zeros(len(counts), np.int64)
    fragment = at = 0
    for text in range(len(counts)):
        first_of_text = at
        for _ in range(counts[text]):
            entry = entries[fragment]
            answers = remembered if entry >= 0 else fresh
            number = entry if entry >= 0 else -1 - entry
            for index in range(answers.ends[number], answers.ends[number + 1]):
                tokens[at] = answers.tokens[index]
                begins[at] = fragment_begins[fragment] + answers.places[index]
                at += 1
            fragment += 1
        lengths[text] = at - first_of_text
    return tokens, begins, lengths
