"""How sure one can be of a difference between two models."""

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
