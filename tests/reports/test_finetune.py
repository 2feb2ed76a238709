"""What a page shows of a fine-tuned model: confusion, calibration, thresholds, errors, doubtful rows."""

import json
from pathlib import Path
from typing import Any

import pytest

from brimful.reports.content import ReportTable
from brimful.reports.finetune import (
    abstain_tables,
    calibration_card,
    calibration_charts,
    confusion_charts,
    label_tables,
    ladder_tables,
    metrics_table,
    odd_tables,
    trial_tables,
)
from brimful.reports.load import load_run
from brimful.reports.page import render
from brimful.tasks.classification import Classification

HOSTILE = "<script>alert(1)</script>"
SUMMARY: dict[str, Any] = {
    "kind": "finetune",
    "test": {"accuracy": 0.8, "n": 100},
    "labels": ["好评", HOSTILE],
    "findings": [{"table": "test", "kind": "leakage", "count": 3, "message": f"3 of 100 rows: {HOSTILE}"}],
    "calibration": {
        "ece": 0.08,
        "ece_calibrated": 0.021,
        "temperature": 1.4,
        "bins": {"confidence": [0.6, 0.9], "accuracy": [0.5, 0.8], "rows": [40, 60]},
        "bins_calibrated": {"confidence": [0.55, 0.8], "accuracy": [0.5, 0.8], "rows": [40, 60]},
    },
    "abstain": [
        {
            "target": 0.9,
            "threshold": 0.83,
            "dev_coverage": 0.7,
            "dev_accuracy": 0.91,
            "test_coverage": 0.68,
            "test_accuracy": None,
        }
    ],
    "selection": {"coverage": [0.2, 0.6, 1.0], "accuracy": [1.0, 0.9, 0.8]},
    "confusion": {"labels": ["好评", HOSTILE], "counts": [[40, 10], [10, 40]]},
    "by_label": [
        {"label": "好评", "support": 50, "precision": 0.8, "recall": 0.9, "f1": 0.847},
        {"label": HOSTILE, "support": 50, "precision": 0.7, "recall": 0.6, "f1": 0.646},
    ],
    "confused": [{"label": "好评", "prediction": HOSTILE, "rows": 10}],
    "errors": [{"row": 7, "text": HOSTILE, "label": "好评", "prediction": HOSTILE, "probability": 0.9987}],
    "doubted": {"rows": 12, "checked": 400, "accuracy": 0.79},
    "mislabelled": [
        {
            "row": 3,
            "text": "不好",
            "label": "好评",
            "likely": "差评",
            "label_probability": 0.01,
            "likely_probability": 0.99,
        }
    ],
}


def by_title(tables: list[ReportTable]) -> dict[str, ReportTable]:
    return {table.title: table for table in tables}


def test_tables_of_findings_thresholds_errors_and_doubtful_rows() -> None:
    tables = by_title([*abstain_tables(SUMMARY), *odd_tables(SUMMARY)])
    assert tables["Noticed in the tables"].rows == [[f"3 of 100 rows: {HOSTILE}", "test", "leakage"]]
    (abstain,) = [table for name, table in tables.items() if name.startswith("Answer only")]
    assert abstain.rows == [["90.0\u202f%", "83.0\u202f%", "70.0\u202f%", "91.0\u202f%", "68.0\u202f%", "–"]]
    errors = tables["Test texts that the model gets most wrong"]
    assert errors.rows == [[HOSTILE, "7", "好评", HOSTILE, "99.87\u202f%"]]
    doubtful = tables["Training rows whose label is doubtful"]
    assert doubtful.rows[0][:4] == ["不好", "3", "好评", "差评"]
    assert "12 of 400 rows" in doubtful.note
    assert "Most frequent confusions" not in tables  # the square shows them


def test_each_label_has_its_f1_and_its_support() -> None:
    (table,) = label_tables(SUMMARY)
    assert table.columns[:3] == ["Label", "F1", "Support"]
    assert [row[:3] for row in table.rows] == [
        ["好评", "84.7\u202f%", "50"],
        [HOSTILE, "64.6\u202f%", "50"],
    ]
    many = [{"label": str(n), "support": n, "precision": 1, "recall": 1, "f1": n / 30} for n in range(30)]
    (table,) = label_tables({"by_label": many})
    assert [row[0] for row in table.rows] == [str(n) for n in range(20)]
    assert "20 lowest of 30" in table.note


def test_metrics_stand_beside_those_of_dev_and_of_other_tables() -> None:
    summary = {
        "test": {"accuracy": 0.8, "accuracy_std": 0.01, "accuracy_runs": [0.79, 0.81], "loss": 0.5, "n": 100},
        "dev": {"accuracy": 0.82, "n": 50},
        "tests": {"other": {"accuracy": 0.7}},
    }
    (table,) = metrics_table(summary, {"accuracy": "accuracy"}, {"accuracy"})
    assert table.columns == ["Metric", "Test, 100 rows", "Dev, 50 rows", "other"]
    assert [cell.replace("\u202f", " ") for cell in table.rows[0]] == [
        "Accuracy",
        "80.0 ± 1.0 %",
        "82.0 %",
        "70.0 %",
    ]
    assert table.rows[1] == ["Loss", "0.500", "–", "–"]
    assert "2 seeds" in table.note


def test_each_table_writes_a_metric_in_one_way() -> None:
    rung = {"accuracy": 0.608, "matthews": 0.4, "difference": 0.0923, "standard_error": 0.011}
    summary = {"test": {"accuracy": 0.7, "matthews": 0.41234, "n": 50}, "baselines": {"tfidf": rung}}
    (table,) = ladder_tables(summary, Classification.metrics)
    assert table.columns[1:4] == ["Accuracy", "Fine-tuned is better by, points", "Matthews"]
    assert [[cell.replace("\u202f", " ") for cell in row[1:4]] for row in table.rows] == [
        ["60.8 %", "+9.2 ± 1.1", "0.400"],
        ["70.0 %", "–", "0.412"],
    ]


def test_settings_of_trials_are_as_they_were_given_and_their_metric_as_elsewhere() -> None:
    rates = ({"learning_rate": 0.0015, "dev_accuracy": 0.8123}, {"learning_rate": 2e-5, "dev_accuracy": None})
    summary = {"trials": [{"seed": 3, "epochs": 2.5} | rate for rate in rates]}
    (table,) = trial_tables(summary, {"accuracy"})
    assert table.columns == ["Seed", "Epochs", "Learning rate", "Dev accuracy"]
    assert table.rows == [["3", "2.5", "0.0015", "81.2\u202f%"], ["3", "2.5", "2e-5", "–"]]


def test_many_labels_have_a_list_instead_of_a_square() -> None:
    names = [f"label {number}" for number in range(30)]
    square = [[0] * 30 for _ in names]
    many = SUMMARY | {"labels": names, "confusion": {"labels": names, "counts": square}}
    assert "Most frequent confusions" in by_title(odd_tables(many))
    assert confusion_charts(many) == []


def test_charts_speak_their_numbers() -> None:
    (confusion,) = confusion_charts(SUMMARY)
    calibration, selection = calibration_charts(SUMMARY)
    assert "好评 as 好评 40" in confusion.svg
    assert "&lt;script&gt;" in confusion.svg
    assert HOSTILE not in confusion.svg
    assert "with the temperature from 50 to 80" in calibration.svg
    assert "accuracy from 100 to 80" in selection.svg


def test_the_card_says_what_the_temperature_changed() -> None:
    shown = calibration_card(SUMMARY)
    assert shown is not None
    assert shown.value == "2.1\u202f%"
    assert "8.0\u202f% without" in shown.note
    alone = calibration_card({"calibration": {"ece": 0.08}})
    assert alone is not None
    assert "not calibrated" in alone.note
    assert calibration_card({}) is None


def test_the_page_shows_them_and_escapes_them(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(json.dumps(SUMMARY), encoding="utf-8")
    page = render([load_run(tmp_path)])
    assert HOSTILE not in page
    for text in ("Noticed in the tables", "Confusion on test", "Calibration error", "不好"):
        assert text in page


@pytest.mark.parametrize("key", [key for key in SUMMARY if key != "kind"])
@pytest.mark.parametrize("value", [None, 3, "x", [], [1], [{}], {}, {"labels": 1}, {"bins": [1]}])
def test_any_part_may_be_absent_or_odd(key: str, value: Any) -> None:
    odd = {name: part for name, part in SUMMARY.items() if name != key} | (
        {} if value is None else {key: value}
    )
    for tables in (abstain_tables, label_tables, odd_tables):
        tables(odd)
    metrics_table(odd, {}, ())
    calibration_card(odd)
    if key in ("confusion", "calibration", "selection"):
        confusion_charts(odd)
        calibration_charts(odd)
