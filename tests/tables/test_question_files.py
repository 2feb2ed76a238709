"""Files of questions in all forms: each answer stands where its text is, whatever offsets count."""

import json
from pathlib import Path
from typing import Any

import pytest

from brimful.base.console import record_warnings
from brimful.base.errors import BrimfulError
from brimful.tables.question_files import NOWHERE, Answer, QuestionTable, read_questions

CONTEXT = "😀 Ann met Bob.\nThen Ann left."
QUESTION = "who?"


def read(path: Path, content: Any) -> tuple[QuestionTable, list[str]]:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    with record_warnings() as said:
        table = read_questions(path, labelled=True)
    return table, said


def row(answers: Any, **more: Any) -> dict[str, Any]:
    return {"id": "7", "question": QUESTION, "context": CONTEXT, "answers": answers} | more


OBJECT = {"text": "Bob", "answer_start": 10}
QA = {"id": "7", "question": QUESTION, "answers": [OBJECT]}
CMRC_QA = {"query_text": QUESTION, "query_id": "7", "answers": ["Bob"]}
FORMS: dict[str, tuple[str, Any]] = {
    "squad": ("a.json", {"data": [{"title": "t", "paragraphs": [{"context": CONTEXT, "qas": [QA]}]}]}),
    "articles": ("a.json", [{"paragraphs": [{"context": CONTEXT, "qas": [QA]}]}]),
    "cmrc": ("a.json", [{"context_id": "D", "context_text": CONTEXT, "qas": [CMRC_QA]}]),
    "rows": ("a.json", [row([OBJECT])]),
    "objects": ("a.jsonl", json.dumps(row([OBJECT]))),
    "lists": ("a.jsonl", json.dumps(row({"text": ["Bob"], "answer_start": [10]}))),
    "texts": ("a.jsonl", json.dumps(row(["Bob"]))),
    "mrqa": ("a.jsonl", '{"header": {}}\n' + json.dumps({"context": CONTEXT, "qas": [QA]})),
}


@pytest.mark.parametrize("form", FORMS)
def test_files_of_all_forms(form: str, tmp_path: Path):
    name, content = FORMS[form]
    table, said = read(tmp_path / name, content)
    assert (table.texts, table.second, table.ids) == ([QUESTION], [CONTEXT], ["7"])
    assert table.labels == [[Answer(10, "Bob")]]
    assert said == []


@pytest.mark.parametrize(
    "answers",
    [row([]), row([OBJECT], is_impossible=True), row([{"text": "", "answer_start": -1}]), row([""])],
)
def test_questions_without_an_answer(answers: dict[str, Any], tmp_path: Path):
    assert read(tmp_path / "a.jsonl", json.dumps(answers))[0].labels == [[]]


def test_answers_that_no_unit_places_are_refused(tmp_path: Path):
    lines = [row([{"text": "Bob", "answer_start": start}]) for start in (10, 11)]
    with pytest.raises(BrimfulError, match=r"of 2 answers, 1 have another text .*line 2.* neither --offsets"):
        read(tmp_path / "a.jsonl", "\n".join(map(json.dumps, lines)))
    with pytest.raises(BrimfulError, match="--offsets utf-16 fits the whole file"):
        read(tmp_path / "a.jsonl", json.dumps(row([{"text": "Bob", "answer_start": 11}])))


def test_an_answer_that_is_nowhere_stays(tmp_path: Path):
    lines = [
        row([{"text": "Eve", "answer_start": 10}, OBJECT]),
        row([{"text": "Eve", "answer_start": 10}]),
        row([OBJECT]),
        row([]),
    ]
    table, said = read(tmp_path / "a.jsonl", "\n".join(map(json.dumps, lines)))
    assert table.labels[0] == [Answer(NOWHERE, "Eve"), Answer(10, "Bob")]  # type: ignore[index]
    assert len(said) == 1
    assert "2 of 4 questions have an answer that is not in their context (line 1: 'Eve')" in said[0]


@pytest.mark.parametrize("has_start", [True, False])
@pytest.mark.parametrize("text", [" Rome", "Rome ", " Rome\n", "Rome"])
def test_white_space_around_answers_is_none_of_theirs(has_start: bool, text: str, tmp_path: Path):
    start = "He, Rome, hm".index(text.rstrip()) if has_start else None
    answer = {"text": text, "answer_start": start}
    table, said = read(tmp_path / "a.jsonl", row([answer], context="He, Rome, hm"))
    assert table.labels == [[Answer(4, "Rome")]]
    assert any("white space at the ends" in line for line in said) == (text != "Rome")
