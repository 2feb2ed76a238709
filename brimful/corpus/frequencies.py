"""How often each piece of the vocabulary occurs in a corpus."""

import math
from collections.abc import Iterator, Mapping

import numpy as np

from brimful.corpus.shards import Corpus

SAMPLE = 4_000_000
"""Tokens that are counted of a corpus, a few milliseconds of work."""
RUN = 4096
"""Tokens that are read in a row."""


def sampled_runs(corpus: Corpus, most: int) -> Iterator[np.ndarray]:
    """Runs of tokens at equal distances, together about `most` tokens: they depend on the corpus alone."""
    step = max(1, math.ceil(corpus.tokens / most))
    for shard in corpus.shards:
        for start in range(0, len(shard.tokens), RUN * step):
            yield shard.tokens[start : start + RUN]


def piece_counts(corpus: Corpus, most: int = SAMPLE) -> np.ndarray:
    """How often each piece occurs, int64 (V,), in about `most` tokens."""
    counts = np.zeros(corpus.vocabulary_size, np.int64)
    for run in sampled_runs(corpus, most):
        counts += np.bincount(run, minlength=len(counts))
    return counts


def piece_frequencies(corpora: Mapping[Corpus, float]) -> np.ndarray:
    """The proportion of each piece in the tokens of corpora, each with its share of them: float64 (V,)."""
    whole = sum(corpora.values())
    frequencies = np.zeros(next(iter(corpora)).vocabulary_size)
    for corpus, share in corpora.items():
        counts = piece_counts(corpus)
        frequencies += share / whole * counts / counts.sum()
    return frequencies


def entropy(frequencies: np.ndarray) -> float:
    """The entropy in nats of frequencies (V,), which need not add up to 1."""
    shares = frequencies[frequencies > 0] / frequencies.sum()
    return float(-(shares * np.log(shares)).sum())
