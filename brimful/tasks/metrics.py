"""How good predictions are, and how sure one can be of a difference."""

import numpy as np

from brimful.randomness import derive_key, hash_words

RESAMPLES = 10_000


def classification_figures(predicted: np.ndarray, labels: np.ndarray, classes: int) -> dict[str, float]:
    """Accuracy, F1 averaged over the classes, and n; both arguments int64 (n,)."""
    scores = []
    for c in range(classes):
        hits = float(((predicted == c) & (labels == c)).sum())
        errors = float(((predicted == c) ^ (labels == c)).sum())
        scores.append(2 * hits / (2 * hits + errors) if hits + errors else 0.0)
    return {
        "accuracy": float((predicted == labels).mean()),
        "f1": float(np.mean(scores)),
        "n": len(labels),
    }


def paired_bootstrap(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Difference of two accuracies on the same examples, and its standard error.

    The examples are resampled with both models' answers kept together (Efron and Tibshirani, 1993; paired:
    Koehn, 2004), so what is hard for both adds nothing to the error.

    Args:
        first, second: bool (n,), whether each example was answered correctly.
    """
    difference = first.astype(np.float64) - second.astype(np.float64)
    n = len(difference)
    draws = np.empty(RESAMPLES)
    for resample in range(RESAMPLES):
        chosen = hash_words(derive_key("bootstrap", resample), np.arange(n)) % np.uint64(n)
        draws[resample] = difference[chosen].mean()
    return float(difference.mean()), float(draws.std(ddof=1))
