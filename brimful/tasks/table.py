"""Tables of texts: TSV, CSV, JSONL or Parquet files with columns of texts, second texts and labels."""

import csv
import json
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
from brimful.tasks.text_files import first_lines, readable, text_lines

FORMATS = (".tsv", ".csv", ".jsonl", ".parquet")
_DELIMITERS = {".tsv": "\t", ".csv": ","}
_NAMES = {"\t": "tabs", ",": "commas", ";": "semicolons"}
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


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The number and the object of each line that is not empty.

    Raises:
        BrimfulError: a line is not a JSON object, or holds half a surrogate pair.
    """
    for number, line in enumerate(text_lines(path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BrimfulError(f"{path}, line {number} is not JSON: {_reason(error)}") from error
        if not isinstance(row, dict):
            raise BrimfulError(f"{path}, line {number} must be a JSON object, not {line.strip():.40}")
        if "\\u" in line:
            check_characters(row, f"{path}, line {number}")
        yield number, row


def _reason(error: Exception) -> str:
    """Why a line is not JSON, without `json`'s own line number."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos + 1}"
    return str(error)


def check_characters(row: dict[str, Any], where: str) -> None:
    """Refuse half a surrogate pair, which JSON can hold as an escape and tokenizers cannot read.

    Raises:
        BrimfulError: a text of the row holds one.
    """
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise BrimfulError(f"{where} holds half a surrogate pair, {half!a}, which is no character") from error


_Rows = Iterator[tuple[int, dict[str, Any]]]


def _delimited(path: Path, form: str, wanted: Iterable[str], layout: Layout, quoted: bool = False) -> _Rows:
    """The rows of a TSV or CSV. A row of another width than the header is refused; in a known layout it may
    be longer, and what it lacks is missing."""
    # Quotes are text in a TSV and delimit fields in a CSV, as in the files of GLUE and pandas. `quoted`: in a
    # TSV too, as predict and pandas write it.
    quoted = quoted or form == ".csv"
    csv.field_size_limit(1 << 30)
    reader = csv.reader(
        text_lines(path, newline=""),
        delimiter=_DELIMITERS[form],
        quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
        strict=quoted,  # otherwise a quote that is never closed takes the rows after it
    )
    header: list[str] = []
    line = 0
    try:
        for fields in reader:
            first, line = line + 1, reader.line_num
            if not header:
                header = fields or [""]
                bare = layout.bare and layout.columns.text not in header
                header = list(layout.bare) if bare else header
                _check_delimiter(path, form, header, wanted)
                _check_repeats(path, header, wanted)
                if not bare:
                    continue
            if not fields and len(header) > 1:
                continue  # an empty line is a row (with the empty text) only if the table has one column
            fields = fields or [""]
            if len(fields) != len(header) and not layout.form:
                longer = len(fields) > len(header) and form == ".tsv"
                hint = "; a tab within a text must become a space" if longer else ""
                raise BrimfulError(
                    f"{path}, line {first} has {counted(len(fields), 'field')}, the header"
                    f" {len(header)}{hint}"
                )
            yield first, dict(zip(header, fields, strict=False))
    except csv.Error as error:
        if not header:  # quoted names with another delimiter between them
            with open(path, encoding="utf-8-sig") as again:
                _check_delimiter(path, form, [again.readline().strip()], wanted)
        hint = "; is a quote not closed? One within a quoted text is doubled" if quoted else ""
        raise BrimfulError(f"{path}, line {line + 1}: {error}{hint}") from error


def _check_delimiter(path: Path, form: str, header: list[str], wanted: Iterable[str]) -> None:
    """Refuse a header whose columns are found once it is divided by another delimiter."""
    for delimiter, name in _NAMES.items():
        if delimiter == _DELIMITERS[form]:
            continue
        divided = {part.strip().strip('"') for part in _DELIMITERS[form].join(header).split(delimiter)}
        if any(column in divided and column not in header for column in wanted):
            remedy = {"\t": "name it .tsv", ",": "name it .csv"}.get(delimiter, "write it with commas")
            raise BrimfulError(
                f"{path} has {name} between its columns, not {_NAMES[_DELIMITERS[form]]}: {remedy}"
            )


def _check_repeats(path: Path, header: list[str], wanted: Iterable[str]) -> None:
    """Refuse a header in which a column stands twice."""
    for name in wanted:
        if header.count(name) > 1:
            raise BrimfulError(f"{path} has {header.count(name)} columns {name!r}: keep one of them")


def _parquet(path: Path, wanted: Sequence[str] | None) -> _Rows:
    """The rows of a Parquet file, numbered from 1; of its columns only those that are wanted, or all."""
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as file:
            known = file.schema_arrow.names
            wanted = known if wanted is None else wanted
            _check_repeats(path, known, wanted)
            found = [column for column in wanted if column in known]
            number = 0
            for batch in file.iter_batches(batch_size=1 << 14, columns=found or known[:1]):
                for row in batch.to_pylist():
                    number += 1
                    # A message about a missing column names all that there are.
                    yield number, dict.fromkeys(known) | row if number == 1 else row
    except ArrowException as error:
        raise BrimfulError(f"{path} is not a Parquet file: {' '.join(str(error).split())}") from error


def _rows(path: Path, form: str, wanted: Sequence[str], layout: Layout) -> _Rows:
    """The line number and the values by column of each row."""
    if form == ".parquet":
        rows = _parquet(path, None if layout.rewrite else wanted)
    elif form == ".jsonl":
        rows = json_lines(path)
    else:
        rows = _delimited(path, form, wanted, layout)
    if layout.rewrite is None:
        yield from rows
        return
    for number, row in rows:
        try:
            yield number, layout.rewrite(row)
        except (KeyError, TypeError, ValueError) as error:
            place = "row" if form == ".parquet" else "line"
            raise BrimfulError(f"{path}, {place} {number} is not in the layout {layout.name}") from error


def rows_of_file(path: Path, wanted: Sequence[str]) -> _Rows:
    """The line number and all values, by column, of each row of a table that a program wrote.

    Args:
        wanted: columns that a header must have once.

    Raises:
        BrimfulError: as `read_table`.
    """
    if path.suffix in _DELIMITERS:
        return _delimited(path, path.suffix, wanted, OWN_LAYOUT, quoted=True)
    return _rows(path, path.suffix, [], OWN_LAYOUT) if path.suffix == ".jsonl" else _parquet(path, None)


def all_rows(path: Path, form: str, layout: Layout) -> Iterator[tuple[int, dict[str, Any]]]:
    """The line, or in a Parquet file the row, and all values by column of each row.

    Args:
        form: one of `FORMATS`.

    Raises:
        BrimfulError: as `read_table`, for what is wrong with whole rows.
    """
    if form == ".parquet":
        return _parquet(path, None)
    return _rows(path, form, [layout.columns.text, layout.columns.text_b], layout)


def _with_warning(rows: _Rows, path: Path, column: str, place: str) -> _Rows:
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
    suffix = path.suffix.lower()
    form = suffix if suffix in FORMATS else layout.form or suffix
    if form not in FORMATS:
        raise BrimfulError(f"{path}: tables are {', '.join(FORMATS)} files with columns text, text_b, label")
    columns = layout.columns
    needed = [columns.text, *([columns.text_b] if layout.pairs else []), *([columns.label] * labelled)]
    place = "row" if form == ".parquet" else "line"
    wanted = [*needed, columns.text_b, *([layout.id] if layout.id else [])]
    rows = _with_warning(_rows(path, form, wanted, layout), path, columns.text, place)
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
        expected = "a header and one row" if form in _DELIMITERS else "a row"
        raise BrimfulError(f"{path} has no rows; expected {expected} for each text")
    if second and unpaired:
        raise BrimfulError(
            f"{unpaired} has no {columns.text_b}, and other rows have one: write it in all rows or in none"
        )
    if short:
        warn(f"{_counted_lines(path, short, place)} lack a field of {layout.name} and are left out")
    if unsure:
        warn(f"{path}: {counted(unsure, 'row')} with the label {' or '.join(layout.unsure)} are left out")
    numbers = None if form == ".parquet" else np.array(lines, dtype=np.int64)
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
    if layout.form or path.suffix.lower() != ".txt":
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
