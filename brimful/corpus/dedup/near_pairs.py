"""Find near duplicates between two lists of texts, such as the tables of training and test, or within one.

A text is the set of its runs of eight bytes: eight Latin letters, or nearly three Chinese characters. MinHash
(Broder, 1997) with banding (Leskovec et al., Mining of Massive Datasets, 3.4) finds candidates: a pair of
Jaccard similarity s is one with probability 1 - (1 - s^4)^8, which is 0.89 at s = 0.7 and 0.98 at 0.8. The
similarity of the best candidate is then computed exactly, so nothing is reported that is less alike. The
order of the texts changes nothing.
"""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np
from numpy import ndarray

from brimful.base.compiled import compiled
from brimful.base.draws import mix_word
from brimful.base.randomness import derive_key, hash_words, mix
from brimful.corpus.text.characters import lengths_of

RUN_BYTES = 8
"""A run is one uint64."""
BANDS, BAND_HASHES = 8, 4
MIN_SIMILARITY = 0.7
"""The least Jaccard similarity of texts that are almost the same."""
MAX_CANDIDATES = 8
"""Compared texts of a band with equal hashes: boilerplate can make thousands equal."""
MIN_EQUAL_HASHES = 16
"""The sets of a candidate are compared if so many of its 32 hashes are equal: at s = 0.7, 999 of 1,000."""
CACHED_TEXTS = 1 << 14
"""Texts whose runs are in memory; runs take eight times the bytes of their text."""
PAIRS_AT_ONCE = 1 << 16
NO_RUN = np.iinfo(np.uint64).max


def find_near_pairs(references: Sequence[str], texts: Sequence[str]) -> tuple[ndarray, ndarray]:
    """For each of `texts`, find a reference that is almost the same. Texts under 8 bytes match no other.

    Returns:
        the index of the reference or -1, int64 (texts,), and the similarity, float64 (texts,), 0 without a
        match.
    """
    match = np.full(len(texts), -1, dtype=np.int64)
    similarities = np.zeros(len(texts))
    if not references or not texts:
        return match, similarities
    order = _order_by_content(references)
    theirs, ours = signatures([references[index] for index in order.tolist()]), signatures(texts)
    pairs = _find_candidates(theirs, ours)
    # The best candidate of each text: most equal hashes, then the first by content.
    pairs = pairs[np.lexsort((pairs[:, 1], -_count_equal(ours, theirs, pairs), pairs[:, 0]))]
    best = np.unique(pairs[:, 0], return_index=True)[1]
    for row, place in pairs[best].tolist():
        index = int(order[place])
        similarity = jaccard(texts[row], references[index])
        if similarity >= MIN_SIMILARITY:
            match[row], similarities[row] = index, similarity
    return match, similarities


def find_near_groups(texts: Sequence[str], together: ndarray) -> ndarray:
    """Group texts that are almost the same, directly or through other texts.

    Among texts with equal hashes in a band, each is compared with the first `MAX_CANDIDATES` by content.

    Args:
        together: int64 (n,), texts with the same number share a group in any case.

    Returns:
        the first text of the group of each text, int64 (n,).
    """
    first: dict[int, int] = {}
    group = [first.setdefault(number, text) for text, number in enumerate(together.tolist())]

    def find_root(text: int) -> int:
        # Union-find: each text points to an earlier one of its group, and paths are halved on the way.
        while group[text] != text:
            group[text] = text = group[group[text]]
        return text

    @lru_cache(CACHED_TEXTS)
    def runs(text: int) -> ndarray:
        return _runs(texts[text])

    order = _order_by_content(texts)
    hashes = signatures([texts[index] for index in order.tolist()])
    pairs = _find_candidates(hashes, hashes)
    pairs = pairs[pairs[:, 0] > pairs[:, 1]]
    pairs = pairs[_count_equal(hashes, hashes, pairs) >= MIN_EQUAL_HASHES]
    for one, other in order[pairs].tolist():
        lower, higher = sorted((find_root(one), find_root(other)))
        if lower != higher and _similarity(runs(one), runs(other)) >= MIN_SIMILARITY:
            group[higher] = lower
    return np.array(list(map(find_root, range(len(texts)))), dtype=np.int64)


def _order_by_content(texts: Sequence[str]) -> ndarray:
    """Return an order of the texts that does not depend on the one they have, int64 (n,)."""
    digests = [blake2b(text.encode(errors="replace"), digest_size=8).digest() for text in texts]
    return np.argsort(np.frombuffer(b"".join(digests), dtype="<u8"), kind="stable")


def _count_equal(ours: ndarray, theirs: ndarray, pairs: ndarray) -> ndarray:
    """Return how many of 32 hashes are equal in the two rows of each pair, int64 (pairs,)."""
    counts = np.zeros(len(pairs), np.int64)
    for start in range(0, len(pairs), PAIRS_AT_ONCE):
        part = pairs[start : start + PAIRS_AT_ONCE]
        counts[start : start + len(part)] = (ours[part[:, 0]] == theirs[part[:, 1]]).sum(1)
    return counts


def jaccard(first: str, second: str) -> float:
    """Return the Jaccard similarity of the sets of runs of two texts; 0 where one has no run."""
    return float(_similarity(_runs(first), _runs(second)))


@compiled
def _similarity(ours: ndarray, theirs: ndarray) -> float:
    """Return the Jaccard similarity of two sets, uint64, ascending; 0 where one is empty."""
    both = here = there = 0
    while here < len(ours) and there < len(theirs):
        # The side with the lower run goes on, both at a shared one. No branch: the processor can't guess it.
        both += ours[here] == theirs[there]
        step = ours[here] <= theirs[there]
        there += theirs[there] <= ours[here]
        here += step
    return both / max(len(ours) + len(theirs) - both, 1)


def _runs(text: str) -> ndarray:
    """Return the different runs of a text, uint64, ascending."""
    data = np.frombuffer(text.encode(errors="replace"), np.uint8)
    if len(data) < RUN_BYTES:
        return np.empty(0, np.uint64)
    windows = np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(data, RUN_BYTES))
    return np.unique(windows.view("<u8")[:, 0])


def signatures(texts: Sequence[str]) -> ndarray:
    """Return the smallest hash of the runs of each text, by each of 32 hash functions: uint64 (texts, 32).

    A text without runs has `NO_RUN`.
    """
    encoded = [text.encode(errors="replace") for text in texts]
    ends = np.cumsum(lengths_of(encoded))
    numbers = np.arange(BANDS * BAND_HASHES)
    factors = hash_words(derive_key("near pairs", "factor"), numbers)
    terms = hash_words(derive_key("near pairs", "term"), numbers)
    smallest = np.full((len(texts), len(numbers)), NO_RUN, np.uint64)
    data = np.frombuffer(b"".join(encoded), np.uint8)
    _scan(data, ends, factors | np.uint64(1), terms, smallest)
    return smallest


def _find_candidates(theirs: ndarray, ours: ndarray) -> ndarray:
    """Find pairs (row of `ours`, row of `theirs`) with equal hashes in some band, int64 (pairs, 2)."""
    their_rows = np.flatnonzero((theirs != NO_RUN).any(1))
    our_rows = np.flatnonzero((ours != NO_RUN).any(1))
    their_keys, our_keys = fold(_halves(theirs[their_rows])), fold(_halves(ours[our_rows]))
    pairs = [np.empty((0, 2), np.int64)]
    for keys, our_band in zip(their_keys.T, our_keys.T, strict=True):
        order = np.argsort(keys, kind="stable")
        start = np.searchsorted(keys[order], our_band, side="left")
        end = np.searchsorted(keys[order], our_band, side="right")
        count = np.minimum(end - start, MAX_CANDIDATES)
        # For our row r, the places start[r], start[r] + 1 ... of `order`, count[r] of them.
        owner = np.repeat(np.arange(len(our_rows)), count)
        place = np.repeat(start - (np.cumsum(count) - count), count) + np.arange(len(owner))
        pairs.append(np.stack([our_rows[owner], their_rows[order[place]]], axis=1))
    return np.unique(np.concatenate(pairs), axis=0)


def _halves(signature: ndarray) -> ndarray:
    """Return hashes by band, as 32-bit halves: uint32 (texts, bands, 2 * hashes)."""
    return signature.view(np.uint32).reshape(len(signature), BANDS, 2 * BAND_HASHES)


@compiled
def _scan(data: ndarray, ends: ndarray, factors: ndarray, terms: ndarray, smallest: ndarray) -> None:
    """Lower the entries of `smallest` to the smallest hashes of the runs of each text."""
    place = 0
    for text in range(len(ends)):
        begin = place
        run = np.uint64(0)
        while place < ends[text]:
            # The run moves on by a byte, in the order of little endian.
            run = (run >> np.uint64(8)) | (np.uint64(data[place]) << np.uint64(56))
            place += 1
            if place - begin < RUN_BYTES:
                continue
            mixed = mix_word(run)
            for number in range(len(factors)):
                value = mixed * factors[number] + terms[number]
                if value < smallest[text, number]:
                    smallest[text, number] = value


def fold(hashes: ndarray) -> ndarray:
    """Return a 64-bit key for the MinHash values of each band; uint64 (texts, bands).

    Args:
        hashes: integers (texts, bands, hashes of a band).
    """
    # The number of the band is a part of the key, so that bands never share keys.
    keys = np.broadcast_to(np.arange(hashes.shape[1], dtype=np.uint64), hashes.shape[:2]).copy()
    for column in range(hashes.shape[2]):
        keys = mix(keys ^ hashes[:, :, column].astype(np.uint64))
    return keys
