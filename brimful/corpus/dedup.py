"""Exact duplicates across the corpus: the first of equal documents stays, whatever the later ones are.

Two documents are equal when they differ in blanks at most. The decision about a document depends on
earlier documents only, so text that is added later never changes a finished shard.
"""

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

KEYS_AT_ONCE = 1 << 23


def document_key(text: str) -> int:
    """A 64-bit key of the text without its blanks: among a billion documents, expect 0.03 collisions."""
    return int.from_bytes(blake2b("".join(text.split()).encode(), digest_size=8).digest(), "little")


def keep_first(parts: Sequence[np.ndarray], *, keys_at_once: int = KEYS_AT_ONCE) -> list[np.ndarray]:
    """Which documents are the first with their key.

    The keys are gone through in partitions by their highest bits, so that the memory used for sorting
    stays near `keys_at_once` keys however many there are.

    Args:
        parts: keys in the order of the corpus, uint64 (documents of that part,) each.

    Returns:
        bool arrays shaped as `parts`.
    """
    total = sum(len(part) for part in parts)
    keep = [np.zeros(len(part), bool) for part in parts]
    if total == 0:
        return keep
    bits = ((total - 1) // keys_at_once).bit_length()
    begins = np.cumsum([0, *map(len, parts)])
    for partition in range(1 << bits):
        rows = [_rows_of(part, partition, bits) for part in parts]
        keys = np.concatenate([part[row] for part, row in zip(parts, rows, strict=True)])
        places = np.concatenate([row + begin for row, begin in zip(rows, begins, strict=False)])
        _, first = np.unique(keys, return_index=True)
        chosen = np.sort(places[first])
        for number, flags in enumerate(keep):
            low, high = np.searchsorted(chosen, [begins[number], begins[number + 1]])
            flags[chosen[low:high] - begins[number]] = True
    return keep


def _rows_of(keys: np.ndarray, partition: int, bits: int) -> np.ndarray:
    if bits == 0:
        return np.arange(len(keys))
    return np.flatnonzero(keys >> np.uint64(64 - bits) == partition)
