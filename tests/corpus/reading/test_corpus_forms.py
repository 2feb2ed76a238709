"""Forms of a corpus that docs/data-forms.md shows: chats, numbers, pages, lists of sentences."""

from collections import Counter
from pathlib import Path

import pytest

from brimful.corpus.reading.faults import Refusing
from brimful.corpus.reading.inputs import Span
from brimful.corpus.reading.json_records import RowNames
from brimful.corpus.reading.read import ReadConfig, read_documents

FORMS = Path(__file__).parents[2] / "data_forms"
RATES = "Nordbank raised its rates."


@pytest.mark.parametrize(
    ("name", "options", "texts"),
    [
        ("corpus-telegram.json", {}, ["", RATES, "Read nordbank.example, please."]),
        ("corpus-numbered.txt", {"field": "2"}, ["Anna Berg joined Nordbank.", "She works in Oslo.", RATES]),
    ],
)
def test_an_example_is_read(name: str, options: dict, texts: list[str]) -> None:
    issues: Counter[str] = Counter()
    documents = read_documents(Span(path=str(FORMS / name)), ReadConfig(**options), issues)
    assert [text for _, text in documents] == texts
    assert not issues


def test_a_page_is_one_document() -> None:
    documents = list(read_documents(Span(path=str(FORMS / "corpus.html")), ReadConfig(), Counter()))
    assert len(documents) == 1
    assert f"<p>{RATES}</p>" in documents[0][1]


def test_lists_of_sentences_as_columns_are_counted() -> None:
    """Of lists of several texts only one column is read, if a number names it, and a warning counts them."""
    found: Counter[str] = Counter()
    path = str(FORMS / "corpus-sentences.json")
    documents = read_documents(Span(path=path), ReadConfig(field="1"), found)
    assert [text for _, text in documents] == ["Anna Berg joined Nordbank.", RATES]
    assert found == {"has lists of texts, of which only column 1 is read": 1}


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_line_of_lists_of_sentences(name: str, tmp_path: Path) -> None:
    lists, whole = '["One.", "Two."]\n["Three."]\n', '[["One.", "Two."], ["Three."]]\n'
    for lines in (lists, whole, '[["One.", "Two."]]\n[["Three."]]\n'):
        (tmp_path / name).write_text(lines)
        documents = read_documents(Span(path=str(tmp_path / name)), ReadConfig(), Counter())
        assert [text for _, text in documents] == ["One.\nTwo.", "Three."]


def test_a_note_of_a_table_is_said_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    row_names = RowNames(["text"])
    report = Refusing(path=tmp_path / "a.jsonl")
    for number in range(3):
        assert row_names.make_record(["One.", "Two."], number, report) == "One.\nTwo."
    assert capfd.readouterr().err.count("has lists of sentences") == 1
