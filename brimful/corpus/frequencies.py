"""The frequencies of the pieces of the vocabulary in a corpus."""

import math
from collections.abc import Iterator, Mapping

import numpy as np
from numpy import ndarray

from brimful.corpus.shards import Corpus

# A few milliseconds of work.
SAMPLE_TOKENS = 4_000_000
RUN_TOKENS = 4096


def sampled_runs(corpus: Corpus, most: int) -> Iterator[ndarray]:
    """Yield runs of tokens at equal distances, about `most` tokens in all, the same in each call."""
    step = max(1, math.ceil(corpus.tokens / most))
    for shard in corpus.shards:
        for start in range(0, len(shard.tokens), RUN_TOKENS * step):
            yield shard.tokens[start : start + RUN_TOKENS]


def piece_counts(corpus: Corpus, most: int = SAMPLE_TOKENS) -> ndarray:
    """Count how often each piece occurs in about `most` tokens, int64 (V,)."""
    counts = np.zeros(corpus.vocabulary_size, np.int64)
    for run in sampled_runs(corpus, most):
        counts += np.bincount(run, minlength=len(counts))
    return counts


def piece_frequencies(corpora: Mapping[Corpus, float]) -> ndarray:
    """Return the proportion of each piece in a mixture of corpora with these weights, float64 (V,)."""
    whole = sum(corpora.values())
    frequencies = np.zeros(next(iter(corpora)).vocabulary_size)
    for corpus, share in corpora.items():
        counts = piece_counts(corpus)
        frequencies += share / whole * counts / counts.sum()
    return frequencies


def entropy(frequencies: ndarray) -> float:
    """Return the entropy of frequencies (V,), which need not add up to 1, in nats."""
    shares = frequencies[frequencies > 0] / frequencies.sum()
    return float(-(shares * np.log(shares)).sum())
