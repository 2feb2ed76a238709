"""How sure one can be of a metric, and of a difference between two models."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from brimful.base.randomness import derive_key, hash_words, shuffled_groups

PARTS = 40
"""Parts of the examples that `jackknifed` leaves out in turn."""


class Uncertain(NamedTuple):
    """The metrics of m models on the same examples.

    Attributes:
        values: float64 (m,).
        covariance: float64 (m, m), of their errors, since the examples are one sample of many.
    """

    values: np.ndarray
    covariance: np.ndarray

    def difference(self, first: int, second: int) -> tuple[float, float]:
        """Of two of them, and its standard error."""
        signs = np.zeros(len(self.values))
        signs[first] += 1.0
        signs[second] -= 1.0
        variance = signs @ self.covariance @ signs
        return float(signs @ self.values), float(np.sqrt(max(variance, 0.0)))


Measure = Callable[[np.ndarray], Sequence[float]]
"""int64 (n,), examples, some of them several times -> the metric of each of m models on them."""


def bootstrapped(measure: Measure, n: int, resamples: int = 1000) -> Uncertain:
    """The examples are resampled with the answers of all models kept together (Efron and Tibshirani, 1993;
    paired: Koehn, 2004), so an example that is hard for all adds nothing to the error of a difference."""
    draws = []
    for resample in range(resamples):
        chosen = hash_words(derive_key("bootstrap", resample), np.arange(n)) % np.uint64(n)
        draws.append(measure(chosen.astype(np.int64)))
    return Uncertain(np.array(measure(np.arange(n))), np.atleast_2d(np.cov(np.array(draws).T)))


def jackknifed(measure: Measure, groups: Sequence[object]) -> Uncertain:
    """The same in few measurements, for metrics that take long: each leaves out one of 40 parts of the
    examples, drawn at random (Efron and Tibshirani, 1993, chapter 11). Those of equal groups are in one part.
    """
    place = shuffled_groups(groups if len(set(groups)) > 1 else range(len(groups)), derive_key("jackknife"))
    parts = min(PARTS, int(place.max()) + 1)
    left = np.array([measure(np.flatnonzero(place % parts != part)) for part in range(parts)])
    values = np.array(measure(np.arange(len(place))))
    return Uncertain(values, (parts - 1) * np.atleast_2d(np.cov(left.T, bias=True)))


def over_seeds(measured: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """The metrics of one seed; of several seeds the mean of each metric, its standard deviation (METRIC_std)
    and each value (METRIC_runs)."""
    if len(measured) == 1:
        return dict(measured[0])
    found: dict[str, Any] = {}
    for name in measured[0]:
        runs = [each[name] for each in measured]
        if name == "n":
            found[name] = runs[0]
        else:
            found |= {name: float(np.mean(runs)), f"{name}_std": float(np.std(runs, ddof=1))}
            found[f"{name}_runs"] = runs
    return found
