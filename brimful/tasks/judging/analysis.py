"""What the predictions of a trained classifier say: calibration, abstaining, errors, doubtful labels.

Pure functions of arrays. Logits are float (n, classes), labels int64 (n,). The confidence of a prediction is
the probability of the predicted class.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from brimful.base.randomness import derive_key, shuffled_groups

BINS = 15
TEMPERATURES = (0.05, 20.0)
FOLDS = 5
LEAST_KEPT = 20
"""Fewer dev rows above a threshold say too little about the accuracy there."""


def negative_log_likelihood(logits: np.ndarray, labels: np.ndarray, temperature: float = 1.0) -> float:
    """The mean cross-entropy of softmax(logits / temperature), in nats."""
    logs = log_softmax(logits.astype(np.float64) / temperature, axis=1)
    return float(-np.take_along_axis(logs, labels[:, None], 1).mean())


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """The temperature with the least negative log-likelihood (Guo et al., 2017), within `TEMPERATURES`.

    The likelihood is concave in 1 / temperature, so there is one minimum. Where all rows are right it is the
    lowest temperature, where fewer are right than by chance the highest.
    """

    def loss(logarithm: float) -> float:
        return negative_log_likelihood(logits, labels, float(np.exp(logarithm)))

    low, high = np.log(TEMPERATURES)
    return float(np.exp(minimize_scalar(loss, bounds=(low, high), method="bounded").x))


def confidences(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """The probability of each row's predicted class, float64 (n,)."""
    return softmax(logits.astype(np.float64) / temperature, axis=1).max(1)


@dataclass(frozen=True)
class Reliability:
    """Predictions by confidence, in equal bins of (0, 1]: bin i holds those in (i / bins, (i + 1) / bins].

    Attributes:
        counts: int64 (bins,).
        confidence, accuracy: float64 (bins,), means over each bin; 0 where it is empty.
    """

    counts: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray

    @property
    def error(self) -> float:
        """The expected calibration error: the mean over predictions of |accuracy - confidence| of their bin
        (Naeini et al., 2015; Guo et al., 2017)."""
        weights = self.counts / self.counts.sum()
        return float((weights * np.abs(self.accuracy - self.confidence)).sum())


def reliability(confidence: np.ndarray, correct: np.ndarray, bins: int = BINS) -> Reliability:
    """How often predictions of each confidence are right.

    Args:
        confidence: float (n,) in (0, 1].
        correct: bool (n,).
    """
    edges = np.linspace(0, 1, bins + 1)
    place = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
    counts = np.bincount(place, minlength=bins)
    divisor = np.maximum(counts, 1)
    sums = (np.bincount(place, np.asarray(v, np.float64), minlength=bins) for v in (confidence, correct))
    mean_confidence, accuracy = (values / divisor for values in sums)
    return Reliability(counts, mean_confidence, accuracy)


@dataclass(frozen=True)
class Selection:
    """What answering only from a confidence on gives, for each possible threshold, the highest first.

    Attributes:
        thresholds, coverage, accuracy: float64 (k,); the proportion of rows answered, and right among them.
        kept: int64 (k,), the number of rows answered.
    """

    thresholds: np.ndarray
    coverage: np.ndarray
    accuracy: np.ndarray
    kept: np.ndarray


def selection(confidence: np.ndarray, correct: np.ndarray) -> Selection:
    """The accuracy-coverage curve. Rows of equal confidence are answered together or not at all."""
    order = np.argsort(-confidence, kind="stable")
    ordered = confidence[order]
    last = np.append(ordered[1:] != ordered[:-1], True)
    kept = np.arange(1, len(ordered) + 1)[last]
    return Selection(ordered[last], kept / len(ordered), np.cumsum(correct[order])[last] / kept, kept)


def abstain_threshold(confidence: np.ndarray, correct: np.ndarray, target: float) -> float | None:
    """The lowest threshold at which at least `target` of the answered rows are right; None without one.

    A threshold that keeps fewer than `LEAST_KEPT` rows is none.
    """
    curve = selection(confidence, correct)
    enough = np.flatnonzero((curve.accuracy >= target) & (curve.kept >= LEAST_KEPT))
    return float(curve.thresholds[enough[-1]]) if len(enough) else None


def answered(confidence: np.ndarray, correct: np.ndarray, threshold: float) -> tuple[float, float | None]:
    """The proportion of rows with at least that confidence, and how many of them are right; None of none."""
    kept = confidence >= threshold
    return float(kept.mean()), float(correct[kept].mean()) if kept.any() else None


def confusions(labels: np.ndarray, predicted: np.ndarray) -> list[tuple[int, int, int]]:
    """(label, prediction, rows) of each kind of error, the most frequent first."""
    wrong = labels != predicted
    pairs, rows = np.unique(np.stack([labels, predicted], 1)[wrong], axis=0, return_counts=True)
    order = np.argsort(-rows, kind="stable")
    found = zip(pairs[order].tolist(), rows[order].tolist(), strict=True)
    return [(label, guess, count) for (label, guess), count in found]


def deal_folds(groups: Sequence[object], folds: int = FOLDS) -> np.ndarray:
    """The fold of each row, int64 (n,): rows of equal groups share one, and folds are even in groups."""
    return shuffled_groups(groups, derive_key("folds")) % folds


def out_of_fold(features: np.ndarray, labels: np.ndarray, classes: int, folds: np.ndarray) -> np.ndarray:
    """Probabilities of each row by a logistic regression on the rows of all other folds.

    Features are standardised. Needs scikit-learn.

    Args:
        features: float (n, width).
        folds: int64 (n,), as `deal_folds` gives.

    Returns:
        float64 (n, classes); 0 for a class that the other folds do not have.
    """
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    found = np.zeros((len(labels), classes))
    for fold in np.unique(folds):
        inside = folds == fold
        seen = np.unique(labels[~inside])
        if len(seen) < 2:
            found[np.ix_(inside, seen)] = 1.0
            continue
        model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=300))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(features[~inside], labels[~inside])
        found[np.ix_(inside, seen)] = model.predict_proba(features[inside])
    return found


def likely_mislabelled(probabilities: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose label a model that has not seen them doubts (confident learning: Northcutt et al., 2021).

    A row is doubtful if another class is the most probable among those whose probability is at least the
    mean of that class over the rows that are labelled with it. The first rows are those for which the
    label's probability is farthest below that of the other class. A row whose label has the probability 0 is
    left out: the model has not seen that class.

    Args:
        probabilities: out of fold, float (n, classes).

    Returns:
        The rows, and the class that each probably has, int64 (found,) both.
    """
    every = np.arange(len(labels))
    given = probabilities[every, labels]
    judged = given > 0
    counts = np.bincount(labels[judged], minlength=probabilities.shape[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.bincount(labels, given, minlength=probabilities.shape[1]) / counts
    confident = np.where(probabilities >= np.where(counts, means, np.inf), probabilities, -1.0)
    best = confident.argmax(1)
    rows = np.flatnonzero(judged & (confident.max(1) > given) & (best != labels))
    rows = rows[np.argsort(given[rows] - probabilities[rows, best[rows]], kind="stable")]
    return rows, best[rows]
