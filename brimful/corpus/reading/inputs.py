"""Paths, folders and globs -> the ordered list of files to read."""

import glob
import json
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from brimful.base.console import escape_controls, warn
from brimful.base.errors import BrimfulError
from brimful.corpus.reading.faults import check_machine
from brimful.corpus.reading.many_texts import find_many_texts

FORMATS = {
    ".txt": "text",
    ".md": "text",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".html": "html",
    ".htm": "html",
}
# Files that `datasets` keeps beside its data.
_DATASET_RECORDS = ("state.json", "dataset_info.json", "dataset_dict.json")
# The most suffixes that a warning about other files names.
_NAMED_SUFFIXES = 8
_HEAD_BYTES = 1 << 14
COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz", ".zip")


@dataclass(frozen=True, kw_only=True)
class Input:
    """An input file and its state, by which a later run sees whether the file changed.

    Both numbers are 0 if the state cannot be read (a broken link); the reader then counts the reason.
    """

    path: str
    bytes: int
    modified_ns: int


@dataclass(frozen=True, kw_only=True)
class Span:
    """A part of a file: bytes, or row groups of .parquet, from `begin` to `end`; None is the end of the file.

    The reader moves both ends to the start of the next record, so consecutive spans cover a file once.
    """

    path: str
    begin: int = 0
    end: int | None = None


def split_suffix(path: str) -> tuple[str, str]:
    """Return the suffixes of format and compression in lower case; either may be empty."""
    stem, suffix = os.path.splitext(path.lower())
    if suffix in COMPRESSIONS:
        return os.path.splitext(stem)[1], suffix
    return suffix, ""


def format_of(path: str) -> str:
    """Return the format of a file, by its suffix. A file with another suffix is read as text."""
    return FORMATS.get(split_suffix(path)[0], "text")


def is_packed(path: str) -> bool:
    """Return whether a file is compressed, so that it is smaller than its text."""
    suffix, compression = split_suffix(path)
    return bool(compression) or suffix == ".parquet"


def _walk(folder: str) -> Iterator[tuple[str, list[str]]]:
    """Yield a folder and all folders below it, with their file names, sorted; each folder only once."""
    visited = set()
    for parent, folders, files in os.walk(folder, followlinks=True, onerror=_cannot_list):
        place = os.path.realpath(parent)
        if place in visited:  # by another link
            folders.clear()
            continue
        visited.add(place)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield parent, sorted(files)


def _cannot_list(error: OSError) -> None:
    raise BrimfulError(
        f"cannot list the folder {error.filename} ({error.strerror}); make it readable, or leave it out"
    ) from error


def _files_below(folder: str, left_out: Counter[str]) -> Iterator[str]:
    """Yield the files to read in a folder and the folders below it; count the others by suffix."""
    for parent, names in _walk(folder):
        stored = _stored_files(parent) if "state.json" in names else None
        if stored is not None:
            names = [name for name in names if not name.endswith((".arrow", ".json"))] + stored
        is_corpus = "plan.json" in names and os.path.isdir(os.path.join(parent, "text"))
        is_text = os.path.basename(parent) == "text" and os.path.exists(f"{parent}/../plan.json")
        if is_text:  # `prepare` wrote the folder: only the text of its parts is read
            names = [name for name in names if name.endswith(".parquet")]
        elif is_corpus:
            names = []
        for name in names:
            kind = split_suffix(name)[0]
            # `datasets` keeps its caches and records beside its data.
            is_cache = kind == ".arrow" and name.startswith(("cache-", "indices", "tmp"))
            if is_cache or name.startswith(".") or name in _DATASET_RECORDS:
                continue
            path = os.path.join(parent, name)
            # wikiextractor writes wiki_00, mail programs write Inbox: these are refused, with advice.
            if kind in FORMATS or (not kind and _holds_many_texts(path)):
                yield path
            elif stored is None:
                left_out["".join(split_suffix(name)) or "no suffix"] += 1


def _holds_many_texts(path: str) -> bool:
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False
    return head.startswith(b'{"') or find_many_texts("", head.decode("utf-8", "replace")) is not None


def _warn_left_out(left_out: Counter[str]) -> None:
    number = left_out.total()
    if not number:
        return
    suffixes = [
        f"{escape_controls(suffix)} {count:,}" for suffix, count in left_out.most_common(_NAMED_SUFFIXES)
    ]
    if len(left_out) > _NAMED_SUFFIXES:
        suffixes.append("...")
    files = "file of another kind was" if number == 1 else "files of other kinds were"
    warn(
        f"{number:,} {files} left out ({', '.join(suffixes)}); a file given by name is read as text,"
        " or refused with advice on how to convert it"
    )


def _stored_files(folder: str) -> list[str] | None:
    """Return the data files of a folder that `datasets` saved, in order; None if it saved none there."""
    file = os.path.join(folder, "state.json")
    try:
        names = [entry["filename"] for entry in json.loads(Path(file).read_bytes())["_data_files"]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        check_machine(error, file)
        return None
    for name in names:
        if not os.path.exists(os.path.join(folder, name)):
            raise BrimfulError(f"{file} names {name}, which is not there; save or copy the dataset again")
    return names


def _glob(pattern: str) -> Iterator[str]:
    """Yield what `glob.glob` finds. Unlike its `**`, this also ends if links form a circle."""
    head, *tail = re.split(r"(?:(?<=/)|^)\*\*/", pattern, maxsplit=1)
    if not tail:
        yield from glob.glob(pattern)
        return
    for folder in glob.glob(head or "./"):
        for parent, _ in _walk(folder):
            yield from _glob(os.path.join(glob.escape(parent), tail[0]))


def files_of(path: str, left_out: Counter[str]) -> Iterator[str]:
    """Yield the files that a path of `find_inputs` names; count the files of a folder that are not read."""
    if os.path.lexists(path):
        places = [path]
    elif glob.has_magic(path):
        places = sorted(set(_glob(path)))
        if not places:
            raise BrimfulError(f"no file matches {path!r}")
    else:
        raise BrimfulError(f"{path} does not exist; give files, folders or globs of text")
    for place in places:
        if os.path.isdir(place):
            yield from _files_below(place, left_out)
        else:
            yield place


def _state(path: str) -> Input | None:
    """Return the file with its state; None for a socket, a pipe or a device."""
    try:
        state = os.stat(path)
    except OSError as error:
        check_machine(error, path)
        return Input(path=path, bytes=0, modified_ns=0)
    if not stat.S_ISREG(state.st_mode):
        return None
    return Input(path=path, bytes=state.st_size, modified_ns=state.st_mtime_ns)


def _overlap_error(out: str, path: str) -> BrimfulError:
    return BrimfulError(f"--out {out} and the input {path} overlap; write outside the input")


def find_inputs(paths: Iterable[str], out: str) -> list[Input]:
    """Find the input files, in the order of `paths` and by name within a folder, each file once.

    Args:
        paths: files (any suffix), folders (searched for the supported suffixes; a folder that `datasets`
            saved gives its data files), globs.
        out: the place of the output, which must not be read as input.

    Raises:
        BrimfulError: a path does not exist, a folder cannot be listed, there is nothing to read, or `out`
            and an input overlap.
    """
    paths = list(paths)
    if not paths:
        raise BrimfulError("nothing to read: give files, folders or globs of text")
    target = Path(os.path.realpath(out))
    for path in paths:
        source = Path(os.path.realpath(path))
        if (source.is_dir() and target.is_relative_to(source)) or source.is_relative_to(target):
            raise _overlap_error(out, path)
    inputs: dict[str, Input] = {}
    left_out: Counter[str] = Counter()
    for path in paths:
        for file in files_of(path, left_out):
            place = os.path.realpath(file)
            item = None if place in inputs else _state(os.path.abspath(file))
            if item:
                if Path(place).is_relative_to(target):  # through a link
                    raise _overlap_error(out, file)
                inputs[place] = item
    if not inputs:
        raise BrimfulError(
            f"no text in {' '.join(paths)}; looked for files ending in {' '.join(FORMATS)}, optionally"
            f" followed by {' '.join(COMPRESSIONS)}"
        )
    _warn_left_out(left_out)
    return list(inputs.values())
