"""How often each piece of the vocabulary occurs in a corpus."""

import math
from collections.abc import Mapping

import numpy as np

from brimful.corpus.shards import Corpus

SAMPLE = 4_000_000
"""Tokens that are counted of a corpus, a few milliseconds of work."""
RUN = 4096
"""Tokens that are counted in a row."""


def piece_counts(corpus: Corpus, most: int = SAMPLE) -> np.ndarray:
    """How often each piece occurs, int64 (V,), in about `most` tokens.

    Of a larger corpus, runs of tokens at equal distances count, so the result depends on the corpus alone.
    """
    counts = np.zeros(corpus.vocabulary_size, np.int64)
    step = max(1, math.ceil(corpus.tokens / most))
    for shard in corpus.shards:
        for start in range(0, len(shard.tokens), RUN * step):
            counts += np.bincount(shard.tokens[start : start + RUN], minlength=len(counts))
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
