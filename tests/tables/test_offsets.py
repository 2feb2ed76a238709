"""Offsets of spans: in the unit that an option names, spans have their own texts, or the file is refused."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brimful.base.console import record_warnings
from brimful.base.errors import BrimfulError
from brimful.tables.layouts import FileLayout, OffsetUnit
from brimful.tables.table import LabelledSpan
from brimful.tables.tagged_files import TaggedTable, read_tagged

PARTS = ["王小明", "北京", "Anna", "Straße", "。", "&", "\n", "\r\n"]
PARTS += ["한국", "é", "e\u0301", "👍🏽", "🇩🇪", "𠮷野家"]
ENCODINGS: dict[OffsetUnit, tuple[str, int]] = {
    "characters": ("utf-32-le", 4),
    "utf-16": ("utf-16-le", 2),
    "bytes": ("utf-8", 1),
}


def write(path: Path, rows: list[Any]) -> Path:
    text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text(text, encoding="utf-8")
    return path


def read(path: Path, unit: OffsetUnit = "characters") -> tuple[TaggedTable, list[str]]:
    with record_warnings() as said:
        table = read_tagged(path, labelled=True, layout=FileLayout(offsets=unit))
    return table, said


@settings(max_examples=60)
@given(
    rows=st.lists(st.lists(st.sampled_from(PARTS), min_size=2, max_size=9), min_size=1, max_size=5),
    unit=st.sampled_from(sorted(ENCODINGS)),
    has_texts=st.booleans(),
    data=st.data(),
)
def test_spans_stand_where_their_unit_says(
    rows: list[list[str]], unit: OffsetUnit, has_texts: bool, data: st.DataObject, tmp_path_factory
):
    encoding, size = ENCODINGS[unit]
    lines, wanted, differ = [], [], False
    for parts in rows:
        text = " ".join(parts)
        spans, truth, start = [], [], 0
        for part in parts:
            end = start + len(part)
            if part.strip() and text.count(part) == 1 and data.draw(st.booleans()):
                first, last = (len(text[:place].encode(encoding)) // size for place in (start, end))
                differ = differ or (first, last) != (start, end)
                spans.append(
                    {"start": first, "end": last, "label": "X"} | ({"text": part} if has_texts else {})
                )
                truth.append(LabelledSpan(start, end, "X"))
            start = end + 1
        lines.append({"text": text, "spans": spans})
        wanted.append(truth)
    path = write(tmp_path_factory.mktemp("offsets") / "a.jsonl", lines)
    table, said = read(path, unit)
    assert (table.labels, said) == (wanted, [])
    if not has_texts:
        return
    refusal = ""
    try:
        table, _ = read(path)
    except BrimfulError as error:
        refusal = str(error)
    if refusal:
        assert differ
        assert re.search(rf"--offsets (\S+ or )?{unit}( or \S+)? fits the whole file", refusal)
    else:  # a space more or less is trimmed
        assert table.labels == wanted


def test_the_refusal_counts_and_shows_an_example(tmp_path: Path):
    rows = [
        {"text": "😀 Ann met Bob", "spans": [[3, 6, "X", "Ann"], [11, 14, "X", "Bob"]]},
        {"text": "Ann", "spans": [[0, 3, "X", "Ann"], [0, 1, "Y"]]},
    ]
    path = write(tmp_path / "a.jsonl", rows)
    with pytest.raises(BrimfulError) as error:
        read(path)
    assert str(error.value) == (
        f"{path}: of 4 spans, 2 have another text at their offsets than their own (line 1: 'nn' for 'Ann'):"
        " --offsets utf-16 fits the whole file"
    )


@pytest.mark.parametrize("unit", ["characters", "utf-16", "bytes"])
@pytest.mark.parametrize("span", [[0, 9, "X"], [-1, 2, "X"], [3, 2, "X"]])
def test_spans_outside_of_their_text_are_refused(unit: OffsetUnit, span: list[Any], tmp_path: Path):
    path = write(tmp_path / "a.jsonl", [{"text": "ab😀", "spans": [span]}])
    with pytest.raises(BrimfulError, match=r"line 1: the span .* is not within its text of 3 characters"):
        read(path, unit)


def test_the_unit_that_a_span_outside_of_its_text_fits_is_named(tmp_path: Path):
    with pytest.raises(BrimfulError, match="is not within its text"):  # but ends within a character
        read(write(tmp_path / "a.jsonl", [{"text": "a😀b", "spans": [[0, 2, "X"]]}]), "utf-16")
    with pytest.raises(BrimfulError, match="of 6 characters: neither --offsets utf-16 nor bytes fits"):
        read(write(tmp_path / "a.jsonl", [{"text": "abcdef", "spans": [[3, 7, "X"]]}]))
    with pytest.raises(BrimfulError, match="of 3 characters: --offsets bytes fits the whole file"):
        read(write(tmp_path / "a.jsonl", [{"text": "abß", "spans": [[2, 4, "X"]]}]))


def test_texts_that_tools_change_in_what_they_show_are_the_same(tmp_path: Path):
    rows = [{"text": "in New\n York", "spans": [{"start": 3, "end": 12, "label": "X", "text": "New York"}]}]
    assert read(write(tmp_path / "a.jsonl", rows))[1] == []


def test_spaces_and_overlaps_are_counted(tmp_path: Path):
    spans = [[1, 8, "X"], [2, 7, "X"], [2, 7, "Y"], [4, 5, "Y"], [1, 2, "X"], [3, 3, "X"]]
    rows = [{"text": "a Paris b", "spans": spans}, {"text": "a\u3000Rome\n", "spans": [[1, 7, "X"]]}]
    table, said = read(write(tmp_path / "a.jsonl", rows))
    assert table.labels == [[LabelledSpan(2, 7, "X")], [LabelledSpan(2, 6, "X")]]
    assert [line.partition(": ")[2].partition(" (")[0] for line in said] == [
        "2 spans read without the white space at the ends",
        "2 spans left out that hold no character but white space",
        "3 spans left out that overlap with another, which begins before or is longer",
    ]
