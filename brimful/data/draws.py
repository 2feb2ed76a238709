"""`randomness.mix` for compiled loops: one word, no array. The values are the same (tested)."""

import numpy as np

from brimful.compiled import compiled

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_A = np.uint64(0xBF58476D1CE4E5B9)
_B = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = (np.uint64(shift) for shift in (30, 27, 31))


@compiled
def mix_word(word: np.uint64) -> np.uint64:
    """splitmix64's finaliser. It will never change, so what calls it may stay compiled."""
    x = word + _GOLDEN
    x = (x ^ (x >> _S30)) * _A
    x = (x ^ (x >> _S27)) * _B
    return x ^ (x >> _S31)
