"""Tables of texts: TSV, CSV or JSONL files with the columns text, text_b (optional) and label (if needed)."""

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from brimful.errors import BrimfulError, nearest

FORMATS = (".tsv", ".csv", ".jsonl")
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
    """

    path: Path
    texts: list[str]
    second: list[str] | None
    labels: list[Any] | None

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Sequence[int] | np.ndarray) -> Self:
        """A table of the given rows, in the given order."""

        def pick(value: Any) -> Any:
            return [value[i] for i in rows] if isinstance(value, list) else value

        return replace(self, **{field.name: pick(getattr(self, field.name)) for field in fields(self)})

    def keys(self) -> list[tuple[str, str]]:
        """Equal for two rows of the same text or pair."""
        return list(zip(self.texts, self.second or [""] * len(self), strict=True))

    def numbers(self) -> np.ndarray:
        """The labels as numbers, float32 (n,).

        Raises:
            BrimfulError: a label is not a finite number; the message names its row.
        """
        assert self.labels is not None
        values = []
        for row, label in enumerate(self.labels, 1):
            try:
                values.append(float(label))
            except ValueError:
                values.append(math.nan)
            if not abs(values[-1]) <= _LARGEST:
                raise BrimfulError(f"{self.path}, row {row}: the label {label!r} is not a finite number")
        return np.array(values, dtype=np.float32)


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The number and the object of each line that is not empty.

    Raises:
        BrimfulError: a line is not a JSON object.
    """
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise BrimfulError(f"{path}, line {number} is not JSON: {error}") from error
            if not isinstance(row, dict):
                raise BrimfulError(f"{path}, line {number} must be a JSON object with a key text")
            yield number, row


def _rows(path: Path) -> Iterator[tuple[int, dict]]:
    """The line number and the values by column of each row."""
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        if path.suffix == ".jsonl":
            yield from json_lines(path)
            return
        # Quotes are text in a TSV and delimit fields in a CSV, as in the files of GLUE and pandas.
        tsv = path.suffix == ".tsv"
        csv.field_size_limit(1 << 30)
        reader = csv.reader(
            file, delimiter="\t" if tsv else ",", quoting=csv.QUOTE_NONE if tsv else csv.QUOTE_MINIMAL
        )
        try:
            header = next(reader, [])
            for fields in reader:
                if not fields and len(header) > 1:
                    continue  # an empty line is a row (with the empty text) only if the table has one column
                fields = fields or [""]
                if len(fields) != len(header):
                    raise BrimfulError(
                        f"{path}, line {reader.line_num} has {len(fields)} fields, the header {len(header)}"
                    )
                yield reader.line_num, dict(zip(header, fields, strict=True))
        except csv.Error as error:
            raise BrimfulError(f"{path}, line {reader.line_num}: {error}") from error


def read_table(path: Path | str, *, labelled: bool, lists: bool = False, take: Take = everything) -> Table:
    """Read a table.

    Args:
        labelled: whether to read labels. Every row must then have one.
        lists: whether a label is a list of names: JSON, or names with | between them; it may be empty.
        take: which rows.

    Raises:
        BrimfulError: the format is unknown, the file is unreadable or empty, or a column or label is missing.
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise BrimfulError(f"{path}: tables are {', '.join(FORMATS)} files with columns text, text_b, label")
    texts: list[str] = []
    second: list[str] = []
    labels: list[Any] = []
    try:
        for number, row in take(_rows(path)):
            for column in ("text", "label") if labelled else ("text",):
                if column not in row:
                    hint = nearest(column, [str(name) for name in row])
                    raise BrimfulError(f"{path} has no column {column!r} (line {number}): {hint}")
                empty = column == "label" and not lists and str(row[column]) == ""
                if row[column] is None or empty:
                    raise BrimfulError(f"{path}, line {number}: the {column} is empty")
            texts.append(str(row["text"]))
            if "text_b" in row:
                second.append("" if row["text_b"] is None else str(row["text_b"]))
            if labelled:
                labels.append(_names(row["label"]) if lists else str(row["label"]))
    except OSError as error:
        raise BrimfulError(f"cannot read {path}: {error.strerror}") from error
    if not texts:
        raise BrimfulError(f"{path} has no rows; expected a header and one row for each text")
    for name, values in (("text_b", second), ("label", labels)):
        if values and len(values) != len(texts):
            raise BrimfulError(f"{path}: only {len(values)} of {len(texts)} rows have a {name}")
    return Table(path, texts, second or None, labels or None)


def _names(label: Any) -> list[str]:
    """The names in a label that is a list, or has | between them."""
    names = label if isinstance(label, list) else str(label).split("|")
    return [name for name in (str(name).strip() for name in names) if name]


def read_texts(path: Path | str, take: Take = everything) -> Table:
    """Texts without labels: a table, or a .txt file of one text a line. An empty line is the empty text.

    Args:
        take: which rows.

    Raises:
        BrimfulError: as `read_table`.
    """
    path = Path(path)
    if path.suffix != ".txt":
        return read_table(path, labelled=False, take=take)
    try:
        texts = list(take(_lines(path)))
    except OSError as error:
        raise BrimfulError(f"cannot read {path}: {error.strerror}") from error
    if take is everything and not any(texts):
        raise BrimfulError(f"{path} holds no text; expected one text a line")
    return Table(path, texts, None, None)


def _lines(path: Path) -> Iterator[str]:
    with open(path, encoding="utf-8-sig", errors="replace", newline="\n") as file:
        for line in file:
            yield line.strip()
