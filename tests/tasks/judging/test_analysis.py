"""Calibration, abstaining, confusion and doubtful labels, each against an independent computation."""

import numpy as np
import pytest
from scipy.special import softmax

from brimful.tasks.judging.analysis import (
    LEAST_KEPT,
    TEMPERATURES,
    abstain_threshold,
    answered,
    confidences,
    confusions,
    deal_folds,
    fit_temperature,
    likely_mislabelled,
    negative_log_likelihood,
    out_of_fold,
    reliability,
    selection,
)


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def drawn(
    rng: np.random.Generator, n: int, classes: int, temperature: float
) -> tuple[np.ndarray, np.ndarray]:
    """Logits, and labels drawn from softmax(logits / temperature)."""
    logits = rng.normal(0, 4, (n, classes)).astype(np.float32)
    chances = softmax(logits.astype(np.float64) / temperature, axis=1)
    labels = (rng.random((n, 1)) > chances.cumsum(1)).sum(1).clip(max=classes - 1)
    return logits, labels


def naive_error(confidence: np.ndarray, correct: np.ndarray, bins: int) -> float:
    """The expected calibration error by its definition, one bin and one row at a time."""
    total = 0.0
    for i in range(bins):
        low, high = np.linspace(0, 1, bins + 1)[[i, i + 1]]
        inside = [(c, r) for c, r in zip(confidence, correct, strict=True) if low < c <= high]
        if inside:
            accuracy = sum(r for _, r in inside) / len(inside)
            mean = sum(c for c, _ in inside) / len(inside)
            total += len(inside) / len(confidence) * abs(accuracy - mean)
    return total


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5])
def test_the_temperature_that_drew_the_labels_is_found(rng, temperature: float) -> None:
    logits, labels = drawn(rng, 100_000, 4, temperature)
    found = fit_temperature(logits, labels)
    assert found == pytest.approx(temperature, rel=0.05)  # seven standard errors at 0.5, more above
    grid = np.exp(np.linspace(*np.log(TEMPERATURES), 2000))
    losses = [negative_log_likelihood(logits[:500], labels[:500], t) for t in grid]
    best = fit_temperature(logits[:500], labels[:500])
    assert negative_log_likelihood(logits[:500], labels[:500], best) <= min(losses) + 1e-7


def test_the_temperature_is_bounded_and_the_loss_is_the_cross_entropy(rng) -> None:
    logits, _ = drawn(rng, 50, 3, 1.0)
    assert fit_temperature(logits, logits.argmax(1)) == pytest.approx(TEMPERATURES[0], rel=1e-3)
    assert fit_temperature(logits, logits.argmin(1)) == pytest.approx(TEMPERATURES[1], rel=1e-3)
    labels = rng.integers(0, 3, 50)
    expected = -np.mean(
        [np.log(softmax(row / 2.0)[label]) for row, label in zip(logits, labels, strict=True)]
    )
    assert negative_log_likelihood(logits, labels, 2.0) == pytest.approx(expected, rel=1e-6)


def test_the_calibration_error_is_that_of_its_definition(rng) -> None:
    for n, bins in ((1, 15), (7, 15), (400, 15), (400, 4)):
        confidence = rng.random(n)
        confidence[: n // 3] = rng.choice(np.linspace(0, 1, bins + 1)[1:], n // 3)  # on the edges
        correct = rng.random(n) < confidence
        assert reliability(confidence, correct, bins).error == pytest.approx(
            naive_error(confidence, correct, bins), abs=1e-12
        )


def test_a_fitted_temperature_calibrates(rng) -> None:
    logits, labels = drawn(rng, 20_000, 3, 3.0)
    correct = logits.argmax(1) == labels
    before = reliability(confidences(logits), correct)
    after = reliability(confidences(logits, fit_temperature(logits, labels)), correct)
    assert before.counts.sum() == after.counts.sum() == 20_000
    assert before.error > 0.1
    assert after.error < 0.02


def test_abstaining_keeps_as_much_as_the_target_allows(rng) -> None:
    confidence = rng.choice(np.linspace(0.3, 1, 40), 300)  # with ties
    correct = rng.random(300) < confidence**2
    curve = selection(confidence, correct)
    for threshold, coverage, accuracy in zip(curve.thresholds, curve.coverage, curve.accuracy, strict=True):
        kept = confidence >= threshold
        assert coverage == pytest.approx(kept.mean())
        assert accuracy == pytest.approx(correct[kept].mean())
        assert answered(confidence, correct, threshold) == pytest.approx((coverage, accuracy))
    assert curve.coverage[-1] == 1
    target = float((correct.mean() + 1) / 2)
    threshold = abstain_threshold(confidence, correct, target)
    assert threshold is not None
    possible = [
        value
        for value in np.unique(confidence)
        if correct[confidence >= value].mean() >= target and (confidence >= value).sum() >= LEAST_KEPT
    ]
    assert threshold == min(possible)
    assert abstain_threshold(confidence, np.zeros(300, bool), 0.5) is None
    assert abstain_threshold(confidence[:5], np.ones(5, bool), 0.5) is None
    assert answered(confidence, correct, 1.5) == (0.0, None)


def test_confusion_counts_each_row_once(rng) -> None:
    labels, predicted = rng.integers(0, 5, 200), rng.integers(0, 5, 200)
    pairs = confusions(labels, predicted)
    assert sum(rows for *_, rows in pairs) == (labels != predicted).sum()
    assert pairs == sorted(pairs, key=lambda pair: (-pair[2], *pair[:2]))
    for label, guess, rows in pairs:
        assert label != guess
        assert rows == ((labels == label) & (predicted == guess)).sum() > 0


def test_folds_are_even_and_keep_groups_together() -> None:
    groups = [index // 2 for index in range(100)]
    folds = deal_folds(groups)
    assert np.bincount(folds).tolist() == [20] * 5
    assert (folds[::2] == folds[1::2]).all()
    assert (deal_folds(groups[::-1])[::-1] == folds).all()


def test_wrong_labels_are_found_out_of_fold(rng) -> None:
    pytest.importorskip("sklearn")
    truth = rng.integers(0, 3, 2400)
    features = rng.normal(0, 1, (2400, 20)) + 5 * np.eye(3, 20)[truth]
    labels = truth.copy()
    wrong = rng.choice(2400, 120, replace=False)
    labels[wrong] = (labels[wrong] + 1) % 3
    probabilities = out_of_fold(features, labels, 4, deal_folds(range(2400)))
    assert probabilities.sum(1) == pytest.approx(1)
    assert not probabilities[:, 3].any()
    rows, classes = likely_mislabelled(probabilities, labels)
    assert np.isin(wrong, rows).mean() > 0.35  # about 0.73, give or take 0.04
    assert np.isin(rows, wrong).mean() > 0.9
    assert (classes == truth[rows]).mean() > 0.9
    # A row that its own fold decides would be believed.
    sure = np.eye(3)[labels]
    assert len(likely_mislabelled(sure, labels)[0]) == 0


def test_a_class_that_the_other_folds_lack_is_not_doubted(rng) -> None:
    pytest.importorskip("sklearn")
    labels = np.repeat([0, 1, 2], [60, 60, 1])
    labels[:3] = 1
    features = rng.normal(0, 1, (121, 10)) + 5 * np.eye(2, 10)[np.repeat([0, 1, 0], [60, 60, 1])]
    probabilities = out_of_fold(features, labels, 3, deal_folds(range(121)))
    assert probabilities[-1, 2] == 0
    rows, _ = likely_mislabelled(probabilities, labels)
    assert 120 not in rows


def test_a_fold_without_a_second_class() -> None:
    pytest.importorskip("sklearn")
    labels = np.array([0, 0, 0, 1])
    features = np.array([[0.0], [1.0], [2.0], [9.0]])
    found = out_of_fold(features, labels, 2, np.array([0, 0, 1, 1]))
    assert found[2:].tolist() == [[1, 0], [1, 0]]
