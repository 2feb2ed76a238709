"""Files of questions on contexts: SQuAD's JSON, rows of Hugging Face datasets, CMRC's own JSON.

At the offset of an answer, its context must have the text of the answer. If the context lacks this text, the
answer can be compared with predictions, but not learnt.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from brimful.base.console import pluralise, warn
from brimful.base.errors import BrimfulError
from brimful.base.storage import readable
from brimful.tables.file_rows import RECORD_SUFFIXES, NumberedRows, open_rows
from brimful.tables.layouts import OWN, OWN_LAYOUT, FileLayout, FileRow
from brimful.tables.offsets import Place, find_span, place_spans, quote
from brimful.tables.table import Table, Take, lines_of, take_all
from brimful.tables.text_files import suffix_of, warn_of

NOWHERE = -1
"""The start of an answer that is not in its context."""
_KEYS = ("question", "context")
_OTHER_KEYS = {"query_text": "question", "query_id": "id", "qid": "id"}
"""Names in CMRC's own JSON and in MRQA's lines, and the usual ones."""
_FileAnswer = tuple[int | None, str]
"""The start and the text of an answer in a file; the start is None if the file says only its text."""


class Answer(NamedTuple):
    """An answer: `context[start:]` begins with `text`, or `start` is `NOWHERE` if the context lacks the
    text."""

    start: int
    text: str


@dataclass(frozen=True)
class QuestionTable(Table):
    """Questions as `texts`, contexts as `second`; a label is a list of answers, empty without an answer.

    Attributes:
        ids: the names of the questions in the file, or their lines or numbers.
    """

    ids: Sequence[str] = field(kw_only=True)

    types = {"labels": list[Answer], "ids": str}  # noqa: RUF012

    def groups(self) -> Sequence[str | tuple[str, ...]]:
        """Return the contexts."""
        assert self.second is not None
        return self.second


def read_questions(
    path: Path | str, *, labelled: bool, layout: FileLayout = OWN_LAYOUT, take: Take = take_all
) -> QuestionTable:
    """Read SQuAD's or CMRC's .json, MRQA's lines, or rows of id, question, context and answers.

    In rows, answers are {"text": [...], "answer_start": [...]}, as in Hugging Face datasets, or a list of
    objects or of texts without places, as in the other files. Warnings count the answers that stand in
    several places, and the questions with an answer that is not in their context.

    Args:
        layout: the unit of the starts. Its columns must be the default ones.

    Raises:
        BrimfulError: the file cannot be read or holds no question, a question lacks a part, an answer stands
            elsewhere in its context, or the layout names columns.
    """
    if layout.columns != OWN:
        raise BrimfulError(
            "the files of question-answering have keys and columns of their own: leave out --columns"
        )
    path = Path(path)
    with readable(path):
        if suffix_of(path) not in RECORD_SUFFIXES:
            raise BrimfulError(
                f"{path}: questions are .json files in SQuAD's layout, or .jsonl, .parquet or .arrow files of"
                " rows"
            )
        place, numbered = open_rows(path, _KEYS, OWN_LAYOUT, every=True)
        if place == "record":  # in SQuAD's files, an article with many questions
            place = "question"
        rows = list(take(_list_questions(numbered, counts=place == "question")))
    if not rows:
        raise BrimfulError(f"{path} holds no questions")
    numbers, wheres, texts, contexts, ids, answers = [], [], [], [], [], []
    for number, row in rows:
        where = f"{place} {number}"
        for key in _KEYS:
            if not isinstance(row.get(key), str):
                raise BrimfulError(
                    f"{path}, {where} has no {key!r}: questions are SQuAD's JSON, or rows of question,"
                    " context and answers (docs/your-data.md)"
                )
        numbers.append(number)
        wheres.append(where)
        texts.append(row["question"].strip())
        contexts.append(row["context"])
        ids.append(str(row.get("id", number)))
        if labelled:
            answers.append(_read_answers(row, f"{path}, {where}"))
    labels = None
    if labelled:
        labels = _place_answers(path, wheres, contexts, answers, layout.offsets)
    return QuestionTable(path, texts, contexts, labels, lines=lines_of(place, numbers), ids=ids)


def _list_questions(rows: NumberedRows, *, counts: bool) -> NumberedRows:
    """Yield the questions of rows or paragraphs, with the number of the row, or, with `counts`, of the
    question."""
    questions = 0
    for number, row in rows:
        for question in _split_row(row):
            questions += 1
            yield questions if counts else number, question


def _split_row(row: FileRow) -> Iterator[FileRow]:
    if row.keys() == {"header"}:  # the first line of MRQA's files
        return
    if not isinstance(row.get("qas"), list):
        yield dict(row)
        return
    for question in row["qas"]:
        values = {"context": row.get("context", row.get("context_text"))}
        if isinstance(question, dict):
            values |= question
        for name, key in _OTHER_KEYS.items():
            if name in values:
                values[key] = values[name]
        yield values


def _read_answers(row: FileRow, where: str) -> list[_FileAnswer]:
    """Return the answers of a question; an empty list if the file says that it has no answer."""
    if row.get("is_impossible") is True:
        return []
    value = row.get("answers")
    if isinstance(value, dict):  # of a row of Hugging Face datasets
        starts, texts = value.get("answer_start"), value.get("text")
        if not isinstance(starts, list) or not isinstance(texts, list) or len(starts) != len(texts):
            raise BrimfulError(f"{where}: answers need the lists answer_start and text, equally long")
        value = [{"answer_start": start, "text": text} for start, text in zip(starts, texts, strict=True)]
    if not isinstance(value, list):
        raise BrimfulError(f'{where} has no answers; a question without any has "answers": []')
    answers = []
    for answer in value:
        if isinstance(answer, str | int | float):  # a spreadsheet made numbers of dates in CMRC's own file
            answer = {"text": str(answer)}
        text = start = None
        if isinstance(answer, dict):
            text, start = answer.get("text"), answer.get("answer_start")
        if not isinstance(text, str) or not (start is None or type(start) is int):
            example = json.dumps(answer, ensure_ascii=False)
            raise BrimfulError(f"{where}: an answer needs answer_start and text: {example:.80}")
        if text.strip():  # an empty one says that there is no answer
            answers.append((start, text))
    return answers


def _place_answers(
    path: Path,
    wheres: Sequence[str],
    contexts: Sequence[str],
    file_answers: Sequence[Sequence[_FileAnswer]],
    offsets: str,
) -> list[list[Answer]]:
    """Return the answers of each question, without white space around them, with their places."""
    places: list[Place] = []
    slots: list[tuple[int, int]] = []  # the row of each place, and its answer
    spaced, several, absent = list[str](), list[str](), dict[int, str]()
    labels: list[list[Answer]] = []
    for row, (where, context) in enumerate(zip(wheres, contexts, strict=True)):
        labels.append([])
        for start, file_text in file_answers[row]:
            text = file_text.strip()
            example = f"{where}: {quote(text)}"
            if text != file_text:
                spaced.append(f"{where}: {file_text!r:.60}")
            first = context.find(text)
            if start is None:
                if context.find(text, first + 1) > first >= 0:
                    several.append(example)
            else:
                start += len(file_text) - len(file_text.lstrip())
                place = Place(where, context, start, None, text)
                # A file may have answers that their contexts lack. A place may also fit because only case or
                # width differ.
                if first >= 0 or find_span(place, offsets):
                    slots.append((row, len(labels[row])))
                    places.append(place)
                    first = start
            if first < 0:  # `NOWHERE`, too
                absent.setdefault(row, example)
            labels[row].append(Answer(first, text))
    for (row, index), (start, _) in zip(slots, place_spans(path, "answer", places, offsets), strict=True):
        labels[row][index] = labels[row][index]._replace(start=start)
    warn_of(path, "answer", spaced, "read without the white space at the ends ({})")
    in_several = "without answer_start stand in several places ({}); the first is taken"
    warn_of(path, "answer", several, in_several)
    if absent:
        example = next(iter(absent.values()))
        warn(
            f"{path}: {len(absent):,} of {pluralise(len(labels), 'question')} have an answer that is not in"
            f" their context ({example}); it counts in a test, and training leaves it out"
        )
    return labels
