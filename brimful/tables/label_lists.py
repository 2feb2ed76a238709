"""Lists of labels: in JSON and Parquet as they are, spelt in a cell, or as columns of 0 and 1.

A cell holds a list of JSON (as `predict` writes it) or of Python, or names with `|` or `;` between them. A
cell that could be read in two ways is refused.
"""

import ast
import json
import re
from io import StringIO
from itertools import chain
from pathlib import Path
from tokenize import STRING, TokenError, generate_tokens
from typing import Any

from brimful.base.console import pluralise, record_warnings, warn
from brimful.base.errors import BrimfulError
from brimful.tables.file_rows import open_rows
from brimful.tables.layouts import FileLayout
from brimful.tables.table import Table

MISSING = frozenset(("nan", "NaN", "null", "NULL", "None", "<NA>"))
"""Texts that programs write for a missing value."""
_SEPARATOR = re.compile(r"[|;；\n]")
_DOUBTFUL = re.compile(r"[,，、#]|__label__|^<.*>$|^\W*(?:np\.)?(?:array|set|frozenset|list|tuple)\(|^\"\[")
"""Signs of lists in other spellings. Names may have such signs, too."""
_BITS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True, "": False}


def read_label_lists(table: Table) -> list[list[str]]:
    """Return the names in each label of a table; a label is a text or a list of names.

    Raises:
        BrimfulError: a label is not a list of names, or could be one label or several; the message names its
            place.
    """
    assert table.labels is not None
    rows: list[list[str]] = []
    missing: list[int] = []
    for row, cell in enumerate(table.labels):
        if isinstance(cell, str) and cell.strip() in MISSING:
            missing.append(row)
            rows.append([])
        elif isinstance(cell, str):
            rows.append(_read_cell(cell.strip(), table.where(row)))
        else:
            rows.append(_read_names(cell, table.where(row)))
    if missing:
        place = table.where(missing[0]).removeprefix(f"{table.path}, ")
        warn(
            f"{table.path}: {pluralise(len(missing), 'row')} ({place}) have the label"
            f" {table.labels[missing[0]]!r}, and are read as without a label; write [] to say so"
        )
    # Vectors of 0 and 1 would be read as the names "0" and "1".
    widths = set(map(len, rows))
    if len(widths) == 1 and max(widths) > 1 and _BITS.keys() >= set(chain.from_iterable(rows)):
        raise BrimfulError(
            f"{table.path}: all labels are {max(widths)} times 0 or 1: write a column for each label, and"
            " name them with --columns.label a,b"
        )
    return [list(dict.fromkeys(names)) for names in rows]


def _read_cell(cell: str, where: str) -> list[str]:
    """Return the names in a cell."""
    if cell[:1] in ("[", "{") or (cell[:1] == "(" and cell[-1] == ")" and "," in cell):
        return _read_names(_read_literal(cell, where), where)
    if _DOUBTFUL.search(cell):
        raise BrimfulError(
            f"{where}: {cell!r:.60} may be one label or several: write a|b for two (docs/your-data.md"
            f" converts CSV, TSV and JSON lines), and {json.dumps([cell], ensure_ascii=False):.60} for one"
        )
    return _read_names(_SEPARATOR.split(cell), where)


def _read_literal(cell: str, where: str) -> Any:
    """Return the value that a cell spells in JSON or in Python."""
    for read in (json.loads, _read_python):
        try:
            return read(cell)
        except (ValueError, SyntaxError, TokenError, TypeError, MemoryError, RecursionError):
            continue
    raise BrimfulError(f'{where}: {cell!r:.60} is a list of neither JSON nor Python: write ["a", "b"]')


def _read_python(cell: str) -> Any:
    """Return the value that a cell spells in Python."""
    before = None
    for token in generate_tokens(StringIO(cell.replace("\n", " ")).readline):
        if token.type == before == STRING:  # numpy prints an array without commas; Python joins such texts
            raise SyntaxError
        before = token.type
    return ast.literal_eval(cell)


def _read_names(value: Any, where: str) -> list[str]:
    """Return the names in a list, or in the object that Label Studio writes about choices."""
    if isinstance(value, dict) and "choices" in value:
        value = value["choices"]
    if isinstance(value, set):
        value = sorted(value, key=str)
    if not isinstance(value, list | tuple) or any(isinstance(each, list | dict) for each in value):
        raise BrimfulError(f"{where}: the label {value!r:.60} is not a list of names")
    # pandas writes NaN for a missing value, which is not equal to itself.
    names = []
    for name in value:
        if name is not None and name == name and str(name).strip():
            names.append(str(name).strip())
    return names


def read_one_hot(path: Path, layout: FileLayout) -> list[list[str]] | None:
    """Return the labels of each row of a table in which `--columns.label a,b,c` names columns of 0 and 1.

    Returns:
        None for another table.

    Raises:
        BrimfulError: as `read_table`, or a column holds something else.
    """
    names = [name.strip() for name in layout.columns.label.split(",")]
    if layout.rewrite is not None or len(names) < 2:
        return None
    with record_warnings():  # the warnings come again when the table is read
        place, numbered = open_rows(path, [layout.columns.text, layout.columns.text_b], layout, every=True)
    rows: list[list[str]] = []
    for number, row in numbered:
        if layout.columns.label in row:
            return None
        rows.append([])
        for name in names:
            bit = _BITS.get(str(row.get(name)).strip().lower())
            if bit is None:
                fault = f"{row[name]!r:.60} in the column {name!r}" if name in row else f"no column {name!r}"
                raise BrimfulError(f"{path}, {place} {number}: {fault}; expected 0 or 1")
            if bit:
                rows[-1].append(name)
    return rows
