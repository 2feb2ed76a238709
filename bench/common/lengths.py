"""Lengths of sequences for the benches: a histogram, samples of it, and batches of similar lengths.

A step holds few sequences, and 32 random ones may have another padding factor than the whole. So a
sample of n takes the lengths at the even quantiles (i + 1/2) / n of the distribution, in random order: its
mean length, and so its padding factor, equals the whole's to within the width of a quantile.
"""

import json
import sys
from pathlib import Path

import numpy as np

import brimful.packing

# Not packing.histogram, which needs msgspec: bench.gpu has five packages.
WIKIPEDIA = Path(brimful.packing.__path__[0]) / "histograms" / "wikipedia-512.json"
MEGABATCH = 50  # batches that transformers' length grouping sorts together


def read_histogram(file: Path | None, capacity: int) -> np.ndarray:
    """int64 (capacity + 1,): how many sequences there are of each length.

    Args:
        file: JSON {"counts": [...]}, counts[i] sequences of i + 1 tokens; by default Wikipedia's at 512.
    """
    file = file or WIKIPEDIA
    given = json.loads(file.read_text(encoding="utf-8"))["counts"]
    if len(given) > capacity:
        sys.exit(f"bench: {file} has lengths up to {len(given)}, above the capacity of {capacity}")
    counts = np.zeros(capacity + 1, dtype=np.int64)
    counts[1 : len(given) + 1] = given
    return counts


def quantile_sample(counts: np.ndarray, size: int, seed: int) -> list[int]:
    """`size` lengths at even quantiles of the distribution, in random order."""
    below = np.cumsum(counts) / counts.sum()
    lengths = np.searchsorted(below, (np.arange(size) + 0.5) / size)
    return np.random.default_rng(seed).permutation(lengths).tolist()


def cut(lengths: list[int], longest: int) -> list[int]:
    """The same sequences cut into pieces of at most `longest` tokens."""
    pieces = []
    for length in lengths:
        pieces += [longest] * (length // longest) + [length % longest] * (length % longest > 0)
    return pieces


def length_grouped(lengths: list[int], batch_size: int) -> list[list[int]]:
    """Batches of a megabatch as `group_by_length` of transformers makes them: sorted, the longest first."""
    ordered = sorted(lengths, reverse=True)
    return [ordered[start : start + batch_size] for start in range(0, len(ordered), batch_size)]


def evenly_spaced(batches: list[list[int]], most: int) -> list[list[int]]:
    """`most` of the batches at even quantiles of the list, or all of them."""
    most = min(most, len(batches))
    return [batches[int((i + 0.5) * len(batches) / most)] for i in range(most)]
