"""How sure one can be of a difference between two models."""

from collections.abc import Callable

import numpy as np

from brimful.randomness import derive_key, hash_words

RESAMPLES = 10_000


def paired_bootstrap(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Difference of two mean scores on the same examples, and its standard error.

    The examples are resampled with the scores of both models kept together (Efron and Tibshirani, 1993;
    paired: Koehn, 2004), so an example that is hard for both models adds nothing to the error.

    Args:
        first, second: bool or float (n,), the score of each example: whether the prediction is right, or a
            squared error.
    """
    difference = first.astype(np.float64) - second.astype(np.float64)
    n = len(difference)
    draws = np.empty(RESAMPLES)
    for resample in range(RESAMPLES):
        chosen = hash_words(derive_key("bootstrap", resample), np.arange(n)) % np.uint64(n)
        draws[resample] = difference[chosen].mean()
    return float(difference.mean()), float(draws.std(ddof=1))


def paired_bootstrap_of(
    measure: Callable[[np.ndarray], tuple[float, float]], n: int, resamples: int = 1000
) -> tuple[float, float]:
    """As `paired_bootstrap`, for a metric that is not a mean over examples, such as F1 or a correlation.

    Args:
        measure: int64 (n,), the examples that are drawn -> the metric of both models on them.
    """
    first, second = measure(np.arange(n))
    draws = np.empty(resamples)
    for resample in range(resamples):
        chosen = (hash_words(derive_key("bootstrap", resample), np.arange(n)) % np.uint64(n)).astype(np.int64)
        ours, theirs = measure(chosen)
        draws[resample] = ours - theirs
    return first - second, float(draws.std(ddof=1))
