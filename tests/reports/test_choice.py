"""What a page shows of students, and of all models by their metric and the time of one text."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from brimful.reports.charts import Point, scatter_chart
from brimful.reports.choice import choice_charts
from brimful.reports.distil import distilled_tables
from brimful.reports.load import load_run
from brimful.reports.page import render

STUDENT: dict[str, Any] = {
    "kind": "distil",
    "task": "classification",
    "primary_metric": "accuracy",
    "student": {"accuracy": 0.848, "accuracy_std": 0.002, "parameters": 12_100_000},
    "teacher": {"accuracy": 0.86, "parameters": 26_100_000},
    "student_layer_drop": {"accuracy": 0.843},
    "tfidf": {"accuracy": 0.82},
    "test": {"n": 3436},
    "parameters": {"student": 12_100_000, "teacher": 26_100_000},
    "megabytes": {"student": 48.4, "teacher": 104.4},
    "latency_ms": {"student": 4.2, "teacher": 13.1, "tfidf": 1.2},
    "comparisons": {"student_minus_teacher": {"difference": -0.012, "standard_error": 0.004}},
}
FINETUNED: dict[str, Any] = {
    "kind": "finetune",
    "task": "classification",
    "primary_metric": "accuracy",
    "test": {"accuracy": 0.86, "n": 3436},
    "latency_ms": 14.0,
    "baselines": {"frozen": {"accuracy": 0.846, "latency_ms": 12.0}, "majority": {"accuracy": 0.5}},
}


def saved(folder: Path, name: str, summary: dict[str, Any]) -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "summary.json").write_text(json.dumps(summary))
    return folder / name


def test_students_stand_beside_teacher_and_baselines() -> None:
    (table,) = distilled_tables(STUDENT)
    rows = {row[0]: row[1:] for row in table.rows}
    assert [cell.replace("\u202f", " ") for cell in rows["teacher"]] == [
        "0.8600",
        "-0.0120 ± 0.0040",
        "26.10 M",
        "104.4 MB",
        "13.10 ms",
    ]
    assert rows["student"][0] == "0.8480 ± 0.0020"
    assert rows["teacher's layers, by logits alone"][:2] == ["0.8430", ""]
    assert rows["TF-IDF and a linear model"][-1].startswith("1.20")
    assert "3,436" in table.title
    assert distilled_tables({"kind": "distil", "cosine": 0.9}) == []


def test_models_of_all_runs_are_in_one_picture(tmp_path: Path) -> None:
    other = STUDENT | {"test": {"n": 10}, "student_without_distillation": {"accuracy": 0.823}}
    other["latency_ms"] = {**STUDENT["latency_ms"], "student_layer_drop": 4.6}
    runs = [
        load_run(saved(tmp_path, name, summary))
        for name, summary in (("small", STUDENT), ("large", FINETUNED), ("elsewhere", other))
    ]
    (chart,) = choice_charts(runs)
    spoken = re.search(r'aria-label="([^"]*)"', chart.svg)
    assert spoken is not None
    names = re.findall(r"[:;] (.*?) [\d.]+ at", spoken[1])
    assert names == [
        "TF-IDF + linear model",
        "small",
        "Frozen encoder + linear model",
        "Teacher",
        "large",
    ]
    assert "3,436 test texts" in chart.note
    (alone,) = choice_charts(runs[2:3])  # its own table counts
    assert "elsewhere, from labels alone 0.823 at 4.2 ms" in alone.svg
    assert "layers, by logits alone 0.843 at 4.6 ms" in alone.svg
    assert choice_charts([load_run(saved(tmp_path, "bare", FINETUNED | {"baselines": {}}))]) == []
    page = render(runs)
    assert page.count("Accuracy against the time of one text") >= 2
    assert choice_charts([load_run(tmp_path)])  # runs inside a folder


@pytest.mark.parametrize("verb", ["distil-static", "distil-recipe"])
def test_students_of_every_verb_are_shown_alike(tmp_path: Path, verb: str) -> None:
    run = load_run(saved(tmp_path, "run", STUDENT | {"kind": verb}))
    assert run.kind == "distil"
    assert choice_charts([run])
    assert "TF-IDF" in render([run])


def test_the_line_is_of_models_that_none_surpasses() -> None:
    points = [Point("a", 1, 0.5), Point("b", 2, 0.4), Point("c", 3, 0.7, 0.1)]
    best = scatter_chart("t", points, "ms", percent=True).svg
    least = scatter_chart("t", points, "ms", higher_is_better=False).svg
    for svg, on, off in ((best, 2, 1), (least, 2, 1)):
        marks = re.findall(r"<use [^>]*fill: var\(--(c[12])\)", svg)
        assert (marks.count("c1"), marks.count("c2")) == (on, off)


@pytest.mark.parametrize("value", [None, "x", float("nan")])
def test_absent_and_odd_values_are_left_out(tmp_path: Path, value: Any) -> None:
    odd = STUDENT | {"latency_ms": value, "comparisons": value, "student": {"accuracy": value}}
    run = load_run(saved(tmp_path, "odd", json.loads(json.dumps(odd))))
    assert choice_charts([run]) == []
    assert len(distilled_tables(run.summary)[0].rows) == 3
    render([run])
