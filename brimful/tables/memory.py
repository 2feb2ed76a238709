"""Data in memory where a verb takes files: it is written to a file, which the verb reads as any other.

Rows become .jsonl, in which row n is line n. Columns, data frames and Arrow tables become .parquet by their
own methods, so that no library of data frames is imported.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from brimful.base.errors import BrimfulError
from brimful.base.storage import IN_MEMORY, crc32, temporary_path
from brimful.base.types import Facts, Values

DATA_OPTIONS = {
    **dict.fromkeys(("train", "dev", "test", "input", "calibrate"), False),
    **dict.fromkeys(("more_tests", "unlabelled", "files", "paths"), True),
}
"""The options that name files of texts or tables, and whether each takes several."""


@contextmanager
def data_as_files(values: Facts, *, keeps: bool) -> Iterator[Values]:
    """A context with the options of a verb, in which paths of files stand for data in memory.

    Args:
        keeps: whether the files stay in the folder `out`, since a resume and later verbs read them. They do
            not where the verb writes nothing else there. Other files are removed at the end.

    Raises:
        BrimfulError: the data is no table, or a value is none that JSON or Parquet can hold.
    """
    keeps = keeps and bool(values.get("out")) and not values.get("dry_run")
    out = Path(values.get("out") or "")
    placed = dict(values)
    with tempfile.TemporaryDirectory(prefix="brimful-") as scratch:
        folder = out / IN_MEMORY if keeps else Path(scratch)
        try:
            for name in DATA_OPTIONS.keys() & values.keys():
                placed[name] = _place(values[name], folder / name, several=DATA_OPTIONS[name])
            yield placed
        finally:
            if keeps and out.is_dir() and os.listdir(out) == [IN_MEMORY]:
                shutil.rmtree(out)


def _place(value: Any, path: Path, *, several: bool) -> Any:
    """Return the path of the file that now holds a value; the value itself if it is a path or no data."""
    is_data = isinstance(value, Iterable) or hasattr(value, "columns")
    if isinstance(value, str | bytes | PathLike) or not is_data:
        return value
    is_list = isinstance(value, list | tuple)
    if several and is_list and not (value and all(isinstance(row, Mapping) for row in value)):
        return [_place(part, path, several=False) for part in value]  # paths, or several tables
    written = _write(value, path)
    return [written] if several else written


def _write(data: Any, path: Path) -> str:
    """Write a table as `path`, with a checksum and a suffix behind its name: other data has another name."""
    import pyarrow
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    temporary, suffix = temporary_path(path), ".parquet"
    try:
        if isinstance(data, Mapping) and any(isinstance(column, str) for column in data.values()):
            raise TypeError("it is one row; write a list of rows, or a list of values for each column")
        if hasattr(data, "to_parquet"):  # of pandas, datasets
            data.to_parquet(temporary)
        elif hasattr(data, "columns") or isinstance(data, Mapping):  # of pyarrow, polars
            pyarrow.parquet.write_table(pyarrow.table(data), temporary)
        else:
            suffix = ".jsonl"
            with temporary.open("w", encoding="utf-8") as file:
                for row in data:
                    file.write(json.dumps(row, ensure_ascii=False, default=_as_plain) + "\n")
    except (TypeError, ValueError) as error:  # pyarrow's own errors are such, too
        temporary.unlink(missing_ok=True)
        raise BrimfulError(f"{path.name} cannot be read as a table: {error}") from error
    final = path.with_name(f"{path.name}-{crc32(temporary):08x}{suffix}")
    if final.exists():  # the same data, which has not changed since `prepare` read it
        temporary.unlink()
    else:
        temporary.replace(final)
    return str(final)


def _as_plain(value: Any) -> Any:
    """Return a value of numpy as one of Python's own, which JSON holds."""
    if not hasattr(value, "tolist"):
        raise TypeError(f"{value!r:.40} is not a text, a number or a list")
    return value.tolist()
