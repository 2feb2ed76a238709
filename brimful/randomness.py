"""Counter-based randomness: every draw is a pure function of its key and counter.

No generator object, no stream: the value at (seed, epoch, index) is the same whoever asks, in whatever
order, on any number of workers. The hash is splitmix64's finaliser (Steele, Lea and Flood, 2014), a
bijection of 64-bit words whose values no library version can change.
"""

import hashlib

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_A = np.uint64(0xBF58476D1CE4E5B9)
_B = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = (np.uint64(shift) for shift in (30, 27, 31, 11))
# Of a shuffle: with fewer, neighbours stay related and small ranges get some orders more often than others.
_ROUNDS, _LEAST_BITS = 6, 6


def mix(words: np.ndarray) -> np.ndarray:
    """splitmix64's finaliser on uint64 words of any shape."""
    with np.errstate(over="ignore"):  # numpy warns of a scalar that wraps round, never of an array
        x = np.asarray(words, dtype=np.uint64) + _GOLDEN
        x = (x ^ (x >> _S30)) * _A
        x = (x ^ (x >> _S27)) * _B
        return x ^ (x >> _S31)


def derive_key(*parts: int | str) -> np.uint64:
    """One 64-bit key from integers and names, in order: `derive_key(seed, "rows", epoch)`."""
    state = np.zeros(1, dtype=np.uint64)
    for part in parts:
        if isinstance(part, str):
            word = int.from_bytes(hashlib.blake2b(part.encode(), digest_size=8).digest(), "little")
        else:
            word = int(part) & 0xFFFFFFFFFFFFFFFF
        state = mix(state ^ mix(np.array([word], dtype=np.uint64)))
    return state[0]


def hash_words(key: np.uint64 | np.ndarray, counters: np.ndarray) -> np.ndarray:
    """uint64 hashes of `counters` (integers of any shape) under `key`, one or an array to broadcast."""
    return mix(mix(np.asarray(counters).astype(np.uint64)) ^ key)


def uniform(key: np.uint64, counters: np.ndarray) -> np.ndarray:
    """float64 draws in [0, 1), one for each counter, 53 bits each."""
    return (hash_words(key, counters) >> _S11) * (1.0 / (1 << 53))


def permutation(size: int, key: np.uint64) -> np.ndarray:
    """A permutation of range(size), int64: the order of the counters' hashes."""
    return np.argsort(hash_words(key, np.arange(size)), kind="stable")


def shuffle_bits(size: int) -> int:
    """A shuffle of range(size) walks through range(2**bits), which is never tiny."""
    return max((size - 1).bit_length(), _LEAST_BITS)


def shuffle_words(keys: np.uint64 | np.ndarray) -> np.ndarray:
    """uint64 (..., 2 * rounds): an odd multiplier and an addend for each round of the shuffle under a key."""
    words = hash_words(np.asarray(keys)[..., None], np.arange(2 * _ROUNDS))
    words[..., ::2] |= np.uint64(1)
    return words


def shuffled_index(key: np.uint64, index: np.ndarray, size: int) -> np.ndarray:
    """Where the shuffle of range(size) under `key` puts each index, int64: a permutation without a table.

    A round is a bijection of words of a few bits: times an odd number, plus a number, and the upper half laid
    over the lower by exclusive or. What then lies outside range(size) goes through the rounds again, as in
    Kensler, "Correlated Multi-Jittered Sampling" (Pixar Technical Memo 13-01, 2013).

    Args:
        index: int, of any shape, in range(size).

    Raises:
        ValueError: an index is outside range(size).
    """
    index = np.asarray(index)
    if index.size and not 0 <= index.min() <= index.max() < size:
        raise ValueError(f"an index is outside range({size})")
    bits = shuffle_bits(size)
    mask, half = np.uint64((1 << bits) - 1), np.uint64((bits + 1) // 2)
    words = shuffle_words(key)
    shuffled = index.astype(np.uint64).ravel()
    outside = np.arange(len(shuffled))
    while len(outside):
        x = shuffled[outside]
        for times, plus in words.reshape(-1, 2):
            x = (x * times + plus) & mask
            x ^= x >> half
        shuffled[outside] = x
        outside = outside[x >= np.uint64(size)]
    return shuffled.astype(np.int64).reshape(index.shape)
