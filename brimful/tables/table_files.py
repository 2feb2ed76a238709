"""Tables of texts from TSV, CSV, JSON, Parquet or Arrow files, and from .txt files of one text a line.

A file of any size can be read in slices: its reader is called once for each, and goes on where it stopped.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Protocol

from brimful.base.console import pluralise, warn
from brimful.base.errors import BrimfulError, suggest_name
from brimful.base.storage import readable
from brimful.tables.annotations import plain_rows
from brimful.tables.file_rows import NumberedRows, is_text, open_rows
from brimful.tables.layouts import OWN_LAYOUT, FileLayout, FileRow
from brimful.tables.table import Table, Take, lines_of, take_all
from brimful.tables.text_files import files_of_table, first_lines, text_lines

SLICE_TEXTS = 16_384
SLICE_CHARACTERS = 1 << 20
"""Limits of a slice, which ends at the first one that it reaches: some 60 batches of inference."""
_LIST = re.compile(r"""\[(["'].*["'])?\]""", re.DOTALL)
"""A list in a cell."""


class ReadsFiles(Protocol):
    """The part of `tasks.task.Task` that reads a file; None if its files are tables of texts or pairs."""

    read: ClassVar[Callable[..., Table] | None]


def read_file(
    task: ReadsFiles | type[ReadsFiles],
    path: Path | str,
    *,
    labelled: bool,
    layout: FileLayout = OWN_LAYOUT,
    take: Take = take_all,
) -> Table:
    """Read a file of a task, by the task's own `read`, or as a table; without labels, also a .txt file.
    `tasks.cached_tables.TaskFiles` reads the files of a folder or of a pattern as one table.

    Args:
        layout: names the columns, or says how files of GLUE or CLUE are laid out.
        take: chooses the rows. Slices (`read_files`) are for files without labels, and for tasks `by_row`.

    Raises:
        BrimfulError: the file cannot be read, or a row of it is wrong; the message names its line.
    """
    if task.read is not None:
        return task.read(path, labelled=labelled, layout=layout, take=take)
    if labelled:
        return read_table(path, labelled=True, layout=layout, take=take)
    return read_texts(path, layout, take)


def read_table(
    path: Path | str,
    *,
    labelled: bool,
    lists: bool = False,
    layout: FileLayout = OWN_LAYOUT,
    take: Take = take_all,
) -> Table:
    """Read a table.

    In a known layout, a labelled row that lacks a field (files of GLUE have some) or that nobody agreed on is
    left out, and a warning counts such rows.

    Args:
        labelled: whether to read labels. Every row must then have one.
        lists: whether a label may be a list or empty; labels then stay as the file has them (`label_lists`).
        layout: names the columns.
        take: chooses the rows.

    Raises:
        BrimfulError: the format is unknown, the file is unreadable or empty, or a column or label is missing.
    """
    path = Path(path)
    columns = layout.columns
    place, rows = open_rows(path, [columns.text, *([columns.label] * labelled), columns.text_b], layout)
    rows = plain_rows(rows, path, place, layout, labelled=labelled)
    with readable(path):  # rows are read only now
        checked = list(take(_check_rows(rows, path, place, layout, labelled=labelled, lists=lists)))
    if not checked:
        raise BrimfulError(f"{path} has no rows; expected one for each text, in .csv and .tsv below a header")
    numbers, texts, second, labels = map(list, zip(*checked, strict=True))
    return Table(
        path,
        texts,
        None if second[0] is None else second,
        labels if labelled else None,
        lines=lines_of(place, numbers),
    )


def _check_rows(
    rows: NumberedRows, path: Path, place: str, layout: FileLayout, *, labelled: bool, lists: bool
) -> Iterator[tuple[int, str, str | None, Any]]:
    """Yield the number, text, second text and label of each row. After the last row, warnings count the empty
    texts and the rows that are left out."""
    columns = layout.columns
    needed = [columns.text]
    if layout.pairs:
        needed.append(columns.text_b)
    if labelled:
        needed.append(columns.label)
    read_names = {*needed, columns.text_b}
    empty, short, unsure = list[int](), list[int](), 0
    first_place, has_pairs = "", False
    for number, row in rows:
        where = f"{path}, {place} {number}"
        if row.get(columns.text) is not None and not str(row[columns.text]).strip():
            empty.append(number)  # allowed, but a warning counts them
        if labelled and not lists:
            _unwrap_label(row, columns.label, where)
        cells: FileRow = {}
        for name in read_names & row.keys():
            cells[name] = _read_cell(row[name], name, where, keeps_lists=lists and name == columns.label)
        missing = next((name for name in needed if cells.get(name) is None), None)
        if missing is not None:
            # GLUE's files have rows that lack fields. In the first row, a missing field means another layout.
            if labelled and layout.form and first_place:
                short.append(number)
                continue
            if missing in row:
                noun = "label" if missing == columns.label else "text"
                raise BrimfulError(f"{where}: the {noun} is empty: leave such rows out")
            hint = suggest_name(missing, list(map(str, row)))
            if first_place:
                raise BrimfulError(f"{where} has no {missing!r}: {hint}")
            hint += _advise_on_columns(missing, row, layout, lists)
            raise BrimfulError(f"{path} has no column {missing!r} ({place} {number}): {hint}")
        label: Any = cells[columns.label] if labelled else None
        if labelled and not lists:
            label = label.strip()
            if not label:
                raise BrimfulError(f"{where}: the label is empty: leave such rows out")
        if label in layout.unsure:  # nobody agreed on it
            unsure += 1
            continue
        is_pair = columns.text_b in cells
        if not first_place:
            first_place, has_pairs = where, is_pair
        if is_pair != has_pairs:
            raise BrimfulError(
                f"{where if has_pairs else first_place} has no {columns.text_b}, and other rows have one:"
                " write it in all rows or in none"
            )
        second = cells[columns.text_b] or "" if is_pair else None
        yield number, cells[columns.text], second, label
    if empty:
        warn(f"{_count_lines(path, empty, place)} have an empty text")
    if short:
        warn(f"{_count_lines(path, short, place)} lack a field of {layout.name} and are left out")
    if unsure:
        warn(f"{path}: {pluralise(unsure, 'row')} with the label {' or '.join(layout.unsure)} are left out")


def _unwrap_label(row: FileRow, column: str, where: str) -> None:
    """Replace a list of one label by the label, since doccano writes a class so; refuse longer lists."""
    label = row.get(column)
    if isinstance(label, list) and len(label) < 2:
        row[column] = label[0] if label else None
    elif isinstance(label, list) or _LIST.fullmatch(str(label)):
        raise BrimfulError(
            f"{where}: {column!r} is {label!r:.60}, not a text or a number; only labels of --task"
            " multi-label are lists"
        )


def _advise_on_columns(column: str, row: FileRow, layout: FileLayout, lists: bool) -> str:
    """Return advice, after the name of a similar column, if even the first row lacks a column."""
    columns = layout.columns
    if column == columns.label and "prediction" in row:
        return "; for a file of predictions, --columns.label prediction takes them for labels"
    if column == columns.label and lists:
        return "; --columns.label a,b names columns of 0 and 1"
    if layout.name:
        return ""
    option = {columns.text: "text", columns.label: "label"}.get(column, "text-b")
    return f"; --columns.{option} names another, or its place (1, 2 ...) without a header"


def _count_lines(path: Path, lines: list[int], place: str) -> str:
    """`a.tsv: 2 rows (line 3, 7)`."""
    return f"{path}: {pluralise(len(lines), 'row')} ({place} {first_lines(lines)})"


def _read_cell(value: Any, name: str, where: str, *, keeps_lists: bool) -> Any:
    """Return a value as text, or None for a missing one; with `keeps_lists`, lists and objects stay as they
    are, and a missing value is `null`."""
    if value is None or value != value:  # pandas writes NaN for a missing value
        return "null" if keeps_lists else None
    if keeps_lists and isinstance(value, list | dict):
        return value
    if isinstance(value, list | dict | bytes):
        raise BrimfulError(f"{where}: {name!r} is {value!r:.60}, not a text or a number")
    return str(value)


def read_texts(path: Path | str, layout: FileLayout = OWN_LAYOUT, take: Take = take_all) -> Table:
    """Read texts without labels: a table, or a .txt file of one text a line. An empty line is the empty text.

    Args:
        take: chooses the rows.

    Raises:
        BrimfulError: as `read_table`.
    """
    path = Path(path)
    if layout.form or not is_text(path, [layout.columns.text]):
        return read_table(path, labelled=False, layout=layout, take=take)
    with readable(path):
        texts = list(take(_read_lines(path)))
    return Table(path, texts, None, None)


def _read_lines(path: Path) -> Iterator[str]:
    """Yield the texts of a .txt file."""
    number, with_tabs, empty = 0, 0, list[int]()
    for number, line in enumerate(text_lines(path, newline="\n"), 1):
        text = line.strip()
        with_tabs += "\t" in text
        if not text:
            empty.append(number)
        yield text
    if len(empty) == number:
        raise BrimfulError(f"{path} holds no text; expected one text a line")
    if with_tabs == number - len(empty) > 2:  # one or two texts may have a tab by chance
        raise BrimfulError(
            f"{path} has columns between tabs: read them by number (--columns.text 1 --columns.label 2)"
        )
    if empty:
        warn(f"{_count_lines(path, empty, 'line')} have an empty text")


def read_sources(table: Table, column: str, layout: FileLayout) -> list[str]:
    """Return the value that a column has in each row of a table, n texts.

    Args:
        table: a whole table, as it was read from its files.

    Raises:
        BrimfulError: a file has no such column, or a row no value in it; or its rows are not those of the
            table, as in SQuAD's JSON.
    """
    sources: list[str] = []
    starts = [first for first, _ in table.files] or [0]
    ends = [*starts[1:], len(table)]
    for path, start, end in zip(files_of_table(table.path), starts, ends, strict=True):
        place, numbered = open_rows(path, [layout.columns.text, column], layout)
        rows = dict(plain_rows(numbered, path, place, layout, labelled=False))
        first_row = next(iter(rows.values()))
        if column not in first_row:
            hint = suggest_name(column, list(map(str, first_row)))
            raise BrimfulError(f"{path} has no column {column!r} for --group: {hint}")
        # A table may leave rows of a file out, so a row is found by its line.
        numbers = range(1, end - start + 1)
        if table.lines is not None:
            numbers = table.lines[start:end].tolist()
        elif len(rows) != end - start:
            raise BrimfulError(f"{path} has no row for each text, which --group needs: write JSON lines")
        for number in numbers:
            source = str(rows[number].get(column) or "").strip()
            if not source:
                raise BrimfulError(f"{path}, {place} {number}: the column {column!r} of --group is empty")
            sources.append(source)
    return sources


class Slices:
    """Deals out the rows of one file. A row is a text, or a tuple or dictionary with texts in it."""

    def __init__(self) -> None:
        self._rows: Iterator[Any] | None = None
        self.following: list[Any] = []  # the first row of the next slice; empty at the end of the file

    def take(self, rows: Iterator[Any]) -> Iterator[Any]:
        """Yield the rows of the next slice, from the first call's iterator: later ones would begin again."""
        if self._rows is None:
            self._rows = rows
        characters = 0
        following, self.following = self.following, []
        for texts, row in enumerate(chain(following, self._rows)):
            if texts >= SLICE_TEXTS or characters >= SLICE_CHARACTERS:
                self.following = [row]
                return
            characters += _count_characters(row)
            yield row


def _count_characters(row: Any) -> int:
    if isinstance(row, str):
        return len(row)
    if isinstance(row, dict):
        row = row.values()
    elif not isinstance(row, tuple):  # a number, or a list of spans
        return 0
    return sum(map(_count_characters, row))


def read_files(read: Callable[[Path, Take], Table], files: Iterable[Path]) -> Iterator[Table]:
    """Yield a table of each slice of several files, one file after the other.

    Args:
        read: a reader, such as `lambda path, take: read_file(task, path, labelled=False, take=take)`.

    Raises:
        BrimfulError: as the reader.
    """
    for file in files:
        slices = Slices()
        yield read(file, slices.take)
        while slices.following:
            yield read(file, slices.take)
