"""Draws inside compiled loops: the hash of `randomness` for one word, and the keyed shuffle."""

import numpy as np
from numpy import ndarray

from brimful.base.compiled import compiled
from brimful.base.randomness import hash_words, splitmix

# With fewer rounds or bits, neighbours stay related, and small ranges get some orders more often than others.
_ROUNDS, _MIN_BITS = 6, 6
_ONE = np.uint64(1)

mix_word = compiled(splitmix)
"""`randomness.mix` of one uint64."""
_HALF_BITS, _LOWER_HALF = np.uint64(32), np.uint64(0xFFFFFFFF)
_HALF_UNIT = 1.0 / (1 << 32)


@compiled
def upper_uniform(draw: np.uint64) -> np.float64:
    """Return a number of [0, 1) from the upper half of a draw, which is independent of the lower half."""
    return np.float64(draw >> _HALF_BITS) * _HALF_UNIT


@compiled
def lower_uniform(draw: np.uint64) -> np.float64:
    """Return a number of [0, 1) from the lower half of a draw."""
    return np.float64(draw & _LOWER_HALF) * _HALF_UNIT


@compiled
def count_shuffle_bits(size: int) -> np.uint64:
    """Return the bits of a shuffle of range(size), which walks through range(2**bits)."""
    bits = _MIN_BITS
    while (size - 1) >> bits > 0:
        bits += 1
    return np.uint64(bits)


def make_shuffle_words(keys: np.uint64 | ndarray) -> ndarray:
    """Draw an odd multiplier and an addend for each round of a key's shuffle: uint64 (..., 2 * rounds)."""
    words = hash_words(np.asarray(keys)[..., None], np.arange(2 * _ROUNDS))
    words[..., ::2] |= _ONE
    return words


@compiled
def shuffle_word(x: np.uint64, size: np.uint64, bits: np.uint64, words: ndarray) -> np.uint64:
    """Return the place to which the shuffle of range(size) puts x.

    A round is a bijection of words of a few bits: it multiplies by an odd number, adds a number, and combines
    the lower half with the upper by exclusive or. A result outside range(size) goes through the rounds again,
    as in Kensler, "Correlated Multi-Jittered Sampling" (Pixar Technical Memo 13-01, 2013).

    Args:
        bits: `count_shuffle_bits(size)`.
        words: `make_shuffle_words` of the key, uint64 (2 * rounds,).
    """
    mask, half = (_ONE << bits) - _ONE, (bits + _ONE) >> _ONE
    # Unless size is tiny, range(size) is more than half of range(2**bits): less than half the results go on.
    while True:
        for i in range(0, len(words), 2):
            x = (x * words[i] + words[i + 1]) & mask
            x ^= x >> half
        if x < size:
            return x


@compiled
def _shuffle(indices: ndarray, size: int, words: ndarray) -> ndarray:
    places = np.empty(len(indices), np.int64)
    bits = count_shuffle_bits(size)
    for n in range(len(indices)):
        places[n] = np.int64(shuffle_word(np.uint64(indices[n]), np.uint64(size), bits, words))
    return places


def shuffle_indices(key: np.uint64, index: ndarray, size: int) -> ndarray:
    """Return the place of each index, of any shape, in the shuffle of range(size) under `key`, as int64.

    Raises:
        ValueError: an index is outside range(size).
    """
    index = np.asarray(index)
    if index.size and not 0 <= index.min() <= index.max() < size:
        raise ValueError(f"an index is outside range({size})")
    return _shuffle(index.ravel().astype(np.int64), size, make_shuffle_words(key)).reshape(index.shape)
