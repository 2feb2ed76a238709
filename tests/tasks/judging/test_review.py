"""What is told of a trained model: its worst errors in every task, thresholds, doubtful rows of train."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from brimful.base.distributed import World
from brimful.serving.opened import abstain
from brimful.tables.labelled_spans import LabelledSpan
from brimful.tables.table import Table
from brimful.tasks.classification import Classification
from brimful.tasks.data import TaskData
from brimful.tasks.encoded import Encoded, encode
from brimful.tasks.judging import review
from brimful.tasks.judging.checks import check_tables
from brimful.tasks.judging.review import (
    SHOWN,
    calibrate,
    doubtful_labels,
    review_classifier,
    scores_by_label,
    worst_errors,
)
from brimful.tasks.multi_label import MultiLabel
from brimful.tasks.regression import Regression
from brimful.tasks.span_form import Found
from brimful.tasks.token_classification import TokenClassification
from brimful.train.objective import Runtime
from builders.encoders import small, word_tokenizer
from builders.tables import labelled


def encoded(labels: list, texts: list[str] | None = None, **targets: np.ndarray) -> Encoded:
    texts = texts or [f"w{index}" for index in range(len(labels))]
    table = Table(Path("table.tsv"), texts, None, labels)
    return encode(table, word_tokenizer(), 16, targets=targets)


def test_the_most_confident_errors_come_first() -> None:
    task, data = Classification(["a", "b"]), encoded(list("aabb"), label=np.array([0, 0, 1, 1]))
    answers = np.array([[1, 0], [0, 1], [3, 0], [0, 2]], dtype=np.float32)
    errors = worst_errors(task, answers, data)
    assert [(e["row"], e["label"], e["prediction"]) for e in errors] == [(3, "b", "a"), (2, "a", "b")]
    assert errors[0]["probability"] == pytest.approx(1 / (1 + np.exp(-3)))
    assert errors[0]["text"] == "w2"
    assert worst_errors(task, answers[[0, 3]], data.take(np.array([0, 3]))) == []


def test_errors_of_other_tasks() -> None:
    numbers = encoded(["1", "2", "3"], label=np.array([1, 2, 3], dtype=np.float32))
    errors = worst_errors(Regression(), np.array([[1.5], [2.0], [0.0]], dtype=np.float32), numbers)
    assert [error["row"] for error in errors] == [3, 1]
    sets = encoded([["a"], ["a", "b"], []])
    answers = np.array([[1, -1], [-1, -1], [-1, -1]], dtype=np.float32)
    assert [e["row"] for e in worst_errors(MultiLabel(["a", "b"]), answers, sets)] == [2]
    spans = encoded([[LabelledSpan(0, 3, "PER")], [LabelledSpan(3, 7, "LOC")]], ["Ann ran", "to Rome"])
    task = TokenClassification(["O", "B-LOC", "I-LOC", "B-PER", "I-PER"])
    (error,) = worst_errors(
        task, [[Found(LabelledSpan(0, 3, "PER"), 0.9)], [Found(LabelledSpan(0, 2, "LOC"), 0.5)]], spans
    )
    assert (error["row"], error["text"], error["label"]) == (2, "to Rome", [LabelledSpan(3, 7, "LOC")])
    assert error["prediction"][0]["text"] == "to"


def test_each_label_has_its_f1_and_support() -> None:
    classes, data = Classification(["a", "b"]), encoded(list("aaab"), label=np.array([0, 0, 0, 1]))
    answers = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], dtype=np.float32)
    told = scores_by_label(classes, answers, data)["by_label"]
    assert told == [
        {"label": "a", "support": 3, "precision": 1.0, "recall": pytest.approx(2 / 3), "f1": 0.8},
        {"label": "b", "support": 1, "precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3)},
    ]
    task = TokenClassification(["O", "B-LOC", "I-LOC", "B-PER", "I-PER"])
    spans = encoded([[LabelledSpan(0, 3, "PER")], [LabelledSpan(3, 7, "LOC")]], ["Ann ran", "to Rome"])
    found = [[Found(LabelledSpan(0, 3, "PER"), 0.9)], [Found(LabelledSpan(0, 2, "LOC"), 0.5)]]
    told = scores_by_label(task, found, spans)["by_label"]
    assert [(one["label"], one["support"], one["f1"]) for one in told] == [("LOC", 1, 0.0), ("PER", 1, 1.0)]
    sets = encoded([["a"], ["a", "b"], []])
    answers = np.array([[1, -1], [-1, -1], [-1, -1]], dtype=np.float32)
    of_sets = scores_by_label(MultiLabel(["a", "b"]), answers, sets)
    told = of_sets["by_label"]
    assert of_sets["never_predicted"] == ["b"]
    lost = scores_by_label(task, [found[0], []], spans)
    assert lost["never_predicted"] == ["LOC"]
    assert "never_predicted" not in scores_by_label(task, found, spans)
    many = Classification([f"c{number:02}" for number in range(60)])
    rows = encoded(many.labels, label=np.arange(60))
    assert scores_by_label(many, np.eye(60, dtype=np.float32)[np.arange(60) // 2], rows) == {
        "never_predicted": many.labels[30:]
    }
    assert [(one["support"], one["recall"]) for one in told] == [(2, 0.5), (1, 0.0)]
    assert scores_by_label(MultiLabel(["a", "b"]), answers[:1], encoded([["a|b"]])) == {}
    values = encoded(["1"], label=np.array([1.0], dtype=np.float32))
    assert scores_by_label(Regression(), np.zeros((1, 1), np.float32), values) == {}


def test_thresholds_are_chosen_on_dev_and_measured_on_test(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def drawn(n: int) -> tuple[np.ndarray, Encoded]:
        logits = rng.normal(0, 2, (n, 2)).astype(np.float32)
        chance = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
        labels = (rng.random(n) < chance).astype(np.int64)
        return logits * 3, encoded(list("ab") * (n // 2), label=labels)

    fitted = calibrate(*drawn(4000))
    assert fitted["temperature"] == pytest.approx(3, rel=0.15)
    assert [row["target"] for row in fitted["abstain"]][:2] == [0.9, 0.95]
    told = review_classifier(*drawn(4000), ["a", "b"], fitted)
    assert told["calibration"]["ece_calibrated"] < 0.04 < told["calibration"]["ece"]
    assert told["calibration"]["nll_calibrated"] < told["calibration"]["nll"]
    for row in told["abstain"]:
        assert row["dev_accuracy"] >= row["target"]
        assert row["test_accuracy"] == pytest.approx(row["target"], abs=0.03)
        assert row["test_coverage"] == pytest.approx(row["dev_coverage"], abs=0.05)
    assert told["selection"]["coverage"][-1] == 1
    assert told["selection"]["accuracy"][-1] == pytest.approx(
        1 - sum(row["rows"] for row in told["confused"]) / 4000
    )


def test_a_dev_with_few_errors_gives_no_temperature(seed: int, capsys) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (100, 2)).astype(np.float32)
    labels = logits.argmax(1)
    for wrong, fitted in ((0, False), (9, False), (10, True)):
        truth = np.where(np.arange(100) < wrong, 1 - labels, labels)
        found = calibrate(logits, encoded(list("ab") * 50, label=truth))
        assert (found["temperature"] != 1) == fitted
        assert (f"{wrong} error" in capsys.readouterr().err) != fitted


def test_predictions_abstain_as_on_dev(seed: int) -> None:
    """The row that a threshold comes from is written with fewer digits, and is answered all the same."""
    task = Classification(["a", "b"])
    for number in range(20):
        rng = np.random.default_rng(seed + number)
        logits = rng.normal(0, 1, (60, 2)).astype(np.float32)
        labels = (logits[:, 1] - logits[:, 0] + rng.normal(0, 1, 60) > 0).astype(np.int64)
        dev = encoded(list("ab") * 30, label=labels)
        fitted = calibrate(logits, dev)
        rows = task.rows(logits / np.float32(fitted["temperature"]), dev)
        for chosen in fitted["abstain"]:
            kept = [not row["abstained"] for row in abstain(rows, chosen["threshold"])]
            assert np.mean(kept) == chosen["dev_coverage"]


def test_tables_are_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIMFUL_CACHE", str(tmp_path))
    calls = []
    monkeypatch.setattr(review, "check_tables", lambda *given: (calls.append(given), check_tables(*given))[1])
    encoder = small("bert")
    encoder.tokenizer = word_tokenizer()

    def found(labels: list[str], texts: list[str]) -> tuple:
        train = encoded(labels, texts, label=np.zeros(len(labels), dtype=np.int64))
        test = encoded(["a", "b"], ["w1", "w5"], label=np.zeros(2, dtype=np.int64))
        data = TaskData(Classification(["a", "b"]), train, None, train, test, 0)
        return review.check_before(data, encoder, own_dev=False)

    first = found(list("abab"), ["w1", "w2", "w2", "w3"])
    assert {finding.kind for finding in first[0]} >= {"duplicates", "leakage", "conflicts"}
    train = first[1]["train"]
    assert (train["n"], train["duplicates_in_test"], train["near_duplicates_in_test"]) == (4, 1, 0)
    assert found(list("abab"), ["w1", "w2", "w2", "w3"]) == first
    assert len(calls) == 1
    found(list("abbb"), ["w1", "w2", "w2", "w3"])
    found(list("abbb"), ["w1", "w2", "w4", "w3"])
    assert len(calls) == 3


def test_an_empty_label_is_no_answer() -> None:
    rows = [{"prediction": "a", "probability": 0.4}, {"prediction": "b", "probability": 0.5}]
    assert abstain(rows, 0.5) == [
        {"prediction": "a", "probability": 0.4, "abstained": True},
        {"prediction": "b", "probability": 0.5, "abstained": False},
    ]


def test_wrong_labels_are_doubted() -> None:
    pytest.importorskip("sklearn")
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 300)
    texts = [" ".join(f"w{word}" for word in rng.integers(0, 30, 8) + 40 * label) for label in truth]
    labels = truth.copy()
    labels[:12] = 1 - labels[:12]
    data = encoded([str(label) for label in labels], texts, label=labels)
    encoder = small("bert").eval()
    runtime = Runtime(World(0, 1, torch.device("cpu")), "fp32")
    told = doubtful_labels(encoder, data, ["zero", "one"], runtime)
    assert told["doubted"]["checked"] == 300
    rows = [row["row"] - 1 for row in told["mislabelled"]]
    assert np.mean([row < 12 for row in rows[:8]]) > 0.8
    first = told["mislabelled"][0]
    assert first["text"] == texts[first["row"] - 1]
    assert first["label"] == ["zero", "one"][labels[first["row"] - 1]] != first["likely"]
    assert first["label_probability"] < first["likely_probability"]
    part = doubtful_labels(encoder, data.take(np.arange(1, 300)), ["zero", "one"], runtime)["mislabelled"]
    assert all(row["text"] == texts[row["row"] - 1] for row in part)
    assert doubtful_labels(encoder, data.take(np.arange(20)), ["zero", "one"], runtime) == {}


def test_ten_thousand_classes_need_no_matrix_of_them(seed):
    """The matrix would have 800 MB; the logits have 4."""
    random = np.random.default_rng(seed)
    labels = [str(number) for number in range(10_000)]
    answers = random.normal(size=(100, 10_000)).astype(np.float32)
    data, task = labelled("label", random.permutation(10_000)[:100]), Classification(labels)
    tracemalloc.start()
    task.measure(answers, data)
    task.primary_of(answers, data)(random.integers(0, 100, 100))
    told = review_classifier(answers, data, labels, {})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6
    assert len(told["confused"]) == SHOWN
