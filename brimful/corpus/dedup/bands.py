"""The keys of the bands of MinHash signatures."""

import numpy as np

from brimful.base.randomness import mix


def fold(hashes: np.ndarray) -> np.ndarray:
    """One 64-bit key for the hashes of each band; bands never share keys; uint64 (texts, bands)."""
    keys = np.broadcast_to(np.arange(hashes.shape[1], dtype=np.uint64), hashes.shape[:2]).copy()
    for column in range(hashes.shape[2]):
        keys = mix(keys ^ hashes[:, :, column].astype(np.uint64))
    return keys
