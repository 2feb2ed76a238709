"""What a page shows of students, and of all models by their metric and the time of one text."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from brimful.reports.charts import Chart, Point, scatter_chart
from brimful.reports.choice import choice_headline, choice_of, choice_table, scatter_of
from brimful.reports.distil import distilled_tables
from brimful.reports.finetune import ladder_tables
from brimful.reports.load import Run, load_run, load_runs
from brimful.reports.page import render
from brimful.tasks.classification import Classification
from brimful.tasks.regression import Regression

STUDENT: dict[str, Any] = {
    "kind": "distil",
    "task": "classification",
    "primary_metric": "accuracy",
    "student": {"accuracy": 0.848, "accuracy_std": 0.002, "parameters": 12_100_000},
    "teacher": {"accuracy": 0.86, "parameters": 26_100_000},
    "student_layer_drop": {"accuracy": 0.843},
    "tfidf": {"accuracy": 0.82},
    "test": {"n": 3436, "fingerprint": "rows"},
    "parameters": {"student": 12_100_000, "teacher": 26_100_000},
    "megabytes": {"student": 48.4, "teacher": 104.4},
    "latency_ms": {"student": 4.2, "teacher": 13.1, "tfidf": 1.2},
    "comparisons": {"student_minus_teacher": {"difference": -0.012, "standard_error": 0.004}},
}
FINETUNED: dict[str, Any] = {
    "kind": "finetune",
    "task": "classification",
    "primary_metric": "accuracy",
    "test": {"accuracy": 0.86, "n": 3436, "fingerprint": "rows"},
    "latency_ms": 14.0,
    "baselines": {"frozen": {"accuracy": 0.846, "latency_ms": 12.0}, "majority": {"accuracy": 0.5}},
}


def saved(folder: Path, name: str, summary: dict[str, Any]) -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "summary.json").write_text(json.dumps(summary))
    return folder / name


def choice_charts(runs: list[Run]) -> list[Chart]:
    choice = choice_of(runs)
    return [] if choice is None else scatter_of(choice)


def test_students_stand_beside_teacher_and_baselines() -> None:
    (table,) = distilled_tables(STUDENT | {"texts_per_second": {"teacher": 90}}, Classification.metrics)
    rows = {row[0]: row[1:] for row in table.rows}
    assert [cell.replace("\u202f", " ") for cell in rows["Teacher"]] == [
        "86.0 %",
        "\u22121.2 ± 0.4",
        "26.10 M",
        "104.4 MB",
        "13.10 ms",
        "90",
    ]
    assert rows["Student"][0].replace("\u202f", " ") == "84.8 ± 0.2 %"
    assert rows["Teacher's layers, by logits alone"][:2] == ["84.3\u202f%", ""]
    assert rows["TF-IDF and a linear model"][-2:] == ["1.20\u202fms", ""]
    assert "3,436" in table.title
    assert distilled_tables({"kind": "distil", "cosine": 0.9}) == []
    (table,) = distilled_tables(STUDENT)  # of a task that this version does not know
    assert [row[1].replace("\u202f", " ") for row in table.rows[:2]] == ["0.860", "0.848 ± 0.002"]


def test_exports_stand_in_the_picture_of_their_run(tmp_path: Path) -> None:
    """Those that the gate has compared on the same rows, by its metric, time and size."""
    runs = [load_run(saved(tmp_path, "small", STUDENT))]
    gate = {"task": "classification", "metric": "accuracy", "texts": 3436, "after": 0.847, "p50_ms": 2.0}
    gate |= {"part": "test", "fingerprint": "rows"}
    others = {
        "deploy": gate | {"texts": 5, "fingerprint": "others"},
        "chosen_by": gate | {"part": "dev"},
        "unknown": {"texts": 3436},
    }
    for name, given in {"onnx-int8": gate, **others}.items():
        (tmp_path / name).mkdir()
        files = {"onnx/model_quantized.onnx": {"bytes": 12_000_000}, "tokenizer.json": {"bytes": 900_000}}
        record = {"kind": "export", "format": "onnx-int8", "parameters": 7, "gate": given, "files": files}
        (tmp_path / name / "export.json").write_text(json.dumps(record))
        runs.append(load_run(tmp_path / name))
    choice = choice_of(runs)
    assert choice is not None
    (found,) = (one for one in choice.candidates if "onnx" in one.label)
    assert (found.label, found.value, found.milliseconds, found.megabytes) == ("onnx-int8", 0.847, 2.0, 12.0)
    assert choice.elsewhere == 1
    (chart,) = scatter_of(choice)
    assert "onnx-int8 0.847 at 2 ms a text" in chart.svg
    text = render(runs)
    assert "Exported as onnx-int8, and compared with the model on 3,436 texts" in text


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


@pytest.mark.parametrize("inside", [False, True])
def test_runs_of_one_name_are_told_apart_by_their_folders(tmp_path: Path, inside: bool) -> None:
    folders = [saved(tmp_path, f"{year}/tuned", FINETUNED) for year in (2025, 2026)]
    student = saved(tmp_path, "small", STUDENT)
    (tmp_path / "current").symlink_to(tmp_path / "2026")
    (student / "config.yaml").write_text(
        json.dumps({"teacher": str(tmp_path / "current" / "tuned" / "model")})
    )
    given = [folder.parent if inside else folder for folder in folders]
    runs = load_runs([*given, student, given[0]])
    found = [run.children[0] if inside else run for run in runs[:2]]
    assert [run.name for run in found] == ["2025/tuned", "2026/tuned"]
    assert [run.name for run in runs[2:]] == ["small", "2025" if inside else "2025/tuned"]
    choice = choice_of(runs)
    assert choice is not None
    labels = {one.label for one in choice.candidates}
    assert {"2025/tuned", "2026/tuned"} < labels
    assert "Teacher" not in labels
    assert [run.name for run in load_runs(folders[:1])] == ["tuned"]


def test_a_teacher_of_another_folder_is_no_run_of_its_name(tmp_path: Path) -> None:
    """But one whose folder was moved is."""
    tuned, student = saved(tmp_path, "tuned", FINETUNED), saved(tmp_path, "small", STUDENT)
    for place, named in ("elsewhere/tuned", False), ("gone/tuned", True):
        if not named:
            (tmp_path / place).mkdir(parents=True)
        (student / "config.yaml").write_text(json.dumps({"teacher": str(tmp_path / place / "model")}))
        choice = choice_of(load_runs([tuned, student]))
        assert choice is not None
        assert ("Teacher" in {one.label for one in choice.candidates}) is not named


def test_models_are_shown_by_how_many_texts_they_answer_too(tmp_path: Path) -> None:
    """A model that answers more texts a second surpasses one that is no more accurate."""
    rates = {"texts_per_second": {"student": 500, "teacher": 90, "tfidf": 100}}
    one, many = choice_charts([load_run(saved(tmp_path, "small", STUDENT | rates))])
    assert "small 0.848 at 4.2 ms a text" in one.svg
    assert "Teacher 0.86 at 90 texts a second, many together; TF-IDF" in many.svg
    marks = re.findall(r"<use [^>]*fill: var\(--(c[12])\)", many.svg)
    assert (marks.count("c1"), marks.count("c2")) == (2, 1)  # TF-IDF is less accurate, and no faster
    page = render([load_run(tmp_path / "small")])
    assert "Accuracy against texts a second" in page


def test_static_students_are_shown_as_others(tmp_path: Path) -> None:
    run = load_run(saved(tmp_path, "run", STUDENT | {"kind": "distil-static"}))
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


def test_the_best_model_is_shipped_and_a_fast_one_named_that_may_be_as_good(tmp_path: Path) -> None:
    run = load_run(saved(tmp_path, "small", STUDENT | {"tfidf": {"accuracy": 0.853}}))
    choice = choice_of([run])
    assert choice is not None
    told = choice_headline(choice)
    said = " ".join(told.sentences).replace("\u202f", " ")
    assert said.startswith(
        "Ship teacher: its accuracy on 3,436 test rows is 86.0 ± 0.6 %, at 104.4 MB and 13 ms a text."
    )
    assert "TF-IDF + linear model is next, 0.7 points behind, which may be chance." in said
    assert "TF-IDF + linear model is 10.9 times as fast." in said
    assert [card.label for card in told.cards] == ["Accuracy", "One text", "Size", "Parameters"]
    assert "small 84.8" in told.cards[0].note
    table = choice_table(choice)
    rows = {row[0]: [cell.replace("\u202f", " ") for cell in row[1:]] for row in table.rows}
    assert list(rows) == ["Teacher", "TF-IDF + linear model", "small", "Teacher's layers, by logits alone"]
    assert rows["small"][1] == "1.2 ± 0.4"  # paired: less than the two errors would give


def test_models_of_other_rows_are_counted_and_not_compared(tmp_path: Path) -> None:
    other = FINETUNED | {"test": {"accuracy": 0.9, "n": 10}}
    runs = [load_run(saved(tmp_path, "a", FINETUNED)), load_run(saved(tmp_path, "b", STUDENT))]
    choice = choice_of([*runs, load_run(saved(tmp_path, "c", other))])
    assert choice is not None
    assert choice.elsewhere == 3
    assert "which do not compare: 3 models" in choice_table(choice).note


def test_rows_are_the_same_by_their_texts_and_labels_and_not_by_their_number(tmp_path: Path) -> None:
    """Summaries without a fingerprint are of rows that are not known to be the same."""
    for name, rows in ("other", {"fingerprint": "others"}), ("old", {}):
        test = {"test": {"accuracy": 0.9, "n": 3436} | rows}
        runs = [saved(tmp_path, f"{name}-a", FINETUNED), saved(tmp_path, f"{name}-b", FINETUNED | test)]
        choice = choice_of(list(map(load_run, runs)))
        assert choice is not None
        assert (len(choice.candidates), choice.elsewhere) == (3, 3)


def test_a_metric_that_is_best_low_leads_by_being_lower() -> None:
    """Differences in summaries are ours minus theirs."""
    metrics = Regression().compared_by("mse").metrics
    rung = {"mse": 1.0, "difference": -0.8, "standard_error": 0.1}
    tuned = {"primary_metric": "mse", "test": {"mse": 0.2}, "baselines": {"majority": rung}}
    assert ladder_tables(tuned, metrics)[0].rows[0][2].replace("\u202f", " ") == "+0.800 ± 0.100"
    student = {"primary_metric": "mse", "student": {"mse": 0.3}, "teacher": {"mse": 0.2}}
    student |= {"comparisons": {"student_minus_teacher": {"difference": 0.1, "standard_error": 0.1}}}
    assert "\u22120.100" in distilled_tables(student, metrics)[0].rows[0][2]


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        ({"accuracy": 1.0}, {"accuracy": 0.95}, "5.0 points behind, with an unknown error."),
        ({"accuracy": 0.95}, {"accuracy": 0.9}, "5.0 points behind, which may be chance."),
        ({"accuracy": 0.9}, {"accuracy": 0.3}, "60.0 points behind."),
        (
            {"accuracy": 0.86, "accuracy_std": 0.03, "accuracy_runs": [0.83, 0.86, 0.89]},
            {"accuracy": 0.85, "standard_error": 0.004},
            "1.0 points behind, which may be chance.",
        ),
    ],
)
def test_chance_is_told_where_it_may_be_and_where_nobody_knows(
    tmp_path: Path, ours: Any, theirs: Any, words: str
) -> None:
    rung = {"baselines": {"tfidf": theirs}}
    run = load_run(saved(tmp_path, "a", FINETUNED | rung | {"test": ours | {"n": 20}}))
    choice = choice_of([run])
    assert choice is not None
    assert choice_headline(choice).sentences[1] == f"TF-IDF + linear model is next, {words}"


def exported(folder: Path, name: str, source: str, **gate: Any) -> Path:
    (folder / name).mkdir()
    known = {"task": "classification", "metric": "accuracy", "texts": 3436, "part": "test"}
    record = {"format": name, "source": source, "gate": known | {"fingerprint": "rows"} | gate, "files": {}}
    (folder / name / "export.json").write_text(json.dumps(record))
    return folder / name


def test_the_error_between_an_export_and_its_model_is_the_paired_one_of_the_gate(tmp_path: Path) -> None:
    """Two exports of one model are apart by at most the sum of their errors."""
    tuned = saved(tmp_path, "tuned", FINETUNED | {"baselines": {}})
    runs = [
        tuned,
        exported(tmp_path, "onnx", "../tuned/model", after=0.862, standard_error=0.002),
        exported(tmp_path, "onnx-int8", "../tuned/model", after=0.859, standard_error=0.003),
    ]
    choice = choice_of(load_runs(runs))
    assert choice is not None
    rows = {row[0]: row[2].replace("\u202f", " ") for row in choice_table(choice).rows}
    assert rows == {"onnx": "–", "tuned": "0.2 ± 0.2", "onnx-int8": "0.3 ± 0.5"}


def test_times_of_a_busy_machine_compare_within_one_run_alone(tmp_path: Path) -> None:
    busy = FINETUNED | {"withheld": 0.6}
    frozen = {"accuracy": 0.846, "latency_ms": 12.0, "withheld": 0.6}
    busy["baselines"] = {"frozen": frozen, "tfidf": {"accuracy": 0.8, "latency_ms": 1.0, "withheld": 0.6}}
    tuned = load_run(saved(tmp_path, "tuned", busy))
    idle = load_run(exported(tmp_path, "onnx", "", after=0.859, p50_ms=2.0, withheld=0.0))
    alone, together = choice_of([tuned]), choice_of([tuned, idle])
    assert alone is not None
    assert together is not None
    assert [row[3] for row in choice_table(alone).rows] == ["14\u202fms", "12\u202fms", "1\u202fms"]
    assert [row[3] for row in choice_table(together).rows] == ["busy", "2\u202fms", "busy", "busy"]
    assert scatter_of(alone)
    assert not scatter_of(together)
    assert "times as fast" not in " ".join(choice_headline(together).sentences)


def test_a_teacher_that_is_on_the_page_is_one_model(tmp_path: Path) -> None:
    folders = [saved(tmp_path, "large", FINETUNED), saved(tmp_path, "small", STUDENT)]
    for teacher in ("/runs/large", ["/runs/large/model"]):
        (folders[1] / "config.yaml").write_text(json.dumps({"teacher": teacher}))
        choice = choice_of(list(map(load_run, folders)))
        assert choice is not None
        (large,) = [one for one in choice.candidates if one.value == 0.86]
        assert (large.label, large.megabytes, large.milliseconds) == ("large", 104.4, 14.0)
    for teacher in ("/runs/other", ["/runs/large", "/runs/other"]):
        (folders[1] / "config.yaml").write_text(json.dumps({"teacher": teacher}))
        choice = choice_of(list(map(load_run, folders)))
        assert choice is not None
        assert {one.label for one in choice.candidates if one.value == 0.86} == {"large", "Teacher"}


def test_a_baseline_that_no_verb_writes_is_not_shipped(tmp_path: Path) -> None:
    run = load_run(saved(tmp_path, "small", STUDENT | {"tfidf": {"accuracy": 0.9}}))
    choice = choice_of([run])
    assert choice is not None
    first, second = choice_headline(choice).sentences
    assert first.startswith("No model here is ahead of TF-IDF + linear model, a baseline that no verb")
    assert second.startswith("The best model is teacher, 4.0 points behind; more labels")
    alone = FINETUNED | {"test": {"n": 10}, "baselines": {"frozen": {"accuracy": 0.7}}}
    choice = choice_of([load_run(saved(tmp_path, "alone", alone))])
    assert choice is not None
    assert choice_headline(choice).sentences[1].startswith("It can be trained with scikit-learn")


def test_no_model_is_shipped_that_only_guesses(tmp_path: Path) -> None:
    guess = FINETUNED | {"test": {"accuracy": 0.4, "n": 10}, "baselines": {"majority": {"accuracy": 0.5}}}
    choice = choice_of([load_run(saved(tmp_path, "a", guess))])
    assert choice is not None
    assert choice_headline(choice).sentences[0].startswith("Ship none of these models")


@pytest.mark.parametrize("value", [None, "x", float("nan")])
def test_absent_and_odd_values_are_left_out(tmp_path: Path, value: Any) -> None:
    odd = STUDENT | {"latency_ms": value, "comparisons": value, "student": {"accuracy": value}}
    run = load_run(saved(tmp_path, "odd", json.loads(json.dumps(odd))))
    assert choice_charts([run]) == []
    assert len(distilled_tables(run.summary)[0].rows) == 3
    render([run])
