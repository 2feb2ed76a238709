"""Paths, folders and globs -> the ordered list of files to read; bad ones are refused before any is read."""

import os
import stat
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from brimful.base.console import escape_controls, warn
from brimful.base.errors import BrimfulError
from brimful.base.storage import IN_MEMORY
from brimful.corpus.reading.faults import check_machine
from brimful.corpus.reading.forms import form_of, many_texts_of
from brimful.corpus.reading.inputs import COMPRESSIONS, FORMATS, files_of

# The most suffixes that a warning about files of other kinds names.
_NAMED_SUFFIXES = 8


@dataclass(frozen=True, kw_only=True)
class Input:
    """An input file and its state, by which a later run sees whether the file changed.

    Both numbers are 0 if the state cannot be read (a broken link); the reader then counts the reason.
    """

    path: str
    bytes: int
    modified_ns: int


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
        if source.is_dir() and target.is_relative_to(source):
            raise _overlap_error(out, path)
    inputs = {}
    left_out: Counter[str] = Counter()
    for path in paths:
        for file in files_of(path, left_out):
            place = os.path.realpath(file)
            item = None if place in inputs else _state(os.path.abspath(file))
            if item:
                is_inside = Path(place).is_relative_to(target)  # perhaps through a link
                if is_inside and Path(place).parent != target / IN_MEMORY:
                    raise _overlap_error(out, file)
                inputs[place] = item
    if not inputs:
        raise BrimfulError(
            f"no text in {' '.join(paths)}; looked for files ending in {' '.join(FORMATS)}, optionally"
            f" followed by {' '.join(COMPRESSIONS)}"
        )
    _warn_left_out(left_out)
    return list(inputs.values())


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


def require_forms(inputs: Iterable[Input], fields: Sequence[str], encoding: str) -> None:
    """Refuse the files that `form_of` refuses, before any file is read.

    Raises:
        BrimfulError: `form_of` refuses a file. The message names the first such file and all files that the
            same command converts, and counts the others.
    """
    message = ""
    refused = []
    for item in inputs:
        try:
            form_of(item.path, fields, encoding)
        except BrimfulError as error:
            message = message or str(error)
            refused.append(item.path)
    if not refused:
        return
    paths = refused[:1]
    form = many_texts_of(paths[0], encoding)
    if form:
        paths = [path for path in refused if many_texts_of(path, encoding) == form]
        message = f"{paths[0]} {form.refuse(paths, encoding)}"
    more = len(refused) - len(paths)
    if more:
        message += f" ({more:,} more of the files are refused, too)"
    raise BrimfulError(message)
