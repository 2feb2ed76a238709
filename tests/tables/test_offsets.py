"""Offsets of spans: whatever they count, spans have their own texts; and records of annotation tools."""

import html
import json
import unicodedata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from brimful.base.console import recorded_warnings
from brimful.tables.labelled_spans import LabelledSpan
from brimful.tables.tagged_files import TaggedTable, read_tagged

PARTS = [
    "王小明",
    "北京",
    "Anna",
    "Straße",
    "O'Neill",
    "住在",
    "is in",
    "。",
    "&",
    "<b>",
    "\n",
    "\r\n",
    "한국",
    "é",
]
PARTS += ["e\u0301", "👍🏽", "👨\u200d👩\u200d👧", "🇩🇪", "😀", "𠮷野家"]
UNITS = {
    "count UTF-16 units": lambda text: len(text.encode("utf-16-le")) // 2,
    "count bytes of UTF-8": lambda text: len(text.encode()),
    "count ends of lines as two characters": lambda text: len(
        text.replace("\r\n", "\n").replace("\n", "\r\n")
    ),
    "count ends of lines as one character": lambda text: len(text.replace("\r\n", "\n")),
    "count decomposed characters (NFD)": lambda text: len(unicodedata.normalize("NFD", text)),
    "count escapes of HTML": lambda text: len(html.escape(text)),
    "leave out white space": lambda text: len("".join(text.split())),
}
CONVENTIONS = {
    "": (0, 0),
    "include the last character": (0, -1),
    "begin at 1": (1, 1),
    "begin at 1 and include the last character": (1, 0),
}


def write(path: Path, rows: list[Any]) -> Path:
    text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text(text, encoding="utf-8")
    return path


def read(path: Path) -> tuple[TaggedTable, list[str]]:
    with recorded_warnings() as said:
        table = read_tagged(path, labelled=True)
    return table, said


@settings(max_examples=60)
@given(
    rows=st.lists(st.lists(st.sampled_from(PARTS), min_size=2, max_size=9), min_size=1, max_size=5),
    unit=st.sampled_from(["", *UNITS]),
    convention=st.sampled_from(sorted(CONVENTIONS)),
    data=st.data(),
)
def test_spans_have_their_own_texts_whatever_offsets_count(
    rows: list[list[str]], unit: str, convention: str, data: st.DataObject, tmp_path_factory
):
    size = UNITS.get(unit, len)
    first, last = CONVENTIONS[convention]
    lines, wanted, changed = [], [], 0
    for parts in rows:
        text = " ".join(parts)
        spans, truth, start = [], [], 0
        for part in parts:
            end = start + len(part)
            if part.strip() and text.count(part) == 1 and data.draw(st.booleans()):
                begin, until = size(text[:start]) + first, size(text[:end]) + last
                changed += (begin, until) != (start, end)
                spans.append({"start": begin, "end": until, "label": "X", "text": part})
                truth.append(LabelledSpan(start, end, "X"))
            start = end + 1
        lines.append({"text": text, "spans": spans})
        wanted.append(truth)
    table, said = read(write(tmp_path_factory.mktemp("offsets") / "a.jsonl", lines))
    assert table.labels == wanted
    assert len(said) <= 2
    assert not said or changed


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("convention", sorted(CONVENTIONS))
def test_the_reading_is_named_and_tells_equal_words_apart(unit: str, convention: str, tmp_path: Path):
    text = 'Ann & é 😀\r\nAnn < "Ann"\n é Ann 😀 & é Ann\nAnn'
    size, (first, last) = UNITS[unit], CONVENTIONS[convention]
    starts = [i for i in range(len(text)) if text.startswith("Ann", i)]
    lines = [
        {
            "text": text,
            "spans": [[size(text[:i]) + first, size(text[: i + 3]) + last, "X", "Ann"] for i in starts],
        },
        {"text": "Ann", "spans": [[first, 3 + last, "X", "Ann"]]},
    ]
    table, said = read(write(tmp_path / "a.jsonl", lines))
    assert table.labels == [[LabelledSpan(i, i + 3, "X") for i in starts], [LabelledSpan(0, 3, "X")]]
    assert len(said) == 1
    name = " and ".join(filter(None, (unit, convention)))
    assert f"the offsets {name}, and are converted" in said[0]


def test_graphemes(tmp_path: Path):
    text = "👨\u200d👩\u200d👧 e\u0301 🇩🇪🇫🇷 Ann 👍🏽 Ann"
    spans = [
        {"start": 7, "end": 10, "label": "X", "text": "Ann"},
        {"start": 13, "end": 16, "label": "X", "text": "Ann"},
    ]
    table, said = read(write(tmp_path / "a.jsonl", [{"text": text, "spans": spans}]))
    assert [text[s.start : s.end] for s in table.labels[0]] == ["Ann", "Ann"]  # type: ignore[index]
    assert "count graphemes" in said[0]


def test_a_few_wrong_offsets_move_to_the_text_or_stay(tmp_path: Path):
    rows = [
        {"text": "Ann met Bob and Ann", "spans": [[0, 3, "X", "Ann"], [8, 11, "X", "Bob"]]} for _ in range(8)
    ]
    rows.append({"text": "Ann met Bob and Ann", "spans": [[15, 18, "X", "Ann"], [4, 7, "X", "Eve"]]})
    table, said = read(write(tmp_path / "a.jsonl", rows))
    assert table.labels[-1] == [LabelledSpan(4, 7, "X"), LabelledSpan(16, 19, "X")]  # type: ignore[index]
    assert len(said) == 2
    assert "of 18 spans, 1 have another text at their offsets than their own, and are moved" in said[0]
    assert "(line 9: 'An' for 'Ann')" in said[0]
    assert "of 18 spans, 1 have another text at their offsets than their own, which is nowhere" in said[1]
    assert "line 9: 'Eve'" in said[1]


def test_texts_that_tools_change_in_what_they_show_are_the_same(tmp_path: Path):
    rows = [{"text": "in New\n York", "spans": [{"start": 3, "end": 12, "label": "X", "text": "New York"}]}]
    assert read(write(tmp_path / "a.jsonl", rows))[1] == []


def test_without_own_texts_the_edges_of_words_tell(tmp_path: Path):
    texts = ["😀😀 Anna is in London now", "🎉 Berlin and Paris", "Rome is big"]
    names = [["Anna", "London"], ["Berlin", "Paris"], ["Rome"]]
    for size, shift, said_of in (
        (lambda text: len(text.encode("utf-16-le")) // 2, 0, "UTF-16"),
        (lambda text: len(text.encode()), 0, "UTF-8"),
        (len, -1, "include the last character"),
    ):
        rows = []
        for text, each in zip(texts, names, strict=True):
            places = [(text[: text.index(name)], name) for name in each]
            spans = [[size(before), size(before + name) + shift, "X"] for before, name in places]
            rows.append({"text": text, "label": spans})
        table, said = read(write(tmp_path / "a.jsonl", rows))
        found = [[t[s.start : s.end] for s in spans] for t, spans in zip(texts, table.labels, strict=True)]  # type: ignore[arg-type]
        assert found == names
        assert len(said) == 1
        assert said_of in said[0]


def test_spaces_repeats_and_overlaps_are_counted(tmp_path: Path):
    rows = [
        {
            "text": "a Paris b",
            "spans": [[1, 8, "X"], [2, 7, "X"], [2, 7, "Y"], [4, 5, "Y"], [1, 2, "X"], [3, 3, "X"]],
        },
        {"text": "a\u3000Rome\n", "spans": [[1, 7, "X"]]},
    ]
    table, said = read(write(tmp_path / "a.jsonl", rows))
    assert table.labels == [[LabelledSpan(2, 7, "X")], [LabelledSpan(2, 6, "X")]]
    assert [line.partition(": ")[2].partition(" (")[0] for line in said] == [
        "2 spans read without the white space at the ends",
        "2 spans left out that hold no character but white space",
        "1 span left out that are there twice",
        "2 spans left out that overlap with another, which begins before or is longer",
    ]


TEXT = "王小明住在北京。"
TAGS = ["B-PER", "M-PER", "E-PER", "O", "O", "B-LOC", "E-LOC", "O"]
OWN = {0: "王小明", 5: "北京"}
WANTED = [LabelledSpan(0, 3, "PER"), LabelledSpan(5, 7, "LOC")]


def studio_value(span: LabelledSpan) -> dict[str, Any]:
    """As Label Studio writes a span."""
    text = TEXT[span.start : span.end]
    return {"start": span.start, "end": span.end, "text": text, "labels": [span.label]}


RECORDS: dict[str, Any] = {
    "ours": {"text": TEXT, "spans": [[0, 3, "PER"], [5, 7, "LOC"]]},
    "doccano": {"id": 1, "text": TEXT, "label": [[0, 3, "PER"], [5, 7, "LOC"]]},
    "doccano, older": {"id": 1, "data": TEXT, "labels": [[0, 3, "PER"], [5, 7, "LOC"]]},
    "doccano with relations": {
        "id": 1,
        "text": TEXT,
        "relations": [],
        "entities": [
            {"id": 0, "start_offset": 0, "end_offset": 3, "label": "PER"},
            {"id": 1, "start_offset": 5, "end_offset": 7, "label": "LOC"},
        ],
    },
    "spacy": [TEXT, {"entities": [[0, 3, "PER"], [5, 7, "LOC"]]}],
    "prodigy": {
        "text": TEXT,
        "tokens": [{"text": c, "start": i, "end": i + 1, "id": i} for i, c in enumerate(TEXT)],
        "spans": [
            {"start": 0, "end": 3, "token_start": 0, "token_end": 2, "label": "PER"},
            {"start": 5, "end": 7, "token_start": 5, "token_end": 6, "label": "LOC"},
        ],
        "answer": "accept",
    },
    "label studio": {
        "id": 3,
        "data": {"text": TEXT},
        "annotations": [
            {"was_cancelled": True, "result": []},
            {
                "was_cancelled": False,
                "result": [
                    {"from_name": "l", "type": "labels", "value": studio_value(span)} for span in WANTED
                ]
                + [{"type": "choices", "value": {"choices": ["good"]}}],
            },
        ],
        "predictions": [],
    },
    "label studio, short": {
        "id": 3,
        "text": TEXT,
        "label": [studio_value(span) for span in WANTED],
    },
    "dataturks": {
        "content": TEXT,
        "annotation": [
            {"label": [k], "points": [{"start": s, "end": e - 1, "text": OWN[s]}]} for s, e, k in WANTED
        ],
    },
    "cluener": {"text": TEXT, "label": {k: {TEXT[s:e]: [[s, e - 1]]} for s, e, k in WANTED}},
    "cblue": {
        "text": TEXT,
        "entities": [{"start_idx": s, "end_idx": e - 1, "type": k, "entity": OWN[s]} for s, e, k in WANTED],
    },
    "length": {
        "text": TEXT,
        "entities": [{"offset": s, "length": e - s, "category": k, "text": OWN[s]} for s, e, k in WANTED],
    },
    "pair": {"text": TEXT, "entities": [{"position": [s, e], "type": k} for s, e, k in WANTED]},
    "characters with tags": {"text": TEXT, "labels": TAGS},
    "tokens": {"tokens": list(TEXT), "ner_tags": TAGS},
    "tokens with spans": {
        "tokens": list(TEXT),
        "entities": [{"start": s, "end": e, "type": k} for s, e, k in WANTED],
    },
}  # fmt: skip


@pytest.mark.parametrize("tool", RECORDS)
@pytest.mark.parametrize("form", ["lines", "array", "indented"])
def test_records_of_annotation_tools(tool: str, form: str, tmp_path: Path):
    record = RECORDS[tool]
    if form == "lines" and isinstance(record, list):
        pytest.skip("a line is an object")
    rows = [record, record]
    if form == "lines":
        path = write(tmp_path / "a.jsonl", rows)
    else:
        path = tmp_path / "a.json"
        path.write_text(json.dumps(rows, indent=2 if form == "indented" else None), encoding="utf-8")
    table, said = read(path)
    assert table.texts == [TEXT, TEXT]
    assert table.labels == [WANTED, WANTED]
    assert len(said) == (tool in ("dataturks", "cluener", "cblue"))
    assert all("include the last character" in line for line in said)
    with recorded_warnings():
        assert read_tagged(path, labelled=False).texts == [TEXT, TEXT]


def test_numbers_of_tags_have_the_names_that_parquet_keeps(tmp_path: Path):
    names = ["O", "B-PER", "I-PER"]
    feature = {"feature": {"names": names, "_type": "ClassLabel"}, "_type": "Sequence"}
    metadata = {"huggingface": json.dumps({"info": {"features": {"ner_tags": feature}}})}
    table = pa.table({"tokens": [["Ann", "is", "here"], ["Bo"]], "ner_tags": [[1, 2, 0], [0]]})
    parquet.write_table(table.replace_schema_metadata(metadata), tmp_path / "a.parquet")
    found, said = read(tmp_path / "a.parquet")
    assert (found.texts, found.labels, said) == (["Ann is here", "Bo"], [[LabelledSpan(0, 6, "PER")], []], [])


def test_rejected_texts_and_further_annotations_are_counted(tmp_path: Path):
    rows = [RECORDS["prodigy"] | {"answer": answer} for answer in ("accept", "reject", "ignore")]
    table, said = read(write(tmp_path / "a.jsonl", rows))
    assert len(table) == 1
    assert "2 texts that the annotator rejected" in said[0]
    studio = RECORDS["label studio"]
    twice = studio | {"annotations": [studio["annotations"][1]] * 2}
    (tmp_path / "b.json").write_text(json.dumps([twice]))
    table, said = read(tmp_path / "b.json")
    assert table.labels == [WANTED]
    assert "1 text have several annotations (record 1: 2)" in said[0]
