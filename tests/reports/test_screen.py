"""Results on a terminal: nothing is cut, whatever the width."""

import io

import pytest
from rich.console import Console

from brimful.base.summary import MeasuredOn, ModelResult, Summary, SummaryTable, with_overview
from brimful.reports.screen import print_tables, show_result

PAIRS = [
    ["Encoder, pretrained, minus TF-IDF + logistic regression", "+1.9", "0.6", "yes, better"],
    ["Student, distilled, minus the student without a teacher", "+12.4", "0.5", "yes, better"],
]
DIFFERENCES = SummaryTable("Differences", ["Pair", "Points", "Standard error", "Beyond chance?"], PAIRS)


def lines(table: SummaryTable, width: int) -> list[str]:
    out = io.StringIO()
    print_tables([table], Console(file=out, width=width, highlight=False, soft_wrap=True))
    return out.getvalue().splitlines()


SENTENCE = "a text of the test set that the model was sure of and that has another label"
ROWS = SummaryTable("Rows", ["Row", "Text", "Why"], [["12", SENTENCE, SENTENCE]])


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("table", [DIFFERENCES, ROWS])
def test_cells_are_wrapped_and_not_cut(table, width):
    found = lines(table, width)
    assert max(map(len, found)) <= width
    words = " ".join(found).split()
    for row in table.rows:
        assert all(word in words for cell in row for word in cell.split())
    if table is DIFFERENCES:
        for _, *cells in PAIRS:  # numbers stay whole, on one line
            assert any(all(cell in line for cell in cells) for line in found)


@pytest.mark.parametrize("width", [60, 80])
def test_columns_after_the_third_are_left_out_first(width):
    titles = ["Model", "accuracy", "behind", "parameters", "size, MB", "ms a text", "tokens a second", "seed"]
    wide = SummaryTable("Alternatives", titles, [[f"model {n}", *["12.34 %"] * 7] for n in range(3)])
    found = lines(wide, width)
    assert max(map(len, found)) <= width
    text = " ".join(found)
    assert "parameters" not in text
    assert all(title in text for title in ("Model", "accuracy", "behind", "seed"))


def test_a_result_with_a_summary_shows_it_and_no_details(capsys):
    models = [ModelResult(name="own", value=0.9), ModelResult(name="TF-IDF", value=0.8, role="baseline")]
    tables = [
        SummaryTable("Result", ["", ""], [["Time", "3\u202fs"], ["[bold]", "\x1b[2J"]]),
        SummaryTable("Trials", ["Seed"], [["17"]], is_detail=True),
    ]
    test = MeasuredOn("accuracy", 100, "f", share=True)
    show_result(with_overview({"steps": 3}, Summary("A run", "It ended.", tables, [], test, models)))
    out = capsys.readouterr().out
    assert out.startswith("A run: It ended.\n")
    assert "TF-IDF" in out
    assert "3 s" in out
    assert "[bold]" in out
    assert "\x1b" not in out
    assert "Trials" not in out
    assert "steps" not in out


def test_a_result_without_a_summary_shows_each_value(capsys):
    show_result({"a": 1234, "b": {"c": [1, 2], "d": True}})
    assert capsys.readouterr().out == "a: 1,234\nb.c: 1, 2\nb.d: yes\n"
