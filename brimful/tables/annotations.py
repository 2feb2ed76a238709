"""Records of tools for annotation: tasks of Label Studio and answers of Prodigy, as rows of a table."""

from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from brimful.base.console import counted, warn
from brimful.base.errors import BrimfulError
from brimful.tables.file_rows import NumberedRows
from brimful.tables.layouts import OWN, Columns

_ANSWERS = ("accept", "reject", "ignore")
"""What Prodigy writes under `answer`."""


def plain_rows(
    rows: NumberedRows,
    path: Path,
    place: str,
    columns: Columns,
    *,
    labelled: bool,
    spans: bool = False,
) -> NumberedRows:
    """The rows of a file, with the labels of the tools where `columns` says. Rows of other files stay.

    Args:
        place: what rows are counted in.
        spans: whether labels are spans, rather than classes.

    Raises:
        BrimfulError: a task has no annotation, or choices of several kinds.
    """
    first = next(rows, None)
    if first is None:
        return
    row = first[1]
    rows = chain([first], rows)
    if isinstance(row.get("data"), dict):
        yield from _of_tasks(rows, path, place, columns, labelled, spans)
    elif labelled and row.get("answer") in _ANSWERS and columns.label != "answer":
        yield from _of_answers(rows, path, place, columns.label, spans)
    else:
        yield from rows


def _of_tasks(
    rows: NumberedRows, path: Path, place: str, columns: Columns, labelled: bool, spans: bool
) -> NumberedRows:
    """The ground truth is read, or else the first annotation that was not cancelled."""
    several: list[int] = []
    for number, task in rows:
        where = f"{path}, {place} {number}"
        try:
            row = dict(task["data"])
            if labelled:
                done = [each for each in task["annotations"] if not each.get("was_cancelled")]
                if not done:
                    raise BrimfulError(f"{where} has no annotation: leave such tasks out of the export")
                if len(done) > 1:
                    several.append(number)
                done.sort(key=lambda each: not each.get("ground_truth"))
                results = done[0]["result"]
                row[columns.label] = _spans(results) if spans else _choices(results, columns.label, where)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BrimfulError(f"{where} is not a task as Label Studio exports it") from error
        yield number, row
    if several:
        warn(
            f"{path}: {counted(len(several), 'text')} have several annotations ({place} {several[0]}), of"
            " which the first is read"
        )


def _spans(results: Iterable[Mapping[str, Any]]) -> list[Any]:
    values = [result.get("value", {}) for result in results]
    return [value for value in values if "start" in value]


def _choices(results: Iterable[Mapping[str, Any]], label: str, where: str) -> list[str]:
    """The names that were chosen where one was to choose, or where `label` says."""
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


def _of_answers(rows: NumberedRows, path: Path, place: str, label: str, spans: bool) -> NumberedRows:
    """Rejected texts are left out. Where all have one label, the answers are the classes."""
    records = list(rows)
    labels = {str(row.get(label)) for _, row in records}
    answers = [row.get("answer") for _, row in records]
    is_binary = len(labels) == 1 and isinstance(records[0][1].get(label), str) and not spans
    is_binary = is_binary and "accept" in answers and "reject" in answers
    if is_binary:
        warn(
            f"{path}: all texts have the label {labels.pop()!r:.60}, so the answers accept and reject are the"
            " classes"
        )
    left_out: list[int] = []
    for (number, row), answer in zip(records, answers, strict=True):
        if answer != "accept" and not (is_binary and answer == "reject"):
            left_out.append(number)
        elif is_binary:
            yield number, {**row, label: answer}
        elif "options" in row and "accept" in row:
            yield number, {**row, label: row["accept"]}
        else:
            yield number, row
    if left_out:
        warn(
            f"{path}: {counted(len(left_out), 'text')} that the annotator rejected or passed over are left"
            f" out ({place} {left_out[0]})"
        )
