"""Tables of texts: TSV, CSV, JSON, Parquet or Arrow files with columns of texts, second texts and labels."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from brimful.console import counted, warn
from brimful.errors import BrimfulError, nearest
from brimful.tasks.columns import Column
from brimful.tasks.layouts import OWN_LAYOUT, Layout
from brimful.tasks.rows import FORMATS as FORMATS
from brimful.tasks.rows import PLACES, Rows, is_text, open_rows
from brimful.tasks.rows import all_rows as all_rows
from brimful.tasks.rows import check_characters as check_characters
from brimful.tasks.rows import json_lines as json_lines
from brimful.tasks.rows import rows_of_file as rows_of_file
from brimful.tasks.text_files import first_lines, readable, text_lines

_LARGEST = float(np.finfo(np.float32).max)

Take = Callable[[Iterator[Any]], Iterable[Any]]
"""Which rows of a file are read: `everything`, or the next part of them (`parts.Parts`)."""


def everything(rows: Iterator[Any]) -> Iterator[Any]:
    """All rows of a file."""
    return rows


@dataclass(frozen=True)
class Table:
    """The columns of a table. `second` and `labels` are None if the file does not have them.

    A label is what the task reads: the text of its column by default.

    Attributes:
        lines: int64, the line of the file that each row begins at; None: row i is the i-th.
        ids: what a submission calls the rows; None: their numbers from 0.
        rows: int64, of a table that was taken from another one: its rows there, from 0; None: it is whole.
        types: what the values of other columns than texts are, if they are not plain JSON.
    """

    path: Path
    texts: Sequence[str]
    second: Sequence[str] | None
    labels: Sequence[Any] | None
    lines: np.ndarray | None = field(default=None, kw_only=True)
    ids: Sequence[str] | None = field(default=None, kw_only=True)
    rows: np.ndarray | None = field(default=None, kw_only=True)

    types: ClassVar[Mapping[str, Any]] = {}

    def __len__(self) -> int:
        return len(self.texts)

    def number(self, row: int) -> int:
        """The number of a row (counted from 0), for messages: from 1, in the table as it was read."""
        return 1 + (row if self.rows is None else int(self.rows[row]))

    def where(self, row: int) -> str:
        """The file and the place in it of a row (counted from 0), for messages."""
        if self.lines is None:
            return f"{self.path}, row {self.number(row)}"
        return f"{self.path}, line {self.lines[row]}"

    def label_index(self, row: int, label: str, index: Mapping[str, int]) -> int:
        """The index of a label of a row.

        Raises:
            BrimfulError: the task does not know the label; the message names its place and the nearest one.
        """
        if label not in index:
            hint = nearest(label, list(index))
            raise BrimfulError(f"{self.where(row)}: unknown label {label!r}; {hint}")
        return index[label]

    def take(self, rows: Sequence[int] | np.ndarray) -> Self:
        """A table of the given rows, in the given order."""

        index = np.asarray(rows, dtype=np.int64)

        def pick(value: Any) -> Any:
            if isinstance(value, Column):
                return value.take(index)
            if isinstance(value, np.ndarray):
                return value[index]
            return [value[i] for i in rows] if isinstance(value, list) else value

        taken = {field.name: pick(getattr(self, field.name)) for field in fields(self)}
        return replace(self, **taken | {"rows": index if self.rows is None else self.rows[index]})

    @cached_property
    def fingerprints(self) -> np.ndarray:
        """uint64 (n,): hashes of `keys`."""
        digests = (
            blake2b(f"{len(text)} {text}{second}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
            for text, second in self.keys()
        )
        return np.frombuffer(b"".join(digests), dtype=np.uint64)

    def keys(self) -> list[tuple[str, str]]:
        """Equal for two rows of the same text or pair."""
        return list(zip(self.texts, self.second or [""] * len(self), strict=True))

    def groups(self) -> Sequence[object]:
        """Equal for rows that stay together when the table is divided: those of equal texts or pairs."""
        return self.keys()

    def numbers(self) -> np.ndarray:
        """The labels as numbers, float32 (n,).

        Raises:
            BrimfulError: a label is not a finite number; the message names its place.
        """
        assert self.labels is not None
        values = []
        for row, label in enumerate(self.labels):
            try:
                values.append(math.nan if "_" in label else float(label))  # Python reads 1_000 as 1000
            except ValueError:
                values.append(math.nan)
            if not abs(values[-1]) <= _LARGEST:
                raise BrimfulError(f"{self.where(row)}: the label {label!r} is not a finite number")
        return np.array(values, dtype=np.float32)


def with_text(table: Table) -> np.ndarray:
    """int64: the rows whose text is not empty."""
    return np.array([row for row, text in enumerate(table.texts) if text], dtype=np.int64)


def _with_warning(rows: Rows, path: Path, column: str, place: str) -> Rows:
    """The same rows. After the last of them, also of a file in parts, a warning counts the empty texts."""
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
    layout: Layout = OWN_LAYOUT,
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
    needed = [columns.text, *([columns.text_b] if layout.pairs else []), *([columns.label] * labelled)]
    wanted = [*needed, columns.text_b, *([layout.id] if layout.id else [])]
    form, rows = open_rows(path, wanted, layout)
    place = PLACES.get(form, "line")
    rows = _with_warning(rows, path, columns.text, place)
    texts: list[str] = []
    second: list[str] = []
    labels: list[Any] = []
    lines: list[int] = []
    ids: list[str] = []
    unsure, short = 0, list[int]()
    unpaired: str | None = None
    with readable(path):
        for number, row in take(rows):
            where = f"{path}, {place} {number}"
            many = columns.label if lists else None
            cells = {name: _cell(row[name], name, where, name == many) for name in wanted if name in row}
            missing = next((column for column in needed if cells.get(column) is None), None)
            if missing is not None and labelled and layout.form and texts:
                short.append(number)
                continue
            if missing is not None and missing in row:
                what = "label" if missing == columns.label else "text"
                raise BrimfulError(f"{where}: the {what} is empty")
            if missing is not None:
                hint = nearest(missing, [str(name) for name in row])
                if texts:
                    raise BrimfulError(f"{where} has no {missing!r}: {hint}")
                raise BrimfulError(f"{path} has no column {missing!r} ({place} {number}): {hint}")
            if labelled:
                label = cells[columns.label]
                label = label if lists else label.strip()
                if label == "" and not lists:
                    raise BrimfulError(f"{where}: the label is empty")
                if label in layout.unsure:
                    unsure += 1
                    continue
                labels.append(label)
            texts.append(cells[columns.text])
            lines.append(number)
            if columns.text_b in cells:
                second.append(cells[columns.text_b] or "")
            else:
                unpaired = unpaired or where
            if layout.id and cells.get(layout.id) is not None:
                ids.append(cells[layout.id])
    if not texts:
        expected = "a header and one row" if form in (".csv", ".tsv") else "a row"
        raise BrimfulError(f"{path} has no rows; expected {expected} for each text")
    if second and unpaired:
        raise BrimfulError(
            f"{unpaired} has no {columns.text_b}, and other rows have one: write it in all rows or in none"
        )
    if short:
        warn(f"{_counted_lines(path, short, place)} lack a field of {layout.name} and are left out")
    if unsure:
        warn(f"{path}: {counted(unsure, 'row')} with the label {' or '.join(layout.unsure)} are left out")
    numbers = None if form in PLACES else np.array(lines, dtype=np.int64)
    named = ids if len(ids) == len(texts) else None
    return Table(path, texts, second or None, labels or None, lines=numbers, ids=named)


def _counted_lines(path: Path, lines: list[int], place: str) -> str:
    """`a.tsv: 2 rows (line 3, 7)`."""
    return f"{path}: {counted(len(lines), 'row')} ({place} {first_lines(lines)})"


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
        hint = "; only labels of --task multi-label are lists" if isinstance(value, list) else ""
        raise BrimfulError(f"{where}: {name!r} is {value!r:.60}, not a text or a number{hint}")
    return str(value)


def read_texts(path: Path | str, layout: Layout = OWN_LAYOUT, take: Take = everything) -> Table:
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
    if take is everything and not any(texts):
        raise BrimfulError(f"{path} holds no text; expected one text a line")
    return Table(path, texts, None, None)


def _lines(path: Path) -> Iterator[str]:
    empty = []
    for number, line in enumerate(text_lines(path, newline="\n"), 1):
        text = line.strip()
        if not text:
            empty.append(number)
        yield text
    if empty:
        warn(f"{_counted_lines(path, empty, 'line')} have an empty text")
