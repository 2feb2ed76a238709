"""Lists of labels as other tools write them into one cell, and labels as columns of 0 and 1.

A cell holds a list of JSON (as `predict` writes it), of Python or of numpy, or names with a separator between
them. What only the whole column can tell (is `a, b` one label or two?) is decided once for a file, and a
warning says how.
"""

import ast
import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from brimful.base.console import counted, recorded_warnings, warn
from brimful.base.errors import BrimfulError
from brimful.tables.file_rows import PLACES, all_rows, open_rows
from brimful.tables.layouts import FileLayout
from brimful.tables.table import Table

MISSING = frozenset(("nan", "NaN", "null", "NULL", "None", "<NA>"))
"""What programs write for a missing value."""
_SEPARATORS = (";", "；", "\n", "、", ",", "，")
_WEAK = ("\t", "/", "+", "#", "&", " ")
"""What stands in names, too, and is a separator where all that it divides says so."""
_SURE = ";；\n"
"""Separators that hardly ever stand in a name."""
_CALL = re.compile(r"(?:np\.|numpy\.)?(?:array|frozenset|set|list|tuple)\((.*)\)", re.DOTALL)
_TYPE = re.compile(r",\s*dtype=[^,()\[\]]*$")
_SCALAR = re.compile(r"\b(?:np|numpy)\.\w+\(([^()]*)\)")
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_TAGGED = re.compile(r"(?:__label__\S+\s*)+|(?:<[^<>]+>\s*)+")
_NAME = re.compile(r"__label__(\S+)|<([^<>]+)>")
"""Names as fastText and Stack Exchange write them: `__label__a __label__b`, `<a><b>`."""
_BITS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True, "": False}
_NUMBERS_OF_ROWS = frozenset(("", "id", "index", "idx", "unnamed: 0"))


def names_of_rows(table: Table) -> list[list[str]]:
    """The names in the labels of a table: texts, lists of names, or objects of names.

    Raises:
        BrimfulError: a label is a list of something else; the message names its place.
    """
    assert table.labels is not None
    found: list[list[str] | None] = []
    missing: list[int] = []
    bare: list[int] = []
    for row, cell in enumerate(table.labels):
        value: Any = cell
        if isinstance(cell, str) and cell.strip() in MISSING:
            missing.append(row)
            value = []
        elif isinstance(cell, str):
            value = _value(cell.strip())
            if isinstance(value, _Bare):
                bare.append(row)
        found.append(None if value is None else _names(value, table, row))
    if missing:
        _say(table, missing, f"the label {table.labels[missing[0]]!r}, and are read as without a label", "[]")
    if bare:
        example = f"{table.labels[bare[0]]!r:.60}"
        _say(table, bare, f"names in brackets without quotes, as {example}, and are read as lists", None)
    plain = [row for row, names in enumerate(found) if names is None]
    for row, names in zip(plain, _divided([table.labels[row] for row in plain], table), strict=True):
        found[row] = names
    return _without_vectors([names or [] for names in found], table)


def _say(table: Table, rows: Sequence[int], what: str, meant: str | None) -> None:
    remedy = f"; write {meant} to say so" if meant else '; write JSON, such as ["a", "b"], to say so'
    place = "row" if table.lines is None else "line"
    number = table.number(rows[0]) if table.lines is None else table.lines[rows[0]]
    warn(f"{table.path}: {counted(len(rows), 'row')} ({place} {number}) have {what}{remedy}")


class _Bare(list[Any]):
    """A list whose names had no quotes."""


def _value(text: str) -> list[Any] | dict[Any, Any] | None:
    """The list or object that a cell spells; None: it is no such spelling, but names."""
    if text[:2] == '"[' and text[-2:] == ']"':  # JSON within JSON
        try:
            text = json.loads(text)
        except ValueError:
            return None
    if call := _CALL.fullmatch(text):
        text = _TYPE.sub("", call[1]).strip() or "[]"
    if text[:1] + text[-1:] not in ("[]", "()", "{}"):
        return None
    if text[0] == "[" or '"' in text:
        try:
            return _collection(json.loads(text))
        except (ValueError, RecursionError):
            pass
    text = _SCALAR.sub(r"\1", text)
    inner = text[1:-1].strip()
    quoted = _QUOTED.findall(inner)
    if len(quoted) > 1 and not _QUOTED.sub("", inner).strip():  # numpy puts no commas between texts
        return [ast.literal_eval(part) for part in quoted]
    try:
        return _collection(ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass
    if text[0] == "(":
        return None
    if "," not in inner and re.fullmatch(r"[\d.\s-]+", inner):  # numpy's numbers
        return [part.removesuffix(".") for part in inner.split()]
    parts = next(csv.reader([" ".join(inner.split())], skipinitialspace=True), [])
    return _Bare(part.strip().strip("'") for part in parts)


def _collection(value: Any) -> list[Any] | dict[Any, Any] | None:
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, str):  # ('a') is no tuple, and meant as one
        return [value]
    return value if isinstance(value, list | dict) else None


def _names(value: Any, table: Table, row: int) -> list[str]:
    """The names in a list, or those that an object gives 1."""
    if isinstance(value, dict):
        inner = next((value[key] for key in ("choices", "labels") if isinstance(value.get(key), list)), None)
        if inner is None:
            bits = {str(name): _bit(each) for name, each in value.items()}
            if None in bits.values():
                raise BrimfulError(
                    f"{table.where(row)}: the label {value!r:.60} is no list of names; an object gives each"
                    " name 0 or 1"
                )
            inner = [name for name, bit in bits.items() if bit]
        value = inner
    if not isinstance(value, list):
        return [str(value).strip()]
    names = []
    for part in value:
        if isinstance(part, dict):
            part = next((part[key] for key in ("label", "name") if isinstance(part.get(key), str)), part)
        if isinstance(part, list | dict | tuple | set | bytes):
            raise BrimfulError(f"{table.where(row)}: the label {value!r:.60} is no list of names")
        if part is None or part != part:
            continue
        name = str(part).strip()
        if name and not (isinstance(value, _Bare) and name in MISSING):
            names.append(name)
    return list(dict.fromkeys(names)) if not set(names) <= _BITS.keys() else names


def _bit(value: Any) -> bool | None:
    """Whether a value is 1; None if it is neither 0 nor 1."""
    return False if value is None or value != value else _BITS.get(str(value).strip().lower())


def _divided(cells: list[str], table: Table) -> list[list[str]]:
    """The names of cells that are no lists: divided at `|`, or at the separator that the column shows."""
    distinct = [cell.strip() for cell in dict.fromkeys(cells)]
    if any(distinct) and all(_TAGGED.fullmatch(cell) for cell in distinct if cell):
        warn(
            f"{table.path}: labels such as {next(filter(None, distinct))!r:.60} are read as the names in them"
        )
        return [[found[1] or found[2] for found in _NAME.finditer(cell)] for cell in cells]
    separator = "|"
    if not any("|" in cell for cell in distinct):
        separator = next((mark for mark in _SEPARATORS if any(mark in cell for cell in distinct)), "")
        if not separator:
            separator = next((mark for mark in _WEAK if _divides(distinct, mark)), "")
        numbers = all(re.fullmatch(r"\d+( +\d+)*|", cell) for cell in distinct)
        if not separator and numbers and any(" " in cell for cell in distinct):
            separator = " "
        if separator:
            held = [cell for cell in cells if separator in cell]
            taken = separator in (*_SURE, *_WEAK) or _recurs(distinct, separator)
            example, shown = held[0].strip(), repr(separator)
            reading = f"lists with {shown} between labels" if taken else "one label each"
            remedy = '["a, b"] is one label in JSON' if taken else '"a|b" and ["a", "b"] are lists'
            warn(
                f"{table.path}: {counted(len(held), 'label')} with {shown}, such as {example!r:.60}, are read"
                f" as {reading}; {remedy}"
            )
            separator = separator if taken else ""
    if not separator:
        return [[cell.strip()] if cell.strip() else [] for cell in cells]
    return [parts(cell, separator) for cell in cells]


def parts(cell: str, separator: str) -> list[str]:
    """The names between separators, without white space, each once (but 0 and 1 as often as they stand)."""
    names = [name for name in map(str.strip, cell.split(separator)) if name]
    return names if set(names) <= _BITS.keys() else list(dict.fromkeys(names))


def _divides(cells: Sequence[str], separator: str) -> bool:
    """Whether all that stands between separators stands in other cells, too, and half of it alone."""
    found = Counter(name for cell in cells for name in set(parts(cell, separator)))
    held = {name.strip() for cell in cells if separator in cell for name in cell.split(separator)}
    alone = held.intersection(cells)
    return (
        bool(held)
        and "" not in held
        and 2 * len(alone) >= len(held)
        and all(found[name] > 1 for name in held)
    )


def _recurs(cells: Sequence[str], separator: str) -> bool:
    """Whether what stands between separators stands alone, or in other company, too."""
    found = Counter(name for cell in cells for name in set(parts(cell, separator)))
    return any(found[name] > 1 for cell in cells if separator in cell for name in parts(cell, separator))


def _without_vectors(rows: list[list[str]], table: Table) -> list[list[str]]:
    """The rows; where all are vectors of 0 and 1 of one length, the places of 1 instead."""
    width = len(rows[0]) if rows else 0
    if width < 2 or not all(len(names) == width and set(names) <= _BITS.keys() for names in rows):
        return [list(dict.fromkeys(names)) for names in rows]
    warn(
        f"{table.path}: all {counted(len(rows), 'row')} hold {width} times 0 or 1 as their label, and are"
        f" read as vectors of the labels 0 to {width - 1}; write lists of names to name them"
    )
    return [[str(place) for place, bit in enumerate(names) if _BITS[bit]] for names in rows]


def one_hot(path: Path, layout: FileLayout) -> list[list[str]] | None:
    """The labels of each row of a table that has a column of 0 and 1 for each label; None of another table.

    The columns are those that `--columns.label a,b,c` names, or, where there is no column of labels, all
    that hold nothing but 0 and 1: a warning names these.

    Raises:
        BrimfulError: as `read_table`, or a column that is named holds something else.
    """
    columns = layout.columns
    if layout.rewrite is not None:
        return None
    with recorded_warnings():  # they come again when the table is read
        form, _ = open_rows(path, [columns.text], layout)
        first = next(iter(all_rows(path, form, layout)), (0, {}))[1]
    named = [name.strip() for name in columns.label.split(",")]
    if columns.label in first or columns.text not in first:
        return None
    chosen = len(named) > 1 and all(name in first for name in named)
    others = (columns.text, columns.text_b)
    names = (
        named
        if chosen
        else [name for name in first if name not in others and name.strip().lower() not in _NUMBERS_OF_ROWS]
    )
    rows: list[dict[str, bool]] = []
    with recorded_warnings():
        for number, row in all_rows(path, form, layout):
            bits = {name: _bit(row.get(name)) for name in names}
            wrong = [name for name, bit in bits.items() if bit is None]
            if wrong and chosen:
                place = PLACES.get(form, "line")
                raise BrimfulError(
                    f"{path}, {place} {number}: {row[wrong[0]]!r:.60} in the column {wrong[0]!r} is neither 0"
                    " nor 1"
                )
            names = [name for name in names if name not in wrong] if wrong else names
            if len(names) < 2:
                return None
            rows.append({name: bool(bit) for name, bit in bits.items()})
    if not chosen:
        listed = ",".join(names)
        warn(
            f"{path} has no column {columns.label!r}: its {len(names)} columns of 0 and 1 are read as labels"
            f" ({listed:.200}); --columns.label a,b names others"
        )
    return [[name for name in names if row[name]] for row in rows]


def known_parts(label: str, known: Iterable[str]) -> list[str] | None:
    """The labels that a label is a list of, if all of them are known: `a, b` of a file that shows no more."""
    names = set(known)
    for separator in _SEPARATORS:
        if separator in label and names.issuperset(found := parts(label, separator)):
            return found
    return None
