"""Lengths of sequences for the benches: a histogram, samples of it, and batches of similar lengths.

A step holds few sequences, and 32 random ones may have another padding factor than the whole. So a
sample of n takes the lengths at the even quantiles (i + 1/2) / n of the distribution, in random order: its
mean length, and so its padding factor, equals the whole's to within the width of a quantile.
"""

import json
from pathlib import Path

import numpy as np

import brimful.packing

# Not packing.histogram, which needs msgspec: bench.gpu has five packages.
WIKIPEDIA = Path(brimful.packing.__path__[0]) / "histograms" / "wikipedia-512.json"
MEGABATCH = 50  # batches that transformers' length grouping sorts together
CAREFUL_BATCHES = 5  # of them that are measured


def read_wikipedia() -> np.ndarray:
    """int64 (513,): how many sequences of each length Wikipedia has at 512."""
    counts = json.loads(WIKIPEDIA.read_text(encoding="utf-8"))["counts"]
    return np.array([0, *counts], dtype=np.int64)


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


def careful_batches(sequences: int, longest: int, batch_size: int) -> list[list[int]]:
    """`CAREFUL_BATCHES` of a sample in length-grouped batches, which are of `sequences` before the cut."""
    lengths = quantile_sample(read_wikipedia(), MEGABATCH * sequences, seed=0)
    return evenly_spaced(length_grouped(cut(lengths, longest), batch_size), CAREFUL_BATCHES)


def evenly_spaced(batches: list[list[int]], most: int) -> list[list[int]]:
    """`most` of the batches at even quantiles of the list, or all of them."""
    most = min(most, len(batches))
    return [batches[int((i + 0.5) * len(batches) / most)] for i in range(most)]
