"""Paths, folders and globs -> the ordered list of files to read."""

import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from brimful.errors import BrimfulError

FORMATS = {
    ".txt": "text",
    ".jsonl": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".html": "html",
    ".htm": "html",
}
COMPRESSIONS = (".gz", ".zst")


@dataclass(frozen=True, kw_only=True)
class Input:
    """An input file and its state, by which a later run sees whether it changed."""

    path: str
    bytes: int
    modified_ns: int


def split_suffix(path: str) -> tuple[str, str]:
    """The format's suffix and the compression's, lower case, either may be empty."""
    stem, suffix = os.path.splitext(path.lower())
    if suffix in COMPRESSIONS:
        return os.path.splitext(stem)[1], suffix
    return suffix, ""


def format_of(path: str) -> str:
    """How a file is read. A file of another name that the user gave by name is read as text."""
    return FORMATS.get(split_suffix(path)[0], "text")


def is_packed(path: str) -> bool:
    """Is the file smaller than the text in it?"""
    suffix, compression = split_suffix(path)
    return bool(compression) or suffix == ".parquet"


def _files_below(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith(".") and split_suffix(name)[0] in FORMATS:
                yield Path(parent, name)


def _expand(path: str) -> Iterator[Path]:
    if os.path.exists(path):
        found = [path]
    elif glob.has_magic(path):
        found = sorted(glob.glob(path, recursive=True))
        if not found:
            raise BrimfulError(f"no file matches {path!r}")
    else:
        raise BrimfulError(f"{path} does not exist; give files, folders or globs of text")
    for name in found:
        if os.path.isdir(name):
            yield from _files_below(Path(name))
        else:
            yield Path(name)


def find_inputs(paths: Iterable[str], out: str) -> list[Input]:
    """The input files in the order of `paths`, folders sorted by name, each file once.

    Args:
        paths: files (any suffix), folders (searched for the supported suffixes), globs.
        out: where the output will be; it must not be read as input.

    Raises:
        BrimfulError: a path does not exist, there is nothing to read, or `out` and an input overlap.
    """
    paths = list(paths)
    if not paths:
        raise BrimfulError("nothing to read: give files, folders or globs of text")
    target = Path(out).resolve()
    for path in paths:
        given = Path(path).resolve()
        if (given.is_dir() and target.is_relative_to(given)) or given.is_relative_to(target):
            raise BrimfulError(f"--out {out} and the input {path} overlap; write outside the input")
    inputs: dict[str, Input] = {}
    for path in paths:
        for file in _expand(path):
            resolved = str(file.resolve())
            if resolved not in inputs and file.is_file():
                state = file.stat()
                inputs[resolved] = Input(path=resolved, bytes=state.st_size, modified_ns=state.st_mtime_ns)
    if not inputs:
        known = " ".join(FORMATS)
        raise BrimfulError(
            f"no text in {' '.join(paths)}; looked for files ending in {known}, also + .gz or .zst"
        )
    return list(inputs.values())
