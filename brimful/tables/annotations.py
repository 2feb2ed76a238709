"""Records of tools for annotation, as rows of a table: tasks of Label Studio and answers of Prodigy."""

from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path
from typing import Any

from brimful.base.errors import BrimfulError
from brimful.tables.file_rows import NumberedRows
from brimful.tables.layouts import OWN, Columns, FileLayout, FileRow
from brimful.tables.text_files import warn_of

_ANSWER = "answer"
_ANSWERS = ("accept", "reject", "ignore")
"""The values of `answer` in Prodigy's records."""


def plain_rows(
    rows: NumberedRows,
    path: Path,
    place: str,
    layout: FileLayout,
    *,
    labelled: bool,
    spans: bool = False,
) -> NumberedRows:
    """Yield the rows of a file. The labels of the tools become values of the label's column in the layout;
    rows of other files stay the same.

    Args:
        place: the noun of the numbers of rows.
        spans: whether labels are spans, rather than classes.

    Raises:
        BrimfulError: a task has no annotation, or choices of several kinds.
    """
    numbered_rows, columns = list(islice(rows, 1)), layout.columns
    if not numbered_rows:
        return
    row = numbered_rows[0][1]
    rows = chain(numbered_rows, rows)
    if isinstance(row.get("data"), dict):
        yield from _read_tasks(rows, path, place, columns, labelled, spans)
    elif labelled and row.get("answer") in _ANSWERS:
        yield from _read_answers(rows, path, place, columns.label, spans)
    else:
        yield from rows


def _read_tasks(
    rows: NumberedRows, path: Path, place: str, columns: Columns, labelled: bool, spans: bool
) -> NumberedRows:
    """Yield the rows of tasks, with the label of the ground truth or of the first finished annotation."""
    several: list[int] = []
    for number, task in rows:
        where = f"{path}, {place} {number}"
        try:
            row = dict(task["data"])  # a copy, since the label is added
            if labelled:
                done = [each for each in task["annotations"] if not each.get("was_cancelled")]
                if not done:
                    raise BrimfulError(f"{where} has no annotation: leave such tasks out of the export")
                if len(done) > 1:
                    several.append(number)
                truths = [each for each in done if each.get("ground_truth")]
                results = (truths or done)[0]["result"]
                if spans:
                    row[columns.label] = _list_spans(results)
                else:
                    row[columns.label] = _list_choices(results, columns.label, where)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BrimfulError(f"{where} is not a task as Label Studio exports it") from error
        yield number, row
    warn_of(path, "text", several, f"have several annotations ({place} {{}}), of which the first is read")


def _list_spans(results: Iterable[FileRow]) -> list[Any]:
    values = [result.get("value", {}) for result in results]
    return [value for value in values if "start" in value]


def _list_choices(results: Iterable[FileRow], label: str, where: str) -> list[str]:
    """Return the chosen names of the only set of choices, or of the set that `label` names."""
    chosen: dict[str, list[str]] = {}
    others: dict[str, str] = {}
    for result in results:
        if result["type"] != "choices":
            others[result.get("from_name", "")] = result["type"]
        else:
            chosen[result["from_name"]] = list(result["value"]["choices"])
    if label in others:
        raise BrimfulError(f"{where}: {label!r} is of the type {others[label]}; choices are read")
    if label in chosen or label != OWN.label:
        return chosen.get(label, [])
    if len(chosen) > 1:
        raise BrimfulError(f"{where} has choices of {', '.join(chosen)}: --columns.label names one of them")
    if others and not chosen:
        raise BrimfulError(f"{where} has no choices; it has {', '.join(sorted({*others.values()}))}")
    return next(iter(chosen.values()), [])


def _read_answers(records: NumberedRows, path: Path, place: str, label: str, spans: bool) -> NumberedRows:
    """Yield the rows of answers without rejected texts, unless the answers are the classes."""
    kept = {"accept", "reject"} if label == _ANSWER else {"accept"}
    left_out: list[int] = []
    for number, row in records:
        if row.get(_ANSWER) not in kept:
            left_out.append(number)
        elif label != _ANSWER and "options" in row and "accept" in row:  # a choice
            yield number, {**row, label: row["accept"]}
        else:
            yield number, row
    remedy = "" if spans or label == _ANSWER else "; --columns.label answer makes them classes"
    rejected = f"that the annotator rejected or passed over are left out ({place} {{}}){remedy}"
    warn_of(path, "text", left_out, rejected)
