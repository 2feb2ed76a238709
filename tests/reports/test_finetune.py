"""What a page shows of a fine-tuned model: confusion, calibration, thresholds, errors, doubtful rows."""

import json
from pathlib import Path
from typing import Any

import pytest

from brimful.reports.content import ReportTable
from brimful.reports.finetune import calibration_card, finetuned_charts, finetuned_tables
from brimful.reports.load import load_run
from brimful.reports.page import render

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
    tables = by_title(finetuned_tables(SUMMARY))
    assert tables["Noticed in the tables"].rows == [[f"3 of 100 rows: {HOSTILE}", "test", "leakage"]]
    (abstain,) = [table for name, table in tables.items() if name.startswith("Answer only")]
    assert abstain.rows == [["90.0\u202f%", "83.0\u202f%", "70.0\u202f%", "91.0\u202f%", "68.0\u202f%", "–"]]
    errors = tables["Test texts that the model gets most wrong"]
    assert errors.rows == [[HOSTILE, "7", "好评", HOSTILE, "99.87\u202f%"]]
    doubtful = tables["Training rows whose label is doubtful"]
    assert doubtful.rows[0][:4] == ["不好", "3", "好评", "差评"]
    assert "12 of 400 rows" in doubtful.note
    assert "Most frequent confusions" not in tables  # the square shows them


def test_many_labels_have_a_list_instead_of_a_square() -> None:
    names = [f"label {number}" for number in range(30)]
    square = [[0] * 30 for _ in names]
    many = SUMMARY | {"labels": names, "confusion": {"labels": names, "counts": square}}
    assert "Most frequent confusions" in by_title(finetuned_tables(many))
    assert not any(chart.title.startswith("Confusion") for chart in finetuned_charts(many))


def test_charts_speak_their_numbers() -> None:
    confusion, calibration, selection = finetuned_charts(SUMMARY)
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
    finetuned_tables(odd)
    calibration_card(odd)
    if key in ("confusion", "calibration", "selection"):
        finetuned_charts(odd)
