"""Near duplicates between two lists of texts, such as the tables of training and test, or within one.

A text is the set of its runs of eight bytes: eight Latin letters, or nearly three Chinese characters. MinHash
(Broder, 1997) with banding (Leskovec et al., Mining of Massive Datasets, 3.4) finds candidates: a pair of
Jaccard similarity s is one with probability 1 - (1 - s^4)^8, which is 0.89 at s = 0.7 and 0.98 at 0.8. The
similarity of the best candidate is then computed exactly, so nothing is reported that is less alike. In what
order the texts stand changes nothing.
"""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np

from brimful.base.compiled import compiled
from brimful.base.draws import mix_word
from brimful.base.randomness import derive_key, hash_words
from brimful.corpus.dedup.keys import fold

RUN = 8
"""Bytes of a run, which is one uint64."""
BANDS, BAND_HASHES = 8, 4
MIN_SIMILARITY = 0.7
MOST_CANDIDATES = 8
"""Compared texts of a band with equal hashes: boilerplate can make thousands equal."""
LEAST_EQUAL = 16
"""Of the 32 hashes, for the sets of a candidate to be compared: with s = 0.7 one in 1,000 has fewer."""
KEPT_SETS = 1 << 14
"""Texts whose runs are in memory; one takes eight bytes a byte."""
AT_ONCE = 1 << 16


def find_near_pairs(
    known: Sequence[str], asked: Sequence[str], least: float = MIN_SIMILARITY
) -> tuple[np.ndarray, np.ndarray]:
    """For each text of `asked`, a text of `known` that is almost the same. Texts under 8 bytes have none.

    Args:
        least: the least Jaccard similarity.

    Returns:
        The index in `known` or -1, int64 (asked,), and the similarity, float64 (asked,), 0 without a match.
    """
    match = np.full(len(asked), -1, dtype=np.int64)
    alike = np.zeros(len(asked))
    if not known or not asked:
        return match, alike
    order = _by_content(known)
    there, here = signatures([known[place] for place in order.tolist()]), signatures(asked)
    pairs = _candidates(there, here)
    agreement = _agreement(here, there, pairs)
    pairs = pairs[np.lexsort((pairs[:, 1], -agreement, pairs[:, 0]))]
    first = np.unique(pairs[:, 0], return_index=True)[1]
    pairs[:, 1] = order[pairs[:, 1]]
    for row, other in pairs[first].tolist():
        similarity = jaccard(asked[row], known[other])
        if similarity >= least:
            match[row], alike[row] = other, similarity
    return match, alike


def find_near_groups(texts: Sequence[str], together: np.ndarray, least: float = MIN_SIMILARITY) -> np.ndarray:
    """The group of each text, int64 (n,): texts that are almost the same share one, and so do their others.

    Of texts with equal hashes in a band, each is compared with the first `MOST_CANDIDATES` by content.

    Args:
        together: int64 (n,), texts of the same number share a group whatever they are.
        least: the least Jaccard similarity of two texts that are almost the same.

    Returns:
        for each text the first text of its group.
    """
    first: dict[int, int] = {}
    group = [first.setdefault(number, text) for text, number in enumerate(together.tolist())]

    def root(text: int) -> int:
        while group[text] != text:
            group[text] = text = group[group[text]]
        return text

    runs = lru_cache(KEPT_SETS)(lambda text: _runs(texts[text]))
    order = _by_content(texts)
    signature = signatures([texts[place] for place in order.tolist()])
    pairs = _candidates(signature, signature)
    pairs = pairs[pairs[:, 0] > pairs[:, 1]]
    for one, other in order[pairs[_agreement(signature, signature, pairs) >= LEAST_EQUAL]].tolist():
        lower, higher = sorted((root(one), root(other)))
        if lower != higher and _similarity(runs(one), runs(other)) >= least:
            group[higher] = lower
    return np.array([root(text) for text in range(len(texts))], dtype=np.int64)


def _by_content(texts: Sequence[str]) -> np.ndarray:
    """int64 (n,), an order of the texts that does not depend on the one they stand in."""
    digests = (blake2b(text.encode(errors="replace"), digest_size=8).digest() for text in texts)
    return np.argsort(np.frombuffer(b"".join(digests), dtype="<u8"), kind="stable")


def _agreement(ours: np.ndarray, theirs: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """int64 (pairs,), how many hashes are equal in two rows: a 32nd of it estimates the similarity."""
    starts = range(0, max(len(pairs), 1), AT_ONCE)
    parts = [pairs[start : start + AT_ONCE] for start in starts]
    return np.concatenate([(ours[part[:, 0]] == theirs[part[:, 1]]).sum(1) for part in parts])


def jaccard(first: str, second: str) -> float:
    """The Jaccard similarity of the sets of runs of two texts; 0 where one has none."""
    return float(_similarity(_runs(first), _runs(second)))


@compiled
def _similarity(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The Jaccard similarity of two sets, uint64, ascending; 0 where one is empty."""
    both = here = there = 0
    while here < len(ours) and there < len(theirs):
        both += ours[here] == theirs[there]
        step = ours[here] <= theirs[there]
        there += theirs[there] <= ours[here]
        here += step
    return both / max(len(ours) + len(theirs) - both, 1)


def _runs(text: str) -> np.ndarray:
    """The different runs of a text, uint64."""
    data = np.frombuffer(text.encode(errors="replace"), np.uint8)
    if len(data) < RUN:
        return np.empty(0, np.uint64)
    windows = np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(data, RUN))
    return np.unique(windows.view("<u8")[:, 0])


def signatures(texts: Sequence[str]) -> np.ndarray:
    """The smallest hash of the runs of each text, under each of 32 hash functions: uint64 (texts, 32).

    A text without runs has the largest uint64.
    """
    encoded = [text.encode(errors="replace") for text in texts]
    ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))
    factors, terms = (
        hash_words(derive_key("near pairs", name), np.arange(BANDS * BAND_HASHES))
        for name in ("factor", "term")
    )
    smallest = np.full((len(texts), BANDS * BAND_HASHES), np.iinfo(np.uint64).max, np.uint64)
    data = np.frombuffer(b"".join(encoded), np.uint8)
    _scan(data, ends, factors | np.uint64(1), terms, smallest)
    return smallest


def _candidates(there: np.ndarray, here: np.ndarray) -> np.ndarray:
    """Pairs (row of `here`, row of `there`) with equal hashes in some band, each once: int64 (pairs, 2)."""
    keys, asked = (fold(_halves(signature)) for signature in (there, here))
    filled = np.flatnonzero((there != np.iinfo(np.uint64).max).any(1))
    rows = np.flatnonzero((here != np.iinfo(np.uint64).max).any(1))
    found = [np.empty((0, 2), np.int64)]
    for band in range(BANDS):
        order = filled[np.argsort(keys[filled, band], kind="stable")]
        ordered, wanted = keys[order, band], asked[rows, band]
        start = np.searchsorted(ordered, wanted, side="left")
        count = np.minimum(np.searchsorted(ordered, wanted, side="right") - start, MOST_CANDIDATES)
        owner = np.repeat(np.arange(len(rows)), count)
        place = np.repeat(start - (np.cumsum(count) - count), count) + np.arange(len(owner))
        found.append(np.stack([rows[owner], order[place]], axis=1))
    return np.unique(np.concatenate(found), axis=0)


def _halves(signature: np.ndarray) -> np.ndarray:
    """Hashes by band, as 32-bit halves: uint32 (texts, bands, 2 * hashes)."""
    return signature.view(np.uint32).reshape(len(signature), BANDS, 2 * BAND_HASHES)


@compiled
def _scan(
    data: np.ndarray, ends: np.ndarray, factors: np.ndarray, terms: np.ndarray, out: np.ndarray
) -> None:
    """The smallest hashes of the runs of each text, into `out`."""
    place = 0
    for text in range(len(ends)):
        begin = place
        run = np.uint64(0)
        while place < ends[text]:
            run = (run >> np.uint64(8)) | (np.uint64(data[place]) << np.uint64(56))
            place += 1
            if place - begin < RUN:
                continue
            mixed = mix_word(run)
            for number in range(len(factors)):
                value = mixed * factors[number] + terms[number]
                if value < out[text, number]:
                    out[text, number] = value
