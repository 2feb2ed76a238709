"""Tables of texts: columns of texts, second texts and labels. `table_files` reads them."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from brimful.base.console import warn
from brimful.base.errors import BrimfulError, suggest_name
from brimful.tables.columns import Column

_LARGEST = float(np.finfo(np.float32).max)

_DECIMAL = re.compile(r"[+-]?\d+(?:,\d+)?")

Take = Callable[[Iterator[Any]], Iterable[Any]]
"""Which rows of a file are read: `everything`, or the next part of them (`slices.Slices`)."""


def everything(rows: Iterator[Any]) -> Iterator[Any]:
    """All rows of a file."""
    return rows


class LabelledSpan(NamedTuple):
    """`text[start:end]` has the label."""

    start: int
    end: int
    label: str


@dataclass(frozen=True)
class Table:
    """The columns of a table. `second` and `labels` are None if the file does not have them.

    A label is what the task reads: the text of its column by default.

    Attributes:
        lines: int64, the line of the file that each row begins at; None: row i is the i-th.
        rows: int64, of a table that was taken from another one: its rows there, from 0; None: it is whole.
        files: the first row and the path of each file, if it was read from several.
        types: what the values of other columns than texts are, if they are not plain JSON.
    """

    path: Path
    texts: Sequence[str]
    second: Sequence[str] | None
    labels: Sequence[Any] | None
    lines: np.ndarray | None = field(default=None, kw_only=True)
    rows: np.ndarray | None = field(default=None, kw_only=True)
    files: tuple[tuple[int, str], ...] = field(default=(), kw_only=True)

    types: ClassVar[Mapping[str, Any]] = {}

    def __len__(self) -> int:
        return len(self.texts)

    def number(self, row: int) -> int:
        """The number of a row (counted from 0), for messages: from 1, in the table as it was read."""
        return 1 + (row if self.rows is None else int(self.rows[row]))

    def where(self, row: int) -> str:
        """The file and the place in it of a row (counted from 0), for messages."""
        path, number = str(self.path), self.number(row)
        for first, name in self.files:
            if first < self.number(row):
                path, number = name, self.number(row) - first
        return f"{path}, row {number}" if self.lines is None else f"{path}, line {self.lines[row]}"

    def label_index(self, row: int, label: str, index: Mapping[str, int]) -> int:
        """The index of a label of a row.

        Raises:
            BrimfulError: the task does not know the label; the message names its place and the nearest one.
        """
        if label not in index:
            hint = suggest_name(label, list(index))
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

    def groups(self) -> Sequence[str | tuple[str, ...]]:
        """Equal for rows that stay together when the table is divided: those of equal texts or pairs."""
        return self.keys()

    def numbers(self) -> np.ndarray:
        """The labels as numbers, float32 (n,). A decimal comma is read if all labels can be written with one.

        Raises:
            BrimfulError: a label is not a finite number; the message names its place.
        """
        labels = self.labels
        assert labels is not None
        values = np.empty(len(self))
        decimals = [label.partition(",")[2] for label in labels if "," in label]
        has_commas = all(map(_DECIMAL.fullmatch, labels)) and any(len(each) != 3 for each in decimals)
        if has_commas:  # with three digits each they may divide thousands
            warn(f"{self.path}: the comma of labels such as {labels[0]!r} is read as a decimal point")
        for row, label in enumerate(labels):
            label = label.replace(",", ".") if has_commas else label
            try:
                values[row] = math.nan if "_" in label else float(label)  # Python reads 1_000 as 1000
            except ValueError:
                values[row] = math.nan
        wrong = np.flatnonzero(~(abs(values) <= _LARGEST)).tolist()
        if wrong:
            row = min(wrong, key=lambda row: _DECIMAL.fullmatch(labels[row]) is not None)
            hint = ""
            if "," in labels[row]:
                hint = ", and not all labels have decimal commas: write decimals with a point in all of them"
            raise BrimfulError(f"{self.where(row)}: the label {labels[row]!r} is not a finite number{hint}")
        return values.astype(np.float32)


def require_pairs(table: Table, pairs: bool, training: Path | str) -> None:
    """Refuse single texts where the training table has pairs, and the other way round.

    Args:
        training: the name of the training table.
    """
    if (table.second is not None) != pairs:
        has, lacks = (training, table.path) if pairs else (table.path, training)
        raise BrimfulError(
            f"{has} has pairs of texts, {lacks} single ones: the column text_b, or the one that"
            " --columns.text-b names, must be in all tables or in none"
        )


def label_names_of(table: Table) -> list[list[str]] | None:
    """The names in the label of each row: of a class, of several, or of spans; None of other labels."""
    named: list[list[str]] = []
    for label in table.labels or []:
        parts = label if isinstance(label, list) else [label]
        names = [part.label if isinstance(part, LabelledSpan) else part for part in parts]
        if not all(isinstance(name, str) for name in names):
            return None
        named.append(names)
    return named or None
