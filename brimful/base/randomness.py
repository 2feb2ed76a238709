"""Counter-based randomness: every draw is a pure function of its key and counter.

Generators and streams are not used: the value at (seed, epoch, index) is the same in any order, on any number
of workers. The hash is splitmix64's finaliser (Steele, Lea and Flood, 2014), a bijection of 64-bit words,
which is the same with every version of every library.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy import ndarray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_A = np.uint64(0xBF58476D1CE4E5B9)
_B = np.uint64(0x94D049BB133111EB)
# As uint64, since a compiled loop would make a float of a uint64 and an int.
_S30, _S27, _S31, _S11 = np.array([30, 27, 31, 11], dtype=np.uint64)


def splitmix(word: Any) -> Any:
    """Apply splitmix64's finaliser to a uint64 in a compiled loop, or to an array."""
    x = word + _GOLDEN
    x = (x ^ (x >> _S30)) * _A
    x = (x ^ (x >> _S27)) * _B
    return x ^ (x >> _S31)


def mix(words: ndarray) -> ndarray:
    """Apply splitmix64's finaliser to uint64 words of any shape."""
    with np.errstate(over="ignore"):  # numpy warns of a scalar that wraps round, never of an array
        return splitmix(np.asarray(words, dtype=np.uint64))


def derive_key(*parts: int | str) -> np.uint64:
    """Derive a 64-bit key from integers and names, in order: `derive_key(seed, "rows", epoch)`."""
    state = np.zeros(1, dtype=np.uint64)
    for part in parts:
        if isinstance(part, str):
            word = int.from_bytes(hashlib.blake2b(part.encode(), digest_size=8).digest(), "little")
        else:
            word = int(part) & 0xFFFFFFFFFFFFFFFF  # negative seeds wrap round
        state = mix(state ^ mix(np.array([word], dtype=np.uint64)))
    return state[0]


def hash_words(key: np.uint64 | ndarray, counters: ndarray) -> ndarray:
    """Hash `counters` (integers of any shape) under `key`, one key or an array to broadcast, as uint64."""
    return mix(mix(np.asarray(counters).astype(np.uint64)) ^ key)


def draw_uniform(key: np.uint64, counters: ndarray) -> ndarray:
    """Draw a float64 in [0, 1) for each counter, with 53 random bits."""
    return (hash_words(key, counters) >> _S11) * (1.0 / (1 << 53))


def permutation(size: int, key: np.uint64) -> ndarray:
    """Return a permutation of range(size), int64: the order of the counters' hashes."""
    return np.argsort(hash_words(key, np.arange(size)), kind="stable")


def shuffle_groups(groups: Sequence[object], key: np.uint64) -> ndarray:
    """Return the place of each item's group in a random order of the groups, int64 (n,).

    A group's place depends on its `repr`, not on where its items stand.
    """
    numbers: dict[object, int] = {}
    digests = b""
    for group in groups:
        if group not in numbers:
            numbers[group] = len(numbers)
            digests += hashlib.blake2b(repr(group).encode(), digest_size=8).digest()
    order = np.argsort(hash_words(key, np.frombuffer(digests, dtype="<u8")), kind="stable")
    places = np.empty(len(numbers), dtype=np.int64)
    places[order] = np.arange(len(numbers))
    return places[[numbers[group] for group in groups]]
