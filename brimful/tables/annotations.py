"""Records of tools for annotation: tasks of Label Studio, answers of Prodigy, and the classes in them."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from brimful.base.console import counted, warn
from brimful.base.errors import BrimfulError
from brimful.tables.layouts import OWN, Columns

_ANSWERS = ("accept", "reject", "ignore")
"""What Prodigy writes under `answer`."""

Numbered = tuple[int, dict[str, Any]]


def is_answered(row: Mapping[str, Any]) -> bool:
    """Whether a record has an answer of Prodigy."""
    return row.get("answer") in _ANSWERS


def is_task(row: Mapping[str, Any]) -> bool:
    """Whether a record is a task of Label Studio's JSON."""
    return isinstance(row.get("data"), dict)


def results_of_task(row: Mapping[str, Any], where: str) -> tuple[list[dict[str, Any]], int]:
    """The results of one annotation of a task, and how many annotations there are.

    That is the ground truth, or else the first one that was not cancelled.

    Raises:
        BrimfulError: nobody annotated the task.
    """
    annotations = [each for each in row.get("annotations") or [] if not each.get("was_cancelled")]
    if not annotations:
        raise BrimfulError(f"{where} has no annotation: leave such tasks out of the export")
    annotations.sort(key=lambda each: not each.get("ground_truth"))
    return annotations[0].get("result", []), len(annotations)


def say_several(path: Path, numbers: list[int], place: str) -> None:
    """Warn of texts with several annotations."""
    if numbers:
        warn(
            f"{path}: {counted(len(numbers), 'text')} have several annotations ({place} {numbers[0]}), of"
            " which the first is read"
        )


def say_left_out(path: Path, numbers: list[int], place: str) -> None:
    """Warn of records that Prodigy's annotator did not accept."""
    if numbers:
        warn(
            f"{path}: {counted(len(numbers), 'text')} that the annotator rejected or passed over are left"
            f" out ({place} {numbers[0]})"
        )


def rows_of_classes(
    rows: Iterable[Numbered], path: Path, place: str, columns: Columns, labelled: bool
) -> Iterator[Numbered]:
    """The rows of a table, with their labels where `columns` says, of what the tools write for classes.

    Raises:
        BrimfulError: a task has no annotation, or choices of several kinds.
    """
    rows = iter(rows)
    first = next(rows, None)
    if first is None:
        return
    rows = chain([first], rows)
    if is_task(first[1]):
        yield from _of_tasks(rows, path, place, columns, labelled)
    elif labelled and is_answered(first[1]) and columns.label != "answer":
        yield from _of_answers(rows, path, place, columns.label)
    else:
        yield from rows


def _of_tasks(
    rows: Iterable[Numbered], path: Path, place: str, columns: Columns, labelled: bool
) -> Iterator[Numbered]:
    several: list[int] = []
    for number, row in rows:
        where = f"{path}, {place} {number}"
        if not is_task(row):
            raise BrimfulError(f"{where} has no data: all records before it are tasks of Label Studio")
        if not labelled:
            yield number, row["data"]
            continue
        try:
            results, count = results_of_task(row, where)
            label = _choices(results, columns.label, where)
        except (AttributeError, KeyError, TypeError) as error:
            raise BrimfulError(f"{where} is not a task as Label Studio exports it") from error
        if count > 1:
            several.append(number)
        yield number, {**row["data"], columns.label: label}
    say_several(path, several, place)


def _choices(results: Iterable[Mapping[str, Any]], label: str, where: str) -> list[str]:
    """The names that were chosen where one was to choose, or where `label` says."""
    chosen: dict[str, list[str]] = {}
    for result in results:
        if result.get("type") == "choices":
            chosen[result["from_name"]] = list(result["value"]["choices"])
    if label in chosen or label != OWN.label:
        return chosen.get(label, [])
    if len(chosen) > 1:
        raise BrimfulError(f"{where} has choices of {', '.join(chosen)}: --columns.label names one of them")
    return next(iter(chosen.values()), [])


def _of_answers(rows: Iterable[Numbered], path: Path, place: str, label: str) -> Iterator[Numbered]:
    """A rejected text is no example of its label. Where all have one label, the answers are the classes."""
    records = list(rows)
    labels = {str(row.get(label)) for _, row in records}
    answers = {row.get("answer") for _, row in records}
    is_one = len(labels) == 1 and "accept" not in records[0][1] and answers >= {"accept", "reject"}
    if is_one:
        warn(
            f"{path}: all texts have the label {labels.pop()!r:.60}, so the answers accept and reject are the"
            " classes"
        )
    left_out: list[int] = []
    for number, row in records:
        answer = row.get("answer")
        if answer != "accept" and not (is_one and answer == "reject"):
            left_out.append(number)
        elif is_one:
            yield number, {**row, label: answer}
        elif "options" in row and "accept" in row:
            yield number, {**row, label: row["accept"]}
        else:
            yield number, row
    say_left_out(path, left_out, place)
