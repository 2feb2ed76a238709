"""A Summary: stored with the facts and read again; models compared by their differences and errors."""

import pytest

from brimful.base import numbers, summary
from brimful.base.errors import BrimfulError
from brimful.base.summary import MeasuredOn, ModelResult, Series, Summary, SummaryChart
from brimful.reports import run_records
from brimful.reports.model_table import compare_models

TEST = MeasuredOn("accuracy", 400, "f1", share=True)
LOSS = MeasuredOn("error", 400, "f1", higher_is_better=False)


def model(name: str, value: float, error: float | None = 0.01, **values: object) -> ModelResult:
    return ModelResult(name=name, value=value, error=error, **values)  # type: ignore[arg-type]


def test_a_summary_is_read_as_it_was_stored():
    chart = SummaryChart("Loss", "lines", "x", "y", [Series("", [1.0, 2.0], [1.0, 2.0])])
    tables = summary.make_facts_table("Result", {"Time": "1 s", "Unknown": None})
    stored = Summary("A", "Done.", tables, [chart], TEST, [model("m", 0.9, milliseconds=2.0)])
    record = summary.with_overview({"steps": 3}, stored)
    assert record["steps"] == 3
    assert run_records.read_overview(record, "summary.json") == stored
    assert run_records.read_overview({"steps": 3}, "summary.json") is None
    with pytest.raises(BrimfulError, match=r"^summary\.json is damaged"):
        run_records.read_overview({"overview": {"title": 3}}, "summary.json")


def test_a_table_has_no_empty_columns():
    (table,) = summary.make_table("T", ["a", "b", "c"], [["x", "", ""], ["y", "", "1"]])
    assert table.columns == ["a", "c"]
    assert table.rows == [["x", "–"], ["y", "1"]]
    assert summary.make_table("T", ["a"], []) == []


def test_the_best_model_is_first_by_the_direction_of_the_metric():
    models = [model("low", 0.2), model("high", 0.9)]
    assert [row[0] for row in compare_models(TEST, models)[0].rows] == ["high", "low"]
    assert [row[0] for row in compare_models(LOSS, models)[0].rows] == ["low", "high"]


def test_an_error_is_paired_where_it_was_measured_so_and_else_an_upper_bound():
    gap = summary.estimate_gap_error
    own, paired, other = model("own", 0.9, pairs={"paired": 0.004}), model("paired", 0.8), model("other", 0.7)
    assert gap(own, paired) == gap(paired, own) == 0.004
    assert gap(own, other) == pytest.approx(2**0.5 * 0.01)
    assert gap(own, model("no error", 0.7, None)) is None


def test_a_difference_that_may_be_chance_says_so():
    doubts = {(0.89, 0.01): ", which may be chance", (0.7, 0.01): "", (0.7, None): ", with an unknown error"}
    for (value, error), doubt in doubts.items():
        sentence = summary.judge_models(TEST, [model("first", 0.9), model("second", value, error)])
        assert sentence.startswith("first is the best, accuracy 90.0")
        assert sentence.endswith(f"points behind{doubt}.")


def test_no_model_is_named_the_best_that_only_guesses_or_is_a_baseline():
    roles = {"guess": "the most frequent label", "baseline": "other"}
    for role, name in roles.items():
        sentence = summary.judge_models(TEST, [model("own", 0.8), model("other", 0.9, role=role)])
        assert sentence.startswith(f"No model is ahead of {name}")
        assert ("own is 10.0" in sentence) == (role == "baseline")


def test_numbers_as_words():
    assert [numbers.format_percent(value) for value in (0.8213, 0.9987)] == ["82.1\u202f%", "99.87\u202f%"]
    shorts = [numbers.format_short(value) for value in (4_210_000, 999.6, 12, 2e-4)]
    assert shorts == ["4.21\u202fM", "1\u202fk", "12", "0.0002"]
    durations = [numbers.format_duration(value) for value in (3.21, 42.3, 582, 7500)]
    assert durations == ["3.2\u202fs", "42\u202fs", "9\u202fmin 42\u202fs", "2\u202fh 05\u202fmin"]
    values = [numbers.format_value(value) for value in (True, None, 1234, [1, 2])]
    assert values == ["yes", "none", "1,234", "1, 2"]
    assert numbers.format_value("x" * 600).endswith(" …")
    assert numbers.format_metric(0.821, 0.007, share=True) == "82.1\u202f±\u202f0.7\u202f%"
    assert numbers.format_metric(0.821, 0.007, share=False) == "0.821\u202f±\u202f0.007"
    assert numbers.format_gap(-0.1125, share=True) == "\u221211.2"
