"""Tables on a terminal: nothing is cut, whatever the width."""

import io

import pytest
from rich.console import Console

from brimful.reports.content import ReportTable
from brimful.reports.terminal_tables import print_tables

PAIRS = [
    ["Encoder, pretrained, minus TF-IDF + logistic regression", "+1.9", "0.6", "yes, better"],
    ["Student, distilled, minus the student without a teacher", "+12.4", "0.5", "yes, better"],
]
DIFFERENCES = ReportTable("Differences", ["Pair", "Points", "Standard error", "Beyond chance?"], PAIRS)


def lines(table: ReportTable, width: int) -> list[str]:
    out = io.StringIO()
    print_tables([table], Console(file=out, width=width, highlight=False, soft_wrap=True))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_names_are_wrapped_and_no_cell_is_cut(width: int) -> None:
    found = lines(DIFFERENCES, width)
    assert max(map(len, found)) <= width
    text = " ".join(" ".join(found).split())
    assert "\u2026" not in text
    for heading in ("Pair", "Points", "Standard error", "Beyond chance?"):
        assert heading in text
    for name, *cells in PAIRS:
        assert all(word in text for word in name.split())
        assert any(all(cell in line for cell in cells) for line in found)
    assert sum("+1.9" in line for line in found) == 1


def test_a_table_that_fits_stays_on_one_line_a_row() -> None:
    assert len(lines(DIFFERENCES, 120)) - len(lines(DIFFERENCES, 200)) == 0
    assert any(PAIRS[0][0] in line for line in lines(DIFFERENCES, 120))


@pytest.mark.parametrize("width", [60, 80])
def test_columns_after_the_third_are_left_out_first(width: int) -> None:
    titles = ["Model", "accuracy", "behind", "parameters", "size, MB", "ms a text", "tokens a second", "seed"]
    wide = ReportTable("Alternatives", titles, [[f"model {n}", *["12.34 %"] * 7] for n in range(3)])
    found = lines(wide, width)
    assert max(map(len, found)) <= width
    text = " ".join(found)
    assert "parameters" not in text
    assert all(title in text for title in ("Model", "accuracy", "behind", "seed"))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_long_cells_are_wrapped_too(width: int) -> None:
    sentence = "a text of the test set that the model was sure of and that has another label"
    found = lines(ReportTable("Rows", ["Row", "Text", "Why"], [["12", sentence, sentence]]), width)
    assert max(map(len, found)) <= width
    assert "\u2026" not in "".join(found)
    assert {*sentence.split()} <= {*" ".join(found).split()}
