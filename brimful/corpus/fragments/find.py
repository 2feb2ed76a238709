"""Compiled loops that cut texts into fragments and look the fragments up in a table.

A fragment is compared character by character, never by its hash alone.
"""

from typing import NamedTuple

import numpy as np

from brimful.base.compiled import compiled
from brimful.corpus.fragments.kinds import PLAIN_HAN, SEPARATOR

LONGEST_FRAGMENT = 32

# What a fragment is: text inside a document, the beginning of one, an entry of the vocabulary.
INSIDE, FIRST, PIECE = range(3)
_SEED = np.uint64(0x9E3779B97F4A7C15)
_FACTOR = np.uint64(0xFF51AFD7ED558CCD)
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


class Rules(NamedTuple):
    """How to cut a text.

    Attributes:
        kinds: the kind of every code point, uint8 (0x110000,).
        matrix: `kinds.matrix_of_cuts()`.
        positional: whether a fragment at the beginning of a text differs from the same fragment inside.
        longest_run: a run of PLAIN_HAN is matched in parts of this many characters; 0: like other runs.
        longest_piece: characters of the longest PIECE entry.
        separator, plain_han: kinds that the loops know by name.
    """

    kinds: np.ndarray
    matrix: np.ndarray
    positional: bool
    longest_run: int
    longest_piece: int
    separator: int = SEPARATOR
    plain_han: int = PLAIN_HAN


class FragmentTable(NamedTuple):
    """Entry e is a fragment of kind `kinds[e]` that reads `keys[ends[e]:ends[e + 1]]`.

    A slot holds the upper half of a hash, and the entry's number + 1 in its lower half; 0 is an empty slot.
    """

    slots: np.ndarray
    keys: np.ndarray
    ends: np.ndarray
    kinds: np.ndarray


def empty_table(fragments: int, characters: int) -> FragmentTable:
    """An empty table for this many fragments and characters. Memory is used only as it is written."""
    return FragmentTable(
        np.zeros(1 << (fragments * 3 // 2).bit_length(), np.uint64),
        np.empty(characters, np.uint32),
        np.zeros(fragments + 1, np.int32),
        np.empty(fragments, np.uint8),
    )


@compiled
def _extend(state: np.uint64, code: np.uint32) -> np.uint64:
    state = (state ^ np.uint64(code)) * _FACTOR
    return state ^ (state >> _HALF)


@compiled
def _lookup(
    codes: np.ndarray, begin: int, end: int, state: np.uint64, kind: int, table: FragmentTable
) -> int:
    """The entry of the fragment `codes[begin:end]`, or -1."""
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
    codes: np.ndarray, begin: int, end: int, state: np.uint64, kind: int, table: FragmentTable, entry: int
) -> int:
    """Make the fragment `codes[begin:end]` entry number `entry`; returns the number of entries."""
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
def add(codes: np.ndarray, kind: int, table: FragmentTable, entry: int) -> int:
    """Make the fragment `codes` entry number `entry`, if there is room; returns the number of entries."""
    state = _SEED + np.uint64(kind)
    for code in codes:
        state = _extend(state, code)
    return _insert(codes, 0, len(codes), state, kind, table, entry)


@compiled
def _match_pieces(
    codes: np.ndarray, begin: int, end: int, rules: Rules, table: FragmentTable,
    fragment_begins: np.ndarray, entries: np.ndarray, total: int,
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
        fragment_begins[total], entries[total] = position, entry
        total += 1
        position += length
    return total


@compiled
def find(
    codes: np.ndarray, begins: np.ndarray, ends: np.ndarray, rules: Rules, table: FragmentTable, count: int,
    fragment_begins: np.ndarray, entries: np.ndarray, counts: np.ndarray, fresh: np.ndarray,
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
            if before == rules.separator:
                position += 1
                continue
            begin = position
            state = _extend(_SEED + np.uint64(kind), codes[position])
            plain = before == rules.plain_han
            position += 1
            while position < stop:
                after = rules.kinds[codes[position]]
                if rules.matrix[before, after]:
                    break
                plain &= after == rules.plain_han
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
                if (
                    entry < 0
                    and count < len(table.kinds)
                    and table.ends[count] + LONGEST_FRAGMENT <= len(table.keys)
                ):
                    entry = count
                    count = _insert(codes, begin, position, state, kind, table, count)
            if entry < 0:
                fresh[others, 0], fresh[others, 1], fresh[others, 2] = begin, position, kind
                others += 1
                entry = -others
            fragment_begins[total], entries[total] = begin, entry
            total += 1
            kind = INSIDE
        counts[text] = total - first_of_text
    return total, others, count
