"""Lexicon words in a text: from left to right, the longest one that cuts no other word in two.

The entries form a trie, down to the node below which only one entry is left; that entry is compared
directly. A walk starts only where a word may start and the next characters pass a Bloom filter, so other
places cost almost nothing.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from brimful.base.compiled import compiled
from brimful.corpus.text.characters import code_points

# Lengths of the prefixes in the filter. Each entry has one prefix there, the longest it is long enough for.
_PREFIXES = (2, 4, 8, 12)
_LONGEST_PREFIX = _PREFIXES[-1]
_FILTER_BITS = 16  # for each entry
_PAIR_BITS = np.uint64(18)
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = np.array([pow(int(_FACTOR), power, 1 << 64) for power in range(1, _LONGEST_PREFIX + 1)], np.uint64)
_CODE_BITS = np.uint64(21)
_HALF, _BIT = np.uint64(32), np.uint64(63)
_ZERO, _ONE = np.uint64(0), np.uint64(1)


class _Trie(NamedTuple):
    """N entries.

    Attributes:
        slots: open-addressed table. Row s is node s + 1: (its parent + 1) << 21 | its character, 0 where
            there is no node; 1 + the entry that ends there, or is the only one from there on, or 0. Node 0 is
            the root. uint64 (a power of two, 2).
        depths: characters up to the node that has the entry, int32 (N,).
        codes: the entries, in order, end to end, uint32 (characters,).
        ends: where each ends, int64 (N,).
        firsts: by the lower 16 bits of a character, 1 if it is an entry, 2 if longer ones begin so, or both;
            uint8 (1 << 16,).
        pairs: by the hash of two characters, bit i if entries begin so of which _PREFIXES[i] characters are
            looked for; uint8 (1 << _PAIR_BITS,).
        filter: Bloom filter of longer prefixes, uint64 (a power of two,).
    """

    slots: np.ndarray
    depths: np.ndarray
    codes: np.ndarray
    ends: np.ndarray
    firsts: np.ndarray
    pairs: np.ndarray
    filter: np.ndarray


class Lexicon:
    """Words that stay whole in a text.

    Args:
        words: the words, in any order.
    """

    def __init__(self, words: Iterable[str]) -> None:
        ordered = sorted(set(words) - {""})
        codes = code_points("".join(ordered))
        ends = np.cumsum(np.fromiter(map(len, ordered), np.int64, len(ordered)))
        depths, nodes = _depths(codes, ends)
        self._trie = _Trie(
            np.zeros((_room(nodes), 2), np.uint64), depths, codes, ends,
            np.zeros(1 << 16, np.uint8), np.zeros(1 << int(_PAIR_BITS), np.uint8),
            np.zeros(_room(len(ordered) * _FILTER_BITS // 64), np.uint64),
        )  # fmt: skip
        _grow(self._trie)
        _fill_filter(self._trie)

    def lay(self, codes: np.ndarray, starts: np.ndarray, inside: np.ndarray, divisible: np.ndarray) -> None:
        """Mark the lexicon words of a text as words.

        Args:
            codes: code points, uint32 (characters,).
            starts: which characters start a word, bool (characters,); changed.
            inside: which are in a word, bool (characters,); changed.
            divisible: before which characters a lexicon word may cut a word in two, bool (characters,).
        """
        cuttable = starts | divisible | ~inside
        places = _candidates(codes, cuttable, self._trie)
        _lay(_matches(codes, places, cuttable, self._trie), starts, inside)


def _room(items: int) -> int:
    """A power of two, at least 4/3 of `items`."""
    return 1 << (items * 4 // 3).bit_length()


@compiled
def _depths(codes: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, int]:
    """See `_Trie`; and the number of nodes."""
    depths = np.empty(len(ends), np.int32)
    nodes = shared = begin = 0
    for entry, end in enumerate(ends):
        shared_with_next = 0
        if entry + 1 < len(ends):
            most = min(end - begin, ends[entry + 1] - end)
            while (
                shared_with_next < most and codes[begin + shared_with_next] == codes[end + shared_with_next]
            ):
                shared_with_next += 1
        depths[entry] = min(end - begin, max(shared, shared_with_next) + 1)
        nodes += depths[entry] - shared
        shared, begin = shared_with_next, end
    return depths, nodes


@compiled
def _slot(node: np.uint64, code: np.uint32, slots: np.ndarray) -> np.uint64:
    """Where the child of a node is, or would be."""
    mask = np.uint64(len(slots) - 1)
    key = (node + _ONE) << _CODE_BITS | np.uint64(code)
    slot = (key * _FACTOR >> _HALF) & mask
    while slots[slot, 0] != _ZERO and slots[slot, 0] != key:
        slot = (slot + _ONE) & mask
    return slot


@compiled
def _grow(trie: _Trie) -> None:
    begin = 0
    for entry, end in enumerate(trie.ends):
        node = slot = _ZERO
        for place in range(begin, begin + trie.depths[entry]):
            slot = _slot(node, trie.codes[place], trie.slots)
            trie.slots[slot, 0] = (node + _ONE) << _CODE_BITS | np.uint64(trie.codes[place])
            node = slot + _ONE
        trie.slots[slot, 1] = entry + 1
        begin = end


@compiled
def _prefix_hash(codes: np.ndarray, begin: int, first: int, last: int) -> np.uint64:
    """The part of a prefix's hash that comes from characters `first` to `last` after `begin`."""
    total = _ZERO
    for index in range(first, last):
        total += np.uint64(codes[begin + index]) * _FACTORS[index]
    return total


@compiled
def _home(total: np.uint64, words: np.ndarray) -> tuple[np.uint64, np.uint64, np.uint64]:
    """The place of a hash in the filter: an index, and two bits there."""
    return total >> _HALF & np.uint64(len(words) - 1), total >> np.uint64(58), total >> np.uint64(52) & _BIT


@compiled
def _passes(total: np.uint64, words: np.ndarray) -> np.uint64:
    """1 if the filter may hold a hash, 0 if it does not."""
    word, first, second = _home(total, words)
    return words[word] >> first & words[word] >> second & _ONE


@compiled
def _pair(codes: np.ndarray, begin: int) -> np.uint64:
    return _prefix_hash(codes, begin, 0, 2) >> (np.uint64(64) - _PAIR_BITS)


@compiled
def _fill_filter(trie: _Trie) -> None:
    begin = 0
    for end in trie.ends:
        first = trie.codes[begin] & 0xFFFF
        if end - begin == 1:
            trie.firsts[first] |= 1
        else:
            trie.firsts[first] |= 2
            level = 0
            while level + 1 < len(_PREFIXES) and _PREFIXES[level + 1] <= end - begin:
                level += 1
            trie.pairs[_pair(trie.codes, begin)] |= 1 << level
            total = _prefix_hash(trie.codes, begin, 0, _PREFIXES[level])
            word, bit, other = _home(total, trie.filter)
            trie.filter[word] |= _ONE << bit | _ONE << other
        begin = end


@compiled
def _candidates(codes: np.ndarray, cuttable: np.ndarray, trie: _Trie) -> np.ndarray:
    """Where an entry may begin, int32 (places,), with a few false places.

    Three filters, each slower and finer than the one before: the first character, the first two, the prefix.
    """
    places = np.empty(len(codes), np.int32)
    count = 0
    for place, code in enumerate(codes):
        places[count] = place
        count += cuttable[place] & (trie.firsts[code & 0xFFFF] != 0)
    kept = 0
    for index in range(count):
        place = places[index]
        passed = True
        if place + 1 < len(codes):
            passed = (trie.pairs[_pair(codes, place)] != 0) | (trie.firsts[codes[place] & 0xFFFF] & 1 != 0)
        places[kept] = place
        kept += passed
    count, kept = kept, 0
    for index in range(count):
        place = places[index]
        looked_up = _ONE
        if place + _LONGEST_PREFIX <= len(codes):
            levels = np.uint64(trie.pairs[_pair(codes, place)])
            four = _prefix_hash(codes, place, 0, 4)
            eight = four + _prefix_hash(codes, place, 4, 8)
            twelve = eight + _prefix_hash(codes, place, 8, 12)
            looked_up = levels | np.uint64(trie.firsts[codes[place] & 0xFFFF])
            looked_up |= levels >> np.uint64(1) & _passes(four, trie.filter)
            looked_up |= levels >> np.uint64(2) & _passes(eight, trie.filter)
            looked_up |= levels >> np.uint64(3) & _passes(twelve, trie.filter)
        places[kept] = place
        kept += int(looked_up & _ONE)
    return places[:kept]


@compiled
def _matches(codes: np.ndarray, places: np.ndarray, cuttable: np.ndarray, trie: _Trie) -> np.ndarray:
    """The entries in a text, begin and end, int64 (entries, 2); `places`: where they may begin."""
    found = np.empty((len(places), 2), np.int64)
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
                end = place + 1
                at = (trie.ends[entry - 1] if entry else 0) + trie.depths[entry]
                while at < trie.ends[entry] and end < len(codes) and codes[end] == trie.codes[at]:
                    at, end = at + 1, end + 1
                if at == trie.ends[entry] and (end == len(codes) or cuttable[end]):
                    longest = end
            node = slot + _ONE
        if longest > begin:
            found[count, 0], found[count, 1] = begin, longest
            last = longest
            count += 1
    return found[:count]


@compiled
def _lay(spans: np.ndarray, starts: np.ndarray, inside: np.ndarray) -> None:
    for begin, end in spans:
        for place in range(begin, end):
            starts[place], inside[place] = False, True
        starts[begin] = True
        if end < len(starts):
            starts[end] |= inside[end]
