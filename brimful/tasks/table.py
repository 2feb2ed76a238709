"""Plain tables as tasks: TSV, CSV or JSONL files with the columns text, text_b (optional) and label."""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from brimful.data.examples import Examples, encode_texts
from brimful.errors import BrimfulError, nearest
from brimful.text.tokenizer import special_ids

FORMATS = (".tsv", ".csv", ".jsonl")


@dataclass(frozen=True)
class Table:
    """The columns of a table; `second` and `labels` are None where the file has no such column."""

    path: Path
    texts: list[str]
    second: list[str] | None
    labels: list[str] | None

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Sequence[int] | np.ndarray) -> "Table":
        """The given rows, as a table of their own."""

        def pick(column: list[str] | None) -> list[str] | None:
            return None if column is None else [column[i] for i in rows]

        return Table(self.path, [self.texts[i] for i in rows], pick(self.second), pick(self.labels))

    def keys(self) -> list[tuple[str, str]]:
        """What makes two rows the same text."""
        return list(zip(self.texts, self.second or [""] * len(self), strict=True))


def _rows(path: Path) -> Iterator[tuple[int, dict]]:
    """(line number, values by column)."""
    with open(path, encoding="utf-8-sig", errors="replace", newline="") as file:
        if path.suffix == ".jsonl":
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
            return
        # Quotes are text in a TSV and delimit fields in a CSV, as in GLUE's and pandas' files.
        tsv = path.suffix == ".tsv"
        csv.field_size_limit(1 << 30)
        reader = csv.reader(
            file, delimiter="\t" if tsv else ",", quoting=csv.QUOTE_NONE if tsv else csv.QUOTE_MINIMAL
        )
        try:
            header = next(reader, [])
            for fields in reader:
                if not fields and len(header) > 1:
                    continue  # a blank line is a text, the empty one, only where there is one column
                fields = fields or [""]
                if len(fields) != len(header):
                    raise BrimfulError(
                        f"{path}, line {reader.line_num} has {len(fields)} fields, the header {len(header)}"
                    )
                yield reader.line_num, dict(zip(header, fields, strict=True))
        except csv.Error as error:
            raise BrimfulError(f"{path}, line {reader.line_num}: {error}") from error


def read_table(path: Path | str, *, labelled: bool) -> Table:
    """Read a table.

    Args:
        labelled: whether labels are read; every row must then have one.

    Raises:
        BrimfulError: an unknown format, an unreadable or empty file, a column or a label that is missing.
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise BrimfulError(f"{path}: tables are {', '.join(FORMATS)} files with columns text, text_b, label")
    texts, second, labels = [], [], []
    try:
        for number, row in _rows(path):
            for column in ("text", "label") if labelled else ("text",):
                if column not in row:
                    hint = nearest(column, [str(name) for name in row])
                    raise BrimfulError(f"{path} has no column {column!r} (line {number}): {hint}")
                if row[column] is None or (column == "label" and str(row[column]) == ""):
                    raise BrimfulError(f"{path}, line {number}: the {column} is empty")
            texts.append(str(row["text"]))
            if "text_b" in row:
                second.append("" if row["text_b"] is None else str(row["text_b"]))
            if labelled:
                labels.append(str(row["label"]))
    except OSError as error:
        raise BrimfulError(f"cannot read {path}: {error.strerror}") from error
    if not texts:
        raise BrimfulError(f"{path} has no rows; expected a header and one row for each text")
    for name, values in (("text_b", second), ("label", labels)):
        if values and len(values) != len(texts):
            raise BrimfulError(f"{path}: only {len(values)} of {len(texts)} rows have a {name}")
    return Table(path, texts, second or None, labels or None)


def label_names(table: Table) -> list[str]:
    """The labels of a table, sorted (numbers by value).

    Raises:
        BrimfulError: fewer than two.
    """
    assert table.labels is not None
    names = list(Counter(table.labels))
    if len(names) < 2:
        raise BrimfulError(f"{table.path} has a single label, {names[0]!r}; classification needs two or more")
    if all(re.fullmatch(r"-?\d+(\.\d+)?", name) for name in names):
        return sorted(names, key=lambda name: (float(name), name))
    return sorted(names)


def label_ids(table: Table, names: list[str]) -> np.ndarray:
    """int64 (n,): each row's label as an index into `names`.

    Raises:
        BrimfulError: a label that is not among them.
    """
    assert table.labels is not None
    index = {name: i for i, name in enumerate(names)}
    for row, label in enumerate(table.labels):
        if label not in index:
            raise BrimfulError(
                f"{table.path}, row {row + 1}: unknown label {label!r}; {nearest(label, names)}"
            )
    return np.array([index[label] for label in table.labels], dtype=np.int64)


def encode(
    table: Table, tokenizer: Tokenizer, max_length: int, targets: dict[str, np.ndarray] | None = None
) -> Examples:
    """Token ids of each row, [CLS] text [SEP] (text_b [SEP]), cut to `max_length` tokens."""
    pad = special_ids(tokenizer).pad
    return encode_texts(tokenizer, table.texts, table.second, max_length=max_length, pad=pad, targets=targets)


def read_texts(path: Path | str) -> Table:
    """Texts without labels: a .txt file of one text a line (a blank one is the empty text), or any table.

    Raises:
        BrimfulError: as `read_table`.
    """
    path = Path(path)
    if path.suffix != ".txt":
        return read_table(path, labelled=False)
    try:
        lines = path.read_bytes().decode("utf-8-sig", "replace").split("\n")
    except OSError as error:
        raise BrimfulError(f"cannot read {path}: {error.strerror}") from error
    texts = [line.strip() for line in (lines if lines[-1] else lines[:-1])]
    if not any(texts):
        raise BrimfulError(f"{path} holds no text; expected one text a line")
    return Table(path, texts, None, None)
