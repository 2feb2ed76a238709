"""JSON in its usual forms, against `json` and the writers' own conventions."""

import gzip
import json
import random
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.base.errors import BrimfulError
from brimful.corpus.reading.faults import Report
from brimful.corpus.reading.json_records import json_records
from brimful.tables.table_files import read_table
from builders.reading import read

ROWS = [{"text": "a b", "label": 1}, {"text": "很好, 好", "label": 0}, {"text": 'c "d"', "label": 1}]
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}
FORMS = {
    "array": json.dumps(ROWS),
    "indented": json.dumps(ROWS, indent=2, ensure_ascii=False),
    "lines": "\n".join(map(json.dumps, ROWS)),
    "lines of lists": "\n".join(json.dumps(row) for row in [[*ROWS[0]], *([*row.values()] for row in ROWS)]),
    "two arrays": json.dumps(ROWS[:1]) + "\n" + json.dumps(ROWS[1:]),
    "within an object": json.dumps({"version": "1", "data": ROWS, "license": None}),
    "pandas table": json.dumps({"schema": {"fields": [{"name": "text"}]}, "data": ROWS}),
    "pandas split": json.dumps(
        {"columns": [*ROWS[0]], "index": [0, 1, 2], "data": [list(row.values()) for row in ROWS]}
    ),
    "pandas values with names": json.dumps([list(ROWS[0]), *[list(row.values()) for row in ROWS]]),
}


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.ndjson"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_read_by_prepare_and_as_a_table(form: str, name: str, tmp_path: Path) -> None:
    assert read(tmp_path / name, FORMS[form]) == (COLUMNS["text"], {})
    table = read_table(tmp_path / name, labelled=True)
    assert (table.texts, table.labels) == (COLUMNS["text"], ["1", "0", "1"])


@pytest.mark.parametrize(
    ("data", "texts"),
    [
        ('["a", "b c"]', ["a", "b c"]),
        ('{"text": "alone"}', ["alone"]),
        ('{"paragraphs": ["a", "b"]}', ["a", "b"]),
        ('[{"text": ["He came.", "She went away."]}, {"text": "x"}]', ["He came.\nShe went away.", "x"]),
        ('[{"text": ["the", "cat", "sat"]}, {"text": ["很", "好", "吃"]}]', ["the cat sat", "很好吃"]),
        ("[]", []),
        # Lists of other lengths are no columns.
        (json.dumps({"labels": ["text", "n"], "records": ROWS}), COLUMNS["text"]),
        ('{"text": ["One.", "Two."], "tags": ["x"]}', ["One.\nTwo."]),
    ],
)
def test_texts_without_columns(data: str, texts: list[str], tmp_path: Path) -> None:
    assert read(tmp_path / "a.json", data)[0] == texts


@given(st.lists(st.dictionaries(st.text(), st.text() | st.none() | st.integers()), max_size=6), st.data())
def test_arrays_in_pieces_of_any_size(rows: list[dict], data: st.DataObject) -> None:
    text = json.dumps(rows, indent=data.draw(st.sampled_from([None, 1])))
    size = data.draw(st.integers(1, 9))
    issues: Counter[str] = Counter()
    pieces = (text[at : at + size] for at in range(0, len(text), size))
    assert [row for _, row in json_records("a.json", pieces, ["text"], Report(issues))] == rows
    assert not issues


def test_an_array_cut_anywhere_keeps_what_is_whole(tmp_path: Path) -> None:
    text = FORMS["array"]
    for at in random.Random(0).sample(range(2, len(text)), 20):
        issues: Counter[str] = Counter()
        rows = [row for _, row in json_records("a.json", iter([text[:at]]), ["text"], Report(issues))]
        assert rows == ROWS[: len(rows)]
        assert sum(issues.values()) == 1
    (tmp_path / "a.json").write_text(text[:-9], encoding="utf-8")
    with pytest.raises(BrimfulError, match=r"a\.json, record 3 is not JSON"):
        read_table(tmp_path / "a.json", labelled=True)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ('[{"text": "a", "label": 1, "text": "b"}]', "record 1 has a key twice: keep one of them"),
        ('[{"text": "a", "label": 1}, 7]', "record 2 must be a JSON object, not 7"),
        ('{"text": "a", "label": 1}\n{"text": b}\n', "line 2 is not JSON from 'b}"),
        ('{"text": "a", "label": 1}\n{"text": \n', "line 2 is not JSON: it ends too early"),
        ('[{"text": "\\ud800", "label": 1}]', "record 1 holds half a surrogate pair"),
    ],
)
def test_what_is_lost_is_refused_with_its_place(data: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(data, encoding="utf-8")
    with pytest.raises(BrimfulError) as error:
        read_table(tmp_path / "a.json", labelled=True)
    assert str(error.value).startswith(f"{tmp_path / 'a.json'}")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.skipif(not shutil.which("jq"), reason="no jq")
@pytest.mark.parametrize(
    ("data", "message", "texts"),
    [
        ("\n".join(json.dumps(row, indent=1) for row in ROWS), "holds several values", COLUMNS["text"]),
        (
            json.dumps({"about": "x", "chats": {"list": [{"messages": ROWS[:2]}, {"messages": ROWS[2:]}]}}),
            "holds its records within other objects",
            COLUMNS["text"],
        ),
        (json.dumps(COLUMNS, indent=1), "holds columns", COLUMNS["text"]),
        ('{"text": ["One.", "Two."]}', "holds columns", ["One.", "Two."]),
        ('{"text": {"0": "One.", "1": "Two."}, "n": {"0": 1, "1": 2}}', "holds columns", ["One.", "Two."]),
        (json.dumps({str(n): row for n, row in enumerate(ROWS)}), "within other objects", COLUMNS["text"]),
        ('{"data": {"a": {"text": ["One."]}}}', "holds its records within other objects", ["One."]),
        (
            '{"doc1": ["One.", "Two."], "doc2": ["Three."]}',
            "lists of texts by name",
            ["One.\nTwo.", "Three."],
        ),
        ('[[["One.", "Two."], ["Three."]], [["Four."]]]', "of paragraphs", ["One.\nTwo.\nThree.", "Four."]),
    ],
)
def test_deeper_forms_are_refused_with_what_converts_them(
    data: str, message: str, texts: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "it's a.json"
    with pytest.raises(BrimfulError, match=message) as error:
        read(path, data)
    subprocess.run(["bash", "-c", str(error.value).split("convert it: ")[1]], check=True)
    made = Path(f"{path}.jsonl").read_text(encoding="utf-8")
    assert read(tmp_path / "made.jsonl", made)[0] == texts


def test_a_packed_file_is_unpacked_before_it_is_converted(tmp_path: Path) -> None:
    data = gzip.compress(b'{"data": {"items": [{"text": "a"}]}}')
    with pytest.raises(BrimfulError, match=r"unpack it, .*: jq .* \S+/a\.json > \S+/a\.json\.jsonl$"):
        read(tmp_path / "a.json.gz", data)


def test_settings_are_passed_over_with_the_names_in_them(tmp_path: Path) -> None:
    issues = read(tmp_path / "a.json", '{"name": "x", "depth": {"size": 3}}')[1]
    assert "one object without a field 'text': known: depth, name" in issues
