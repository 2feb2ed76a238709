"""Find lexicon words in a text: from left to right, the longest one that cuts no other word in two.

The entries form a trie that ends at nodes below which there is only one entry; that entry is compared
directly. A walk starts only where a word may start and an entry begins with the next two characters, so other
places cost almost nothing.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy import ndarray

from brimful.base.compiled import compiled
from brimful.corpus.text.characters import code_points, lengths_of

_PAIR_BITS = np.uint64(20)
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_CODE_BITS = np.uint64(21)
_HALF = np.uint64(32)
_ZERO, _ONE = np.uint64(0), np.uint64(1)


class _Trie(NamedTuple):
    """A trie of N entries.

    Attributes:
        slots: an open-addressed hash table, uint64 (a power of two, 2). Row s holds node s + 1. Its first
            number is (the parent + 1) << 21 | the character, or 0 for an empty row. Its second number is
            1 + the entry that ends there, or the only entry that passes there, or 0. Node 0 is the root.
        depths: characters up to the node that has the entry, int32 (N,).
        codes: the entries, in order, end to end, uint32 (characters,).
        ends: where each entry ends in `codes`, int64 (N,).
        firsts: by the lower 16 bits of a character, 1 if it is an entry, 2 if longer entries begin with it,
            or both; uint8 (1 << 16,).
        pairs: by the hash of two characters, whether longer entries begin with them;
            bool (1 << _PAIR_BITS,).
    """

    slots: ndarray
    depths: ndarray
    codes: ndarray
    ends: ndarray
    firsts: ndarray
    pairs: ndarray


class Lexicon:
    """Words that stay whole in a text.

    Args:
        words: the words, in any order.
    """

    def __init__(self, words: Iterable[str]) -> None:
        ordered = sorted(set(words) - {""})
        codes = code_points("".join(ordered))
        ends = np.cumsum(lengths_of(ordered))
        depths, nodes = _find_depths(codes, ends)
        size = 1 << (nodes * 4 // 3).bit_length()  # a power of two; at most three quarters of it are filled
        slots, firsts = np.zeros((size, 2), np.uint64), np.zeros(1 << 16, np.uint8)
        pairs = np.zeros(1 << int(_PAIR_BITS), np.bool_)
        self._trie = _Trie(slots, depths, codes, ends, firsts, pairs)
        _fill(self._trie)

    def mark_words(self, codes: ndarray, starts: ndarray, inside: ndarray, divisible: ndarray) -> None:
        """Mark the lexicon words of a text as words.

        Args:
            codes: code points, uint32 (characters,).
            starts: which characters start a word, bool (characters,); changed.
            inside: which are in a word, bool (characters,); changed.
            divisible: before which characters a lexicon word may cut a word in two, bool (characters,).
        """
        cuttable = starts | divisible | ~inside
        places = _find_candidates(codes, cuttable, self._trie)
        _mark_spans(_match(codes, places, cuttable, self._trie), starts, inside)


@compiled
def _find_depths(codes: ndarray, ends: ndarray) -> tuple[ndarray, int]:
    """Return `_Trie.depths` and the number of nodes.

    An entry's node is one character beyond those that it shares with the entry before or behind it.
    """
    depths = np.empty(len(ends), np.int32)
    nodes = shared = begin = 0
    for entry, end in enumerate(ends):
        shared_with_next = 0
        if entry + 1 < len(ends):
            shorter = min(end - begin, ends[entry + 1] - end)
            while shared_with_next < shorter:
                if codes[begin + shared_with_next] != codes[end + shared_with_next]:
                    break
                shared_with_next += 1
        depths[entry] = min(end - begin, max(shared, shared_with_next) + 1)
        nodes += depths[entry] - shared
        shared, begin = shared_with_next, end
    return depths, nodes


@compiled
def _slot(node: np.uint64, code: np.uint32, slots: ndarray) -> np.uint64:
    """Return where the child of a node is, or would be."""
    mask = np.uint64(len(slots) - 1)
    key = (node + _ONE) << _CODE_BITS | np.uint64(code)
    slot = (key * _FACTOR >> _HALF) & mask
    while slots[slot, 0] != _ZERO and slots[slot, 0] != key:
        slot = (slot + _ONE) & mask
    return slot


@compiled
def _fill(trie: _Trie) -> None:
    """Put the entries into the empty tables of a trie."""
    begin = 0
    for entry, end in enumerate(trie.ends):
        node = slot = _ZERO
        for place in range(begin, begin + trie.depths[entry]):
            slot = _slot(node, trie.codes[place], trie.slots)
            trie.slots[slot, 0] = (node + _ONE) << _CODE_BITS | np.uint64(trie.codes[place])
            node = slot + _ONE
        trie.slots[slot, 1] = entry + 1
        trie.firsts[trie.codes[begin] & 0xFFFF] |= 1 if end - begin == 1 else 2
        if end - begin > 1:
            trie.pairs[_pair(trie.codes, begin)] = True
        begin = end


@compiled
def _pair(codes: ndarray, begin: int) -> np.uint64:
    """Return the hash of two characters."""
    both = np.uint64(codes[begin]) << _CODE_BITS | np.uint64(codes[begin + 1])
    return both * _FACTOR >> (np.uint64(64) - _PAIR_BITS)


@compiled
def _find_candidates(codes: ndarray, cuttable: ndarray, trie: _Trie) -> ndarray:
    """Return where an entry may begin by its first two characters, or falsely seems to, int32 (places,)."""
    places = np.empty(len(codes), np.int32)
    count = 0
    # A place is written always and counted only if it passes: there is no branch for the processor to guess.
    for place, code in enumerate(codes):
        places[count] = place
        count += cuttable[place] & (trie.firsts[code & 0xFFFF] != 0)
    passed = 0
    for index in range(count):
        place = places[index]
        is_entry = trie.firsts[codes[place] & 0xFFFF] & 1 != 0
        places[passed] = place
        passed += is_entry | (place + 1 < len(codes) and trie.pairs[_pair(codes, place)])
    return places[:passed]


@compiled
def _match(codes: ndarray, places: ndarray, cuttable: ndarray, trie: _Trie) -> ndarray:
    """Return the entries in a text, begin and end, int64 (entries, 2).

    Args:
        places: where they may begin.
    """
    spans = np.empty((len(places), 2), np.int64)
    count = last = 0
    for begin in places:
        if begin < last:
            continue
        longest = begin
        node = _ZERO
        for place in range(begin, len(codes)):
            slot = _slot(node, codes[place], trie.slots)
            if trie.slots[slot, 0] == _ZERO:
                break
            entry = np.int64(trie.slots[slot, 1]) - 1
            if entry >= 0:
                # Compare the characters of the entry below its node.
                end = place + 1
                at = (trie.ends[entry - 1] if entry else 0) + trie.depths[entry]
                while at < trie.ends[entry] and end < len(codes) and codes[end] == trie.codes[at]:
                    at, end = at + 1, end + 1
                if at == trie.ends[entry] and (end == len(codes) or cuttable[end]):
                    longest = end
            node = slot + _ONE
        if longest > begin:
            spans[count, 0], spans[count, 1] = begin, longest
            last = longest
            count += 1
    return spans[:count]


@compiled
def _mark_spans(spans: ndarray, starts: ndarray, inside: ndarray) -> None:
    """Make one word of each span; what follows a span within a word starts another one."""
    for begin, end in spans:
        for place in range(begin, end):
            starts[place], inside[place] = place == begin, True
        if end < len(starts):
            starts[end] |= inside[end]
