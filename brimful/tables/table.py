"""Tables of texts: columns of texts, second texts and labels, in memory or in an Arrow file."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import msgspec
import numpy as np
from numpy import ndarray

from brimful.base.console import warn
from brimful.base.errors import BrimfulError, suggest_name
from brimful.base.types import Facts, Values

if TYPE_CHECKING:
    import pyarrow

_LARGEST_LABEL = float(np.finfo(np.float32).max)
_DECIMAL = re.compile(r"[+-]?\d+(?:,\d+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,(?!\d{3}\Z)\d+")
"""A number with a decimal comma: not exactly three digits follow it, so it does not divide thousands."""
_VALUES_AT_ONCE = 1 << 14

Take = Callable[[Iterator[Any]], Iterable[Any]]
"""Chooses the rows of a file to read: `take_all`, or `Slices.take` of `table_files`, the next slice."""


def take_all(rows: Iterator[Any]) -> Iterator[Any]:
    """Return all rows of a file."""
    return rows


@dataclass(frozen=True)
class Column(Sequence[Any]):
    """A column of n values in an Arrow file, as text or as JSON; a value is decoded when it is read.

    Attributes:
        values: large_string, the text or the JSON of each value.
        type: type of the values, as `msgspec.convert` takes it; `str` for text.
        rows: int64 (n,), the places of the column's values in `values`; None for all values in their order.
    """

    values: "pyarrow.ChunkedArray"
    type: Any = str
    rows: ndarray | None = None

    @classmethod
    def of(cls, values: Sequence[Any], type: Any = str) -> Self:
        """Return a column in memory.

        Raises:
            TypeError, ValueError: a value cannot be written as JSON.
        """
        import pyarrow

        texts = list(values)
        if type is not str:
            texts = [msgspec.json.encode(value).decode() for value in values]
        return cls(pyarrow.chunked_array([pyarrow.array(texts, pyarrow.large_string())]), type)

    def __len__(self) -> int:
        return len(self.values if self.rows is None else self.rows)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        row = range(len(self))[index]  # pyarrow does not count from the end
        if self.rows is not None:
            row = int(self.rows[row])
        return self._decode(self.values[row].as_py())

    def __iter__(self) -> Iterator[Any]:
        if self.rows is not None:
            for row in self.rows:
                yield self._decode(self.values[int(row)].as_py())
            return
        # Many values at once: one by one, pyarrow takes several times as long.
        for start in range(0, len(self), _VALUES_AT_ONCE):
            yield from map(self._decode, self.values.slice(start, _VALUES_AT_ONCE).to_pylist())

    def take(self, rows: ndarray) -> Self:
        """Return the values of the given rows (int64)."""
        return type(self)(self.values, self.type, rows if self.rows is None else self.rows[rows])

    def _decode(self, text: str) -> Any:
        return text if self.type is str else msgspec.json.decode(text, type=self.type)


def lines_of(place: str, numbers: Sequence[int]) -> ndarray | None:
    """Return `Table.lines` for the numbers of rows, which count what `place` names."""
    return np.array(numbers, dtype=np.int64) if place == "line" else None


class LabelledSpan(NamedTuple):
    """A span with its label: `text[start:end]` has the label."""

    start: int
    end: int
    label: str


@dataclass(frozen=True)
class Table:
    """The columns of a table; `second` and `labels` may be None. A label is a text, or what a `read` makes.

    Attributes:
        lines: int64 (n,), the line of the file at which each row begins; None in files that number rows.
        rows: int64 (n,), the places of the rows, from 0, in the table that was read; None for that table.
        files: the first row and the path of each file of a table of several files.
        sources: the source of each row, where the user names their column: rows of one stay together.
        types: types of the values of columns that are neither texts nor plain JSON.
    """

    path: Path
    texts: Sequence[str]
    second: Sequence[str] | None
    labels: Sequence[Any] | None
    _: KW_ONLY
    lines: ndarray | None = None
    rows: ndarray | None = None
    files: tuple[tuple[int, str], ...] = ()
    sources: list[str] | None = None

    types: ClassVar[Facts] = {}

    def __len__(self) -> int:
        return len(self.texts)

    def number(self, row: int) -> int:
        """Return the number of a row, from 1, in the table that was read; `row` counts from 0."""
        return 1 + (row if self.rows is None else int(self.rows[row]))

    def where(self, row: int) -> str:
        """Return the file of a row and its place there, for messages; `row` counts from 0."""
        path, number, rows_before = str(self.path), self.number(row), 0
        for first, name in self.files:
            if first < number:
                path, rows_before = name, first
        if self.lines is not None:
            return f"{path}, line {self.lines[row]}"
        return f"{path}, row {number - rows_before}"

    def label_index(self, row: int, label: str, index: Mapping[str, int]) -> int:
        """Return the index of a label of a row.

        Raises:
            BrimfulError: `index` lacks the label; the message has its place and the most similar label.
        """
        if label not in index:
            hint = suggest_name(label, list(index))
            raise BrimfulError(f"{self.where(row)}: unknown label {label!r}; {hint}")
        return index[label]

    def take(self, rows: Sequence[int] | ndarray) -> Self:
        """Return a table of the given rows, in the given order."""
        index = np.asarray(rows, dtype=np.int64)
        columns: Values = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, Column):
                columns[each.name] = value.take(index)
            elif isinstance(value, ndarray):  # among them `rows`, which stay places in the first table
                columns[each.name] = value[index]
            elif isinstance(value, list):
                columns[each.name] = [value[row] for row in rows]
        if self.rows is None:
            columns["rows"] = index
        return replace(self, **columns)

    @cached_property
    def fingerprints(self) -> ndarray:
        """uint64 (n,): hashes of `keys`."""
        digests = []
        for text, second in self.keys():
            # The length marks the end of the first text: the pair "ab", "c" differs from "a", "bc".
            row = f"{len(text)} {text}{second}".encode("utf-8", "surrogatepass")
            digests.append(blake2b(row, digest_size=8).digest())
        return np.frombuffer(b"".join(digests), dtype=np.uint64)

    def keys(self) -> list[tuple[str, str]]:
        """Return a key for each row, equal for two rows of the same text or pair."""
        return list(zip(self.texts, self.second or [""] * len(self), strict=True))

    def groups(self) -> Sequence[str | tuple[str, ...]]:
        """Return a key for each row; rows with equal keys stay together when the table is divided."""
        return self.keys()

    def numbers(self) -> ndarray:
        """Return the labels as numbers, float32 (n,). A comma is a decimal point if all labels allow that.

        Raises:
            BrimfulError: a label is not a finite number; the message names its place.
        """
        labels, values = self.labels or [], np.full(len(self), math.nan)
        has_commas = all(map(_DECIMAL.fullmatch, labels)) and any(map(_DECIMAL_COMMA.fullmatch, labels))
        if has_commas:
            warn(f"{self.path}: the comma of labels such as {labels[0]!r} is read as a decimal point")
        for row, label in enumerate(labels):
            if "_" in label:  # Python reads 1_000 as 1000
                continue
            if has_commas:
                label = label.replace(",", ".")
            with suppress(ValueError):
                values[row] = float(label)
        wrong = np.flatnonzero(~(abs(values) <= _LARGEST_LABEL)).tolist()
        if wrong:
            # The example is a word, if there is one: a number with a comma shows the fault less clearly.
            row = next((row for row in wrong if not _DECIMAL.fullmatch(labels[row])), wrong[0])
            hint = ""
            if "," in labels[row]:
                hint = ", and not all labels have decimal commas: write decimals with a point in all of them"
            raise BrimfulError(f"{self.where(row)}: the label {labels[row]!r} is not a finite number{hint}")
        return values.astype(np.float32)


def require_pairs(table: Table, pairs: bool, training: Path | str) -> None:
    """Refuse a table of single texts if the training table has pairs, and the reverse.

    Args:
        pairs: whether the training table has pairs.
        training: name of the training table for the message.

    Raises:
        BrimfulError: only one of the two tables has pairs.
    """
    if (table.second is not None) == pairs:
        return
    paired, single = str(table.path), str(training)
    if pairs:
        paired, single = single, paired
    raise BrimfulError(
        f"{paired} has pairs of texts, {single} single ones: the column text_b, or the one that"
        " --columns.text-b names, must be in all tables or in none"
    )


def label_names_of(table: Table) -> list[list[str]] | None:
    """Return the names in each row's label: a class, labels, or those of spans; None without any."""
    rows: list[list[str]] = []
    for label in table.labels or []:
        rows.append([])
        for part in label if isinstance(label, list) else [label]:
            name = getattr(part, "label", part)  # of a span
            if not isinstance(name, str):
                return None
            rows[-1].append(name)
    return rows or None
