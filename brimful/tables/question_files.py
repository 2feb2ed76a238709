"""Files of questions on contexts: SQuAD's and CMRC's JSON in all its forms, lines, arrays and Parquet.

The own text of an answer must stand at its offset. An answer whose text is nowhere in its context can
be compared with predictions, but not be learnt.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from brimful.base.console import counted, warn
from brimful.base.errors import BrimfulError
from brimful.tables.file_rows import NumberedRows, all_rows, json_lines
from brimful.tables.json_files import SUFFIXES, in_lines, json_values
from brimful.tables.layouts import OWN_LAYOUT
from brimful.tables.offsets import Place, fits, place_spans, quoted
from brimful.tables.table import Table, Take, everything
from brimful.tables.text_files import readable, suffix_of

NOWHERE = -1
"""The start of an answer that is not in its context."""
_QUESTION = ("question", "query_text")
_CONTEXT = ("context", "context_text")
_ID = ("id", "query_id", "qid")
_ANSWERS = ("answers", "answer")


class Answer(NamedTuple):
    """`context[start:]` begins with the text; `start` is `NOWHERE` where the context does not have it."""

    start: int
    text: str


@dataclass(frozen=True)
class QuestionTable(Table):
    """Questions as `texts`, contexts as `second`; a label is a list of answers, empty where there is none.

    Attributes:
        ids: what the file calls the questions; else their lines or numbers.
    """

    ids: Sequence[str] = field(kw_only=True)

    types = {"labels": list[Answer], "ids": str}  # noqa: RUF012

    def groups(self) -> Sequence[str | tuple[str, ...]]:
        """The contexts."""
        assert self.second is not None
        return self.second


def read_questions(
    path: Path | str, *, labelled: bool, offsets: str = "characters", take: Take = everything
) -> QuestionTable:
    """Read SQuAD's or CMRC's .json, or rows of id, question, context and answers (.jsonl, .json, .parquet).

    In rows, answers are {"text": [...], "answer_start": [...]}, as in Hugging Face datasets, or a list of
    objects or of texts. Warnings count the answers that have no place, and the questions with an answer that
    is not in their context.

    Args:
        offsets: what the starts count (`offsets`).

    Raises:
        BrimfulError: the file cannot be read or holds no question, a question lacks a part, or an answer
            stands elsewhere in its context.
    """
    path = Path(path)
    with readable(path):
        form = suffix_of(path)
    if form not in (*SUFFIXES, ".parquet"):
        raise BrimfulError(
            f"{path}: questions are .json files in SQuAD's layout, or .jsonl or .parquet files of rows"
        )
    with readable(path):
        lined = form != ".parquet" and in_lines(path)
        source = all_rows(path, form, OWN_LAYOUT) if form == ".parquet" else _rows(path, lined)
        rows = list(take(source))
    if not rows:
        raise BrimfulError(f"{path} holds no questions")
    place = "line" if lined else "row" if form == ".parquet" else "question"
    texts, contexts, ids, given = [], [], [], []
    for number, row in rows:
        where = f"{path}, {place} {number}"
        question, context = _text(row, _QUESTION), _text(row, _CONTEXT)
        if question is None or context is None:
            lacking, keys = ("question", _QUESTION) if question is None else ("context", _CONTEXT)
            raise BrimfulError(f"{where} has no {lacking}, which is called {' or '.join(keys)}")
        texts.append(question.strip())
        contexts.append(context)
        name = next((row[key] for key in _ID if row.get(key) is not None), number)
        ids.append(str(name))
        if labelled:
            given.append(_given(row, where))
    lines = np.array([number for number, _ in rows], dtype=np.int64) if lined else None
    labels = None
    if labelled:
        labels = _placed(path, contexts, given, [f"{place} {number}" for number, _ in rows], offsets)
    return QuestionTable(path, texts, contexts, labels, lines=lines, ids=ids)


def _text(row: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    return next((row[key] for key in keys if isinstance(row.get(key), str)), None)


def _rows(path: Path, lined: bool) -> NumberedRows:
    """The number and the parts of each question of a file of JSON: its line, or how many there are so far."""
    questions = 0
    try:
        for line, value in json_lines(path) if lined else enumerate(json_values(path)):
            if lined and value.keys() == {"header"}:  # of MRQA
                continue
            for question in _questions(value):
                questions += 1
                yield line if lined else questions, question
    except (KeyError, TypeError) as error:
        raise _other_layout(path, error) from error


def _other_layout(path: Path, error: Exception) -> BrimfulError:
    reason = f"no {error}" if isinstance(error, KeyError) else "a part of another type"
    return BrimfulError(f"{path} is not in SQuAD's layout, data > paragraphs > qas ({reason})")


def _questions(value: Any) -> Iterator[dict[str, Any]]:
    """The questions within articles, paragraphs or lists, each with its context.

    Raises:
        KeyError, TypeError: a level is missing.
    """
    if isinstance(value, list):
        for part in value:
            yield from _questions(part)
    elif not isinstance(value, dict):
        raise TypeError(f"{json.dumps(value):.40} is no object")
    elif "data" in value:
        for article in value["data"]:
            known = "qas" in article or "question" in article
            yield from _questions(article if known else article["paragraphs"])
    elif "paragraphs" in value:
        yield from _questions(value["paragraphs"])
    elif "qas" in value:
        context = {key: value[key] for key in _CONTEXT if key in value}
        if not context:
            raise KeyError("context")
        for question in value["qas"]:
            yield {**context, **question}
    else:
        yield value


class _Given(NamedTuple):
    """An answer of a file, without the white space around it.

    Attributes:
        written: as it stands in the file.
    """

    start: int | None
    text: str
    written: str


def _given(row: Mapping[str, Any], where: str) -> list[_Given]:
    """The answers of a question; none where it says that there is none."""
    if row.get("is_impossible") is True:
        return []
    value = next((row[key] for key in _ANSWERS if row.get(key) is not None), None)
    if isinstance(value, dict):
        value = _of_lists(value, where)
    elif isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        raise BrimfulError(f'{where} has no answers; a question without any has "answers": []')
    answers = []
    for answer in value:
        if isinstance(answer, int | float):  # CMRC's own file has dates that a spreadsheet made numbers
            answer = str(answer)
        part = {"text": answer} if isinstance(answer, str) else answer if isinstance(answer, dict) else {}
        text, start = part.get("text"), part.get("answer_start")
        start = int(start) if isinstance(start, str) and start.lstrip("-").isdecimal() else start
        if not isinstance(text, str) or not (start is None or type(start) is int):
            shown = json.dumps(answer, ensure_ascii=False)
            raise BrimfulError(f"{where}: an answer needs answer_start and text: {shown:.80}")
        if text.strip():  # an empty one says that there is no answer
            indent = len(text) - len(text.lstrip())
            start = None if start is None else start + indent
            answers.append(_Given(start, text.strip(), text))
    return answers


def _of_lists(value: Mapping[str, Any], where: str) -> list[Any]:
    """Answers of Hugging Face datasets."""
    starts, texts = value.get("answer_start"), value.get("text")
    if isinstance(texts, str):
        return [dict(value)]
    if not isinstance(starts, list) or not isinstance(texts, list) or len(starts) != len(texts):
        raise BrimfulError(f"{where}: answers need the lists answer_start and text, equally long")
    return [{"answer_start": start, "text": text} for start, text in zip(starts, texts, strict=True)]


def _placed(
    path: Path,
    contexts: Sequence[str],
    given: Sequence[Sequence[_Given]],
    where: Sequence[str],
    offsets: str,
) -> list[list[Answer]]:
    """The answers of each question, each where its text stands in the context.

    Raises:
        BrimfulError: the context has another text at the start of an answer, and that answer elsewhere.
    """
    spaced = []
    for row, answers in enumerate(given):
        spaced += [(row, answer.written) for answer in answers if answer.text != answer.written]
    if spaced:
        row, text = spaced[0]
        warn(
            f"{path}: {counted(len(spaced), 'answer')} read without the white space at the ends"
            f" ({where[row]}: {text!r:.60})"
        )
    places: list[Place] = []
    absent = set[int]()
    for row, answers in enumerate(given):
        for answer in answers:
            if answer.start is None:
                continue
            place = Place(row, answer.start, None, answer.text)
            if answer.text in contexts[row] or fits(contexts[row], place, offsets):
                places.append(place)
            else:
                absent.add(row)
    spans = place_spans(path, "answer", contexts, places, offsets, where.__getitem__)
    starts = {place: span[0] for place, span in zip(places, spans, strict=True) if span is not None}
    looked_for, several = 0, list[tuple[int, str]]()
    labels: list[list[Answer]] = []
    for row, answers in enumerate(given):
        labels.append([])
        for start, text, _ in answers:
            if start is None:
                looked_for += 1
                start = contexts[row].find(text)
                if start < 0:
                    absent.add(row)
                elif contexts[row].find(text, start + 1) >= 0:
                    several.append((row, text))
            else:
                start = starts.get(Place(row, start, None, text), NOWHERE)
            labels[-1].append(Answer(start, text))
    if several:
        row, text = several[0]
        warn(
            f"{path}: its answers have no answer_start, and {len(several):,} of {looked_for:,} stand in"
            f" several places ({where[row]}: {quoted(text)}); the first is taken"
        )
    if absent:
        row = min(absent)
        text = next(answer.text for answer in labels[row] if answer.start == NOWHERE)
        warn(
            f"{path}: {len(absent):,} of {counted(len(given), 'question')} have an answer that is not in"
            f" their context ({where[row]}: {quoted(text)}); it counts in a test, and training leaves it out"
        )
    return labels
