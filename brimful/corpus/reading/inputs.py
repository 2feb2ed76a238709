"""The formats of files by their names, and the files that a path, a folder or a glob stands for."""

import glob
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
_HEAD_BYTES = 1 << 14
COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz", ".zip")


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
    if not os.path.isfile(path):  # opening a pipe would wait for its writer
        return False
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False
    return head.startswith(b'{"') or find_many_texts("", head.decode("utf-8", "replace")) is not None


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
    """Yield what `glob.glob` finds. Unlike `**` there, this also ends if links form a circle."""
    head, *tail = re.split(r"(?:(?<=/)|^)\*\*/", pattern, maxsplit=1)
    if not tail:
        yield from glob.glob(pattern)
        return
    for folder in glob.glob(head or "./"):
        for parent, _ in _walk(folder):
            yield from _glob(os.path.join(glob.escape(parent), tail[0]))


def files_of(path: str, left_out: Counter[str]) -> Iterator[str]:
    """Yield the files that a path, a folder or a glob stands for; count the other files of a folder."""
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
