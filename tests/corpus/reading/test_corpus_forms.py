"""Forms of a corpus that docs/data-forms.md shows: chats, numbers, pages, lists of sentences."""

from pathlib import Path

import pytest

from brimful.corpus.reading.faults import Refusing
from brimful.corpus.reading.json_records import RowNames
from builders.reading import read

FORMS = Path(__file__).parents[2] / "data_forms"
ANNA, OSLO = "Anna Berg joined Nordbank.", "She works in Oslo."
RATES = "Nordbank raised its rates."


@pytest.mark.parametrize(
    ("name", "options", "texts", "issues"),
    [
        ("corpus-telegram.json", {}, ["", RATES, "Read nordbank.example, please."], {}),
        ("corpus-numbered.txt", {"field": "2"}, [ANNA, OSLO, RATES], {}),
        (
            "corpus-sentences.json",
            {"field": "1"},
            [ANNA, RATES],
            {"has lists of texts, of which only column 1 is read": 1},
        ),
    ],
)
def test_an_example_is_read(name: str, options: dict, texts: list[str], issues: dict) -> None:
    assert read(FORMS / name, **options) == (texts, issues)


def test_a_page_is_one_document() -> None:
    (page,), _ = read(FORMS / "corpus.html")
    assert f"<p>{RATES}</p>" in page


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_line_of_lists_of_sentences(name: str, tmp_path: Path) -> None:
    lists, whole = '["One.", "Two."]\n["Three."]\n', '[["One.", "Two."], ["Three."]]\n'
    for lines in (lists, whole, '[["One.", "Two."]]\n[["Three."]]\n'):
        assert read(tmp_path / name, lines)[0] == ["One.\nTwo.", "Three."]


def test_a_note_of_a_table_is_said_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    row_names = RowNames(["text"])
    report = Refusing(path=tmp_path / "a.jsonl")
    for number in range(3):
        assert row_names.make_record(["One.", "Two."], number, report) == "One.\nTwo."
    assert capfd.readouterr().err.count("has lists of sentences") == 1
