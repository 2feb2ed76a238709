"""Tables of texts from TSV, CSV, JSON, Parquet or Arrow files, and from .txt files of one text a line."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from brimful.base.console import pluralise, record_warnings, warn
from brimful.base.errors import BrimfulError, suggest_name
from brimful.tables.annotations import layout_of_files, plain_rows
from brimful.tables.file_rows import PLACES, NumberedRows, is_text, open_rows
from brimful.tables.layouts import OWN_LAYOUT, FileLayout
from brimful.tables.table import Table, Take, everything
from brimful.tables.text_files import files_of_table, first_lines, readable, text_lines

_LIST = re.compile(r"""\[(["'].*["'])?\]""", re.DOTALL)
"""A list in a cell."""


class Reads(Protocol):
    """What a task says of its files (`tasks.task.Task`)."""

    read: ClassVar[Callable[..., Table] | None]
    """Its own reader; None: they are tables of texts or pairs."""


def read_file(
    task: Reads | type[Reads],
    path: Path | str,
    *,
    labelled: bool,
    layout: FileLayout = OWN_LAYOUT,
    take: Take = everything,
) -> Table:
    """Read a file of a task: by its own `read`, else as a table; without labels, also a .txt file.
    Several files, a folder or those that a pattern matches, are one table.

    Args:
        layout: names the columns, or says how files of GLUE or CLUE are laid out.
        take: which rows; a file can be read in slices (`slices.read_slices`) without labels, or `by_row`.

    Raises:
        BrimfulError: the file cannot be read, or a row of it is wrong; the message names its line.
    """
    files = files_of_table(path)
    if len(files) > 1:
        layout = layout_of_files(files, layout) if labelled else layout
        tables = [read_file(task, file, labelled=labelled, layout=layout, take=take) for file in files]
        return _joined(tables, Path(path))
    path = files[0]
    if task.read is not None:
        return task.read(path, labelled=labelled, layout=layout, take=take)
    if labelled:
        return read_table(path, labelled=True, layout=layout, take=take)
    return read_texts(path, layout, take)


def _joined(tables: Sequence[Table], path: Path) -> Table:
    """The rows of the tables of several files, which a pattern or a folder names.

    Raises:
        BrimfulError: not all have the same columns, or they are of different formats.
    """
    files, rows = [], 0
    for table in tables:
        files.append((rows, str(table.path)))
        rows += len(table)
    columns: dict[str, Any] = {}
    for name in [each.name for each in fields(tables[0]) if each.name not in ("path", "files")]:
        parts = [getattr(table, name) for table in tables]
        for table, part in zip(tables, parts, strict=True):
            if (part is None) != (parts[0] is None):
                raise BrimfulError(
                    f"{table.path} has other columns or another format than {tables[0].path}: {path} is one"
                    " table"
                )
        if isinstance(parts[0], np.ndarray):
            columns[name] = np.concatenate(parts)
        elif parts[0] is not None:
            columns[name] = list(chain.from_iterable(parts))
    return replace(tables[0], path=path, files=tuple(files), **columns)


def _with_warning(rows: NumberedRows, path: Path, column: str, place: str) -> NumberedRows:
    """The same rows. After the last of them, also of a file in slices, a warning counts the empty texts."""
    empty: list[int] = []
    for number, row in rows:
        if row.get(column) is not None and not str(row[column]).strip():
            empty.append(number)
        yield number, row
    if empty:
        warn(f"{_counted_lines(path, empty, place)} have an empty text")


def read_table(
    path: Path | str,
    *,
    labelled: bool,
    lists: bool = False,
    layout: FileLayout = OWN_LAYOUT,
    take: Take = everything,
) -> Table:
    """Read a table.

    In a known layout, a labelled row that lacks a field (files of GLUE have some) or that nobody agreed on is
    left out, and a warning counts such rows.

    Args:
        labelled: whether to read labels. Every row must then have one.
        lists: whether a label may be a list or empty; it is then left as it stands (`label_lists`).
        layout: names the columns.
        take: which rows.

    Raises:
        BrimfulError: the format is unknown, the file is unreadable or empty, or a column or label is missing.
    """
    path = Path(path)
    columns = layout.columns
    form, rows = open_rows(path, [columns.text, *([columns.label] * labelled), columns.text_b], layout)
    place = PLACES.get(form, "line")
    rows = plain_rows(rows, path, place, layout, labelled=labelled)
    rows = _with_warning(rows, path, columns.text, place)
    with readable(path):
        found = list(take(_checked(rows, path, place, layout, labelled=labelled, lists=lists)))
    if not found:
        expected = "a header and one row" if form in (".csv", ".tsv") else "a row"
        raise BrimfulError(f"{path} has no rows; expected {expected} for each text")
    lines, texts, second, labels = map(list, zip(*found, strict=True))
    return Table(
        path,
        texts,
        None if second[0] is None else second,
        labels if labelled else None,
        lines=None if form in PLACES else np.array(lines, dtype=np.int64),
    )


def glance(path: Path | str, layout: FileLayout) -> None:
    """Refuse a file that is no table of labels, by its first row. Warnings are left to who reads it all.

    Raises:
        BrimfulError: as `read_table`.
    """
    with record_warnings():
        read_table(files_of_table(path)[0], labelled=True, layout=layout, take=lambda rows: islice(rows, 1))


def _checked(
    rows: NumberedRows, path: Path, place: str, layout: FileLayout, *, labelled: bool, lists: bool
) -> Iterator[tuple[int, str, str | None, Any]]:
    """The number, text, second text and label of each row. After the last of them, also of a file in slices,
    warnings count the rows that are left out.

    Raises:
        BrimfulError: as `read_table`.
    """
    columns = layout.columns
    needed = [columns.text, *([columns.text_b] if layout.pairs else []), *([columns.label] * labelled)]
    wanted = {*needed, columns.text_b}
    many = columns.label if lists else None
    unsure, short = 0, list[int]()
    first: tuple[str, bool] | None = None
    for number, row in rows:
        where = f"{path}, {place} {number}"
        label = row.get(columns.label)
        if labelled and not lists and isinstance(label, list) and len(label) < 2:
            row[columns.label] = label[0] if label else None  # as doccano writes a class
        elif labelled and not lists and (isinstance(label, list) or _LIST.fullmatch(str(label))):
            raise BrimfulError(
                f"{where}: {columns.label!r} is {label!r:.60}, not a text or a number; only labels of --task"
                " multi-label are lists"
            )
        cells = {name: _cell(row[name], name, where, name == many) for name in wanted if name in row}
        missing = next((column for column in needed if cells.get(column) is None), None)
        if missing is not None and labelled and layout.form and first:
            short.append(number)
            continue
        if missing is not None and missing in row:
            what = "label" if missing == columns.label else "text"
            raise BrimfulError(f"{where}: the {what} is empty: leave such rows out")
        if missing is not None:
            hint = suggest_name(missing, [str(name) for name in row])
            option = {columns.text: "text", columns.label: "label"}.get(missing, "text-b")
            if first:
                raise BrimfulError(f"{where} has no {missing!r}: {hint}")
            if missing == columns.label and "prediction" in row:
                hint = "it is a file of predictions; --columns.label prediction takes them for labels"
            elif missing == columns.label and lists:
                hint += "; --columns.label a,b names columns of 0 and 1"
            elif not layout.name:
                hint += f"; --columns.{option} names another, or its place (1, 2 ...) without a header"
            raise BrimfulError(f"{path} has no column {missing!r} ({place} {number}): {hint}")
        label = None
        if labelled:
            label = cells[columns.label]
            label = label if lists else label.strip()
            if label == "" and not lists:
                raise BrimfulError(f"{where}: the label is empty: leave such rows out")
            if label in layout.unsure:
                unsure += 1
                continue
        paired = columns.text_b in cells
        first = first or (where, paired)
        if paired != first[1]:
            raise BrimfulError(
                f"{where if first[1] else first[0]} has no {columns.text_b}, and other rows have one: write"
                " it in all rows or in none"
            )
        yield number, cells[columns.text], (cells[columns.text_b] or "") if paired else None, label
    if short:
        warn(f"{_counted_lines(path, short, place)} lack a field of {layout.name} and are left out")
    if unsure:
        warn(f"{path}: {pluralise(unsure, 'row')} with the label {' or '.join(layout.unsure)} are left out")


def _counted_lines(path: Path, lines: list[int], place: str) -> str:
    """`a.tsv: 2 rows (line 3, 7)`."""
    return f"{path}: {pluralise(len(lines), 'row')} ({place} {first_lines(lines)})"


def _cell(value: Any, name: str, where: str, lists: bool) -> Any:
    """A value as text; None if it is missing. Where `lists` says so, a list or an object stays what it is.

    Raises:
        BrimfulError: it is a list, an object or bytes.
    """
    if value is None or value != value:  # pandas writes what is missing as NaN
        return "null" if lists else None
    if lists and isinstance(value, list | dict):
        return value
    if isinstance(value, list | dict | bytes):
        raise BrimfulError(f"{where}: {name!r} is {value!r:.60}, not a text or a number")
    return str(value)


def read_texts(path: Path | str, layout: FileLayout = OWN_LAYOUT, take: Take = everything) -> Table:
    """Texts without labels: a table, or a .txt file of one text a line. An empty line is the empty text.

    Args:
        take: which rows.

    Raises:
        BrimfulError: as `read_table`.
    """
    path = Path(path)
    if layout.form or not is_text(path, [layout.columns.text]):
        return read_table(path, labelled=False, layout=layout, take=take)
    with readable(path):
        texts = list(take(_lines(path)))
    return Table(path, texts, None, None)


def _lines(path: Path) -> Iterator[str]:
    number, divided, empty = 0, 0, list[int]()
    for number, line in enumerate(text_lines(path, newline="\n"), 1):
        text = line.strip()
        divided += "\t" in text
        if not text:
            empty.append(number)
        yield text
    if len(empty) == number:
        raise BrimfulError(f"{path} holds no text; expected one text a line")
    if divided == number - len(empty) > 2:
        raise BrimfulError(
            f"{path} has columns between tabs: read them by number (--columns.text 1 --columns.label 2)"
        )
    if empty:
        warn(f"{_counted_lines(path, empty, 'line')} have an empty text")
