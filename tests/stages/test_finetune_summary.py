"""The Summaries of tasks: a model beside its baselines, a student beside its teacher, and what to look at."""

from typing import Any

import pytest

from brimful.base.summary import Summary, SummaryTable
from brimful.stages.distil import summarise_distillation
from brimful.stages.finetune import summarise_finetuning
from brimful.tasks.classification import Classification
from brimful.tasks.regression import Regression

FACTS: dict[str, Any] = {
    "task": "classification",
    "primary_metric": "accuracy",
    "test": {"accuracy": 0.81, "n": 400, "accuracy_std": 0.01, "accuracy_runs": [0.8, 0.82]},
    "dev": {"accuracy": 0.815, "n": 100},
    "tests": {"other": {"accuracy": 0.7, "n": 20}},
    "latency_ms": 4.0,
    "leaked_test_texts": 3,
    "never_predicted": ["LOC"],
    "trials": [{"seed": 0, "learning_rate": 3e-4, "dev_accuracy": 0.815}],
    "baselines": {
        "majority": {"accuracy": 0.5, "standard_error": 0.03},
        "tfidf": {"accuracy": 0.8, "standard_error": 0.015, "reads": "words", "latency_ms": 0.5},
    },
    "by_label": [{"label": "good", "support": 3, "precision": 0.5, "recall": 1.0, "f1": 0.67}],
    "calibration": {"ece": 0.1, "ece_calibrated": 0.02},
    "confused": [{"label": "good", "prediction": "bad", "rows": 1}],
    "errors": [{"row": 3, "text": "fine", "label": "good", "prediction": "bad", "probability": 0.99}],
    "findings": [{"table": "train", "kind": "same", "count": 2, "message": "2 rows are equal"}],
}


def table(summary: Summary, title: str) -> SummaryTable:
    return next(table for table in summary.tables if table.title == title)


def test_a_model_stands_beside_its_baselines_with_paired_errors() -> None:
    summary = summarise_finetuning(FACTS, Classification.metrics)
    own, *baselines = summary.models
    assert [model.name for model in baselines] == ["Most frequent label", "TF-IDF + linear model (words)"]
    assert [model.role for model in baselines] == ["guess", "baseline"]
    assert own.pairs["TF-IDF + linear model (words)"] == 0.015
    assert own.error == pytest.approx((0.81 * 0.19 / 400 + 0.01**2 / 2) ** 0.5), "rows and seeds"
    assert "which may be chance" in summary.verdict


def test_what_must_be_known_stands_on_the_screen() -> None:
    summary = summarise_finetuning(FACTS, Classification.metrics)
    result = dict(table(summary, "Result").rows)
    assert result["Test texts that are also in train"] == "3"
    assert result["Never predicted on test"] == "LOC"
    assert result["Calibration error"].startswith("2.0")
    metrics = table(summary, "Metrics")
    assert metrics.columns == ["Metric", "test, 400 rows", "dev, 100 rows", "other, 20 rows"]
    assert metrics.rows[0][1].replace("\u202f", " ") == "81.0 ± 1.0 %"
    details = {table.title for table in summary.tables if table.is_detail}
    assert {"F1 of each label", "Confused labels", "Largest errors on test"} <= details
    assert {"Noticed in the tables", "Trials"} <= details


STUDENTS: dict[str, Any] = {
    "task": "classification",
    "primary_metric": "accuracy",
    "test": {"n": 400, "fingerprint": "f"},
    "student": {"accuracy": 0.8, "parameters": 30},
    "teacher": {"accuracy": 0.9, "parameters": 60},
    "parameters": {"student": 30, "teacher": 60},
    "comparisons": {"student_minus_teacher": {"difference": -0.1, "standard_error": 0.01}},
}


def test_a_student_stands_beside_its_teacher() -> None:
    summary = summarise_distillation(STUDENTS, Classification.metrics, "runs/teacher")
    verdict = (
        "The student is 10.0 ± 1.0 points behind its teacher, with 50.0 % of its parameters, on 400 test"
    )
    assert summary.verdict.replace("\u202f", " ") == f"{verdict} rows."
    student, teacher = summary.models
    assert student.pairs == {"Teacher": 0.01}
    assert teacher.folder == "runs/teacher"
    assert summarise_distillation(STUDENTS, Classification.metrics, "").models[1].folder == ""


@pytest.mark.parametrize(("ours", "side"), [(0.8, "ahead of"), (1.2, "behind")])
def test_a_metric_that_is_best_low_leads_by_being_lower(ours: float, side: str) -> None:
    lowest = next(metric for metric in Regression.metrics if metric.best == "lowest")
    facts = STUDENTS | {"primary_metric": lowest.name, "student": {lowest.name: ours}}
    facts |= {"teacher": {lowest.name: 1.0}, "task": "regression"}
    assert f" {side} its teacher" in summarise_distillation(facts, Regression.metrics, "").verdict
