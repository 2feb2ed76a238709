"""What is told of a trained model: its worst errors in every task, its labels, its temperature."""

import itertools
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from brimful.tables.table import LabelledSpan, Table
from brimful.tasks.classification import Classification
from brimful.tasks.encoded_tables import Encoded, encode
from brimful.tasks.judging import review
from brimful.tasks.multi_label import MultiLabel
from brimful.tasks.regression import Regression
from brimful.tasks.span_form import Found
from brimful.tasks.token_classification import TokenClassification
from builders.encoders import word_tokenizer
from builders.tables import labelled


def encoded(labels: list, texts: list[str] | None = None, **targets: np.ndarray) -> Encoded:
    texts = texts or [f"w{index}" for index in range(len(labels))]
    table = Table(Path("table.tsv"), texts, None, labels)
    return encode(table, word_tokenizer(), 16, targets=targets)


NAMES = TokenClassification(["O", "B-LOC", "I-LOC", "B-PER", "I-PER"])
FOUND = [[Found(LabelledSpan(0, 3, "PER"), 0.9)], [Found(LabelledSpan(0, 2, "LOC"), 0.5)]]
SETS = MultiLabel(["a", "b"])
OF_SETS = np.array([[1, -1], [-1, -1], [-1, -1]], dtype=np.float32)


def named() -> Encoded:
    """A person, which FOUND has, and a place, of which it has a part."""
    return encoded([[LabelledSpan(0, 3, "PER")], [LabelledSpan(3, 7, "LOC")]], ["Ann ran", "to Rome"])


def test_the_most_confident_errors_come_first() -> None:
    task, data = Classification(["a", "b"]), encoded(list("aabb"), label=np.array([0, 0, 1, 1]))
    answers = np.array([[1, 0], [0, 1], [3, 0], [0, 2]], dtype=np.float32)
    errors = review.list_worst_errors(task, answers, data)
    assert [(e["row"], e["label"], e["prediction"]) for e in errors] == [(3, "b", "a"), (2, "a", "b")]
    assert errors[0]["probability"] == pytest.approx(1 / (1 + np.exp(-3)))
    assert errors[0]["text"] == "w2"
    assert review.list_worst_errors(task, answers[[0, 3]], data.take(np.array([0, 3]))) == []


def test_errors_of_other_tasks() -> None:
    numbers = encoded(["1", "2", "3"], label=np.array([1, 2, 3], dtype=np.float32))
    values = np.array([[1.5], [2.0], [0.0]], dtype=np.float32)
    errors = review.list_worst_errors(Regression(), values, numbers)
    assert [error["row"] for error in errors] == [3, 1]
    sets = encoded([["a"], ["a", "b"], []])
    assert [e["row"] for e in review.list_worst_errors(SETS, OF_SETS, sets)] == [2]
    (error,) = review.list_worst_errors(NAMES, FOUND, named())
    assert (error["row"], error["text"], error["label"]) == (2, "to Rome", [LabelledSpan(3, 7, "LOC")])
    assert error["prediction"][0]["text"] == "to"


def test_each_label_has_its_f1_and_support() -> None:
    classes, data = Classification(["a", "b"]), encoded(list("aaab"), label=np.array([0, 0, 0, 1]))
    answers = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], dtype=np.float32)
    told = review.score_labels(classes, answers, data)["by_label"]
    assert told == [
        {"label": "a", "support": 3, "precision": 1.0, "recall": pytest.approx(2 / 3), "f1": 0.8},
        {"label": "b", "support": 1, "precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3)},
    ]
    told = review.score_labels(NAMES, FOUND, named())["by_label"]
    assert [(one["label"], one["support"], one["f1"]) for one in told] == [("LOC", 1, 0.0), ("PER", 1, 1.0)]
    of_sets = review.score_labels(SETS, OF_SETS, encoded([["a"], ["a", "b"], []]))
    assert of_sets["never_predicted"] == ["b"]
    assert [(one["support"], one["recall"]) for one in of_sets["by_label"]] == [(2, 0.5), (1, 0.0)]
    assert review.score_labels(SETS, OF_SETS[:1], encoded([["a|b"]])) == {}
    many = Classification([f"c{number:02}" for number in range(60)])
    rows = encoded(many.labels, label=np.arange(60))
    few = np.eye(60, dtype=np.float32)[np.arange(60) // 2]
    assert review.score_labels(many, few, rows) == {"never_predicted": many.labels[30:]}
    values = encoded(["1"], label=np.array([1.0], dtype=np.float32))
    assert review.score_labels(Regression(), np.zeros((1, 1), np.float32), values) == {}


def test_a_temperature_is_fitted_on_dev_and_measured_on_test(rng) -> None:
    parts = []
    for _ in range(2):
        logits, labels = drawn(rng, 4000, 2, 3.0)
        parts.append((logits, encoded(list("ab") * 2000, label=labels)))
    told, temperature = review.review_classifier(*parts[1], ["a", "b"], parts[0])
    assert temperature == told["calibration"]["temperature"] == pytest.approx(3, rel=0.15)
    assert told["calibration"]["ece_calibrated"] < 0.04 < told["calibration"]["ece"]


def test_a_dev_with_few_errors_gives_no_temperature(rng, capsys) -> None:
    logits = rng.normal(0, 2, (100, 2)).astype(np.float32)
    labels = logits.argmax(1)
    for wrong, fitted in ((0, False), (9, False), (10, True)):
        truth = np.where(np.arange(100) < wrong, 1 - labels, labels)
        dev = encoded(list("ab") * 50, label=truth)
        _, temperature = review.review_classifier(logits, dev, ["a", "b"], (logits, dev))
        assert (temperature != 1) == fitted
        assert (f"{wrong} error" in capsys.readouterr().err) != fitted


def test_ten_thousand_classes_need_no_matrix_of_them(seed):
    """The matrix would have 800 MB; the logits have 4."""
    random = np.random.default_rng(seed)
    labels = [str(number) for number in range(10_000)]
    answers = random.normal(size=(100, 10_000)).astype(np.float32)
    data, task = labelled("label", random.permutation(10_000)[:100]), Classification(labels)
    tracemalloc.start()
    task.measure(answers, data)
    told, _ = review.review_classifier(answers, data, labels, None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6
    assert len(told["confused"]) == review.MAX_ROWS


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def drawn(rng, n: int, classes: int, temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """Logits, and labels drawn from softmax(logits / temperature)."""
    logits = rng.normal(0, 4, (n, classes)).astype(np.float32)
    chances = softmax(logits.astype(np.float64) / temperature, axis=1)
    labels = (rng.random((n, 1)) > chances.cumsum(1)).sum(1).clip(max=classes - 1)
    return logits, labels


def naive_error(confidence: np.ndarray, correct: np.ndarray, bins: int) -> float:
    """The expected calibration error by its definition, one bin at a time."""
    total, edges = 0.0, np.linspace(0, 1, bins + 1)
    for low, high in itertools.pairwise(edges):
        inside = (low < confidence) & (confidence <= high)
        if inside.any():
            total += inside.mean() * abs(correct[inside].mean() - confidence[inside].mean())
    return total


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5])
def test_the_temperature_that_drew_the_labels_is_found(rng, temperature: float) -> None:
    logits, labels = drawn(rng, 100_000, 4, temperature)
    found = review.fit_temperature(logits, labels)
    assert found == pytest.approx(temperature, rel=0.05)  # seven standard errors at 0.5, more above
    grid = np.exp(np.linspace(*np.log(review.TEMPERATURES), 2000))
    losses = [review.negative_log_likelihood(logits[:500], labels[:500], t) for t in grid]
    best = review.fit_temperature(logits[:500], labels[:500])
    assert review.negative_log_likelihood(logits[:500], labels[:500], best) <= min(losses) + 1e-7
    lowest = review.fit_temperature(logits[:50], logits[:50].argmax(1))
    assert lowest == pytest.approx(review.TEMPERATURES[0], rel=1e-3)


def test_the_calibration_error_is_that_of_its_definition(rng) -> None:
    for n, bins in ((1, 15), (7, 15), (400, 15), (400, 4)):
        confidence = rng.random(n)
        confidence[: n // 3] = rng.choice(np.linspace(0, 1, bins + 1)[1:], n // 3)  # on the edges
        correct = rng.random(n) < confidence
        error = review.measure_calibration_error(confidence, correct, bins)
        assert error == pytest.approx(naive_error(confidence, correct, bins), abs=1e-12)
