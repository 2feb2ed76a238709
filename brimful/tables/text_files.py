"""Files of text as users have them: lines as `prepare` reads them, and one line of what is wrong."""

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import escape, has_magic
from itertools import chain, islice
from pathlib import Path

from brimful.base.console import escape_controls, pluralise, warn
from brimful.base.errors import BrimfulError
from brimful.corpus.reading.archives import member_of
from brimful.corpus.reading.inputs import Span, files_of, split_suffix
from brimful.corpus.reading.lines import BINARY, READ_AS, UNDECODABLE, UNICODE_END, read_runs

_SHOWN = 5
_RUN = 1 << 16
_ENDLESS = 1 << 62
_OTHER_ENCODINGS = ("WINDOWS-1252", "GB18030")
_NOT_WESTERN = re.compile("[^\\x00-\\x7f]{2}|[\\x80-\\x9f\\ufffd]")
_NO_TABLES = (".md", ".html", ".htm")
"""Suffixes of files that stand beside tables, such as README.md."""
_PARTS = {"train": "--train", "dev": "--dev", "val": "--dev", "test": "--test"}
_PART = re.compile(r"(train|dev|val|test)(?:ing|elopment|id|idation)?(?![a-z])")
"""The beginning of the name of a file or folder that is a part of a data set."""


def text_lines(path: Path, *, newline: str | None = None) -> Iterator[str]:
    """The lines of a file; each ends in a line feed, the last one too. Byte order marks are left out.

    A file is UTF-8, or of the charset that its mark or its bytes show; then a warning says so.

    Args:
        newline: what ends a line. None: a line feed or carriage return, or both; "\\n": any line end of
            Unicode, as in a text; "": as in a table (`brimful.corpus.reading.lines`).

    Raises:
        BrimfulError: the file is no text, has a NUL character, or cannot be decoded.
        OSError: see `readable`.
    """
    number, feeds = 1, 0
    others: list[int] = []
    for text in _runs(path, "jsonl" if newline is None else "tsv"):
        if (place := text.find("\0")) >= 0:
            line = number + text.count("\n", 0, place)
            raise BrimfulError(
                f"{path}, line {line} has a NUL byte, which no text has: remove it, as with tr -d '\\000'"
            )
        feeds += text.count("\n")
        if newline == "\n" and UNICODE_END.search(text):
            others += [number + text.count("\n", 0, end.start()) for end in UNICODE_END.finditer(text)]
            # The only line feed may be one that was added behind another end.
            text = UNICODE_END.sub("\n", text[:-1] if feeds == 1 else text)
            text += "" if text.endswith("\n") else "\n"
        for each in text[:-1].split("\n"):
            yield f"{each}\n"
        number = feeds + 1
    if others and feeds > 1:
        warn(
            f"{path}: {pluralise(len(others), 'text')} (line {first_lines(others)}) end within a line, at a"
            " form feed, U+0085, U+2028 or the like: put texts with those into a .jsonl"
        )


def files_of_table(path: Path | str) -> list[Path]:
    """The files that are read as one table: one, those of a folder, or those that a pattern matches, by name.
    A warning counts the files of a folder that are left out.

    Raises:
        BrimfulError: no file matches, or a folder holds several parts of a data set.
    """
    path = Path(path)
    if not path.is_dir() and (path.exists() or not has_magic(str(path))):
        return [path]
    left_out: Counter[str] = Counter()
    files: list[Path] = []
    for file in map(Path, files_of(str(path), left_out)):
        suffix = split_suffix(str(file))[0]
        if path.is_dir() and suffix in _NO_TABLES:
            left_out[suffix] += 1
        else:
            files.append(file)
    suffixes = ", ".join(f"{escape_controls(suffix)} {number:,}" for suffix, number in left_out.most_common())
    others = f"left out: {suffixes}; a pattern in quotes names files of any suffix" if left_out else "empty"
    if not files:
        raise BrimfulError(f"{path} is a folder without tables ({others})")
    if path.is_dir():
        _refuse_parts(path, files)
    if left_out:
        warn(f"{path}: {pluralise(left_out.total(), 'file')} {others}, such as {_pattern(path, '*.csv')}")
    return files


def _pattern(folder: Path, name: str) -> str:
    return shlex.quote(f"{escape(str(folder))}/{name}")


def _refuse_parts(folder: Path, files: Sequence[Path]) -> None:
    """Refuse a folder that holds train and test, say: one table would join them."""
    patterns: dict[str, str] = {}
    for file in files:
        place = folder
        for name in file.relative_to(folder).parts:
            if part := _PART.match(name.lower()):
                patterns.setdefault(_PARTS[part[1]], _pattern(place, f"{name[: part.end()]}*"))
                break
            place = place / name
    if len(patterns) > 1:
        options = " ".join(f"{option} {patterns[option]}" for option in sorted(patterns, reverse=True))
        raise BrimfulError(f"{folder} holds several parts of a data set: {options} reads each by itself")


def suffix_of(path: Path) -> str:
    """The suffix that names the format of a file, also of one that is compressed or alone in a .zip.

    Raises:
        BrimfulError: a .zip holds several files, or cannot be read.
        OSError: see `readable`.
    """
    suffix, compression = split_suffix(str(path))
    if compression == ".zip" and not suffix:
        return split_suffix(member_of(str(path)))[0]
    return suffix


def _runs(path: Path, kind: str) -> Iterator[str]:
    issues: Counter[str] = Counter()
    runs = _read(path, kind, issues)
    first = next(runs, "")
    for issue, number in issues.items():
        if issue.startswith(READ_AS):
            warn(f"{path}: {escape_controls(issue)}: {number:,}; if that is wrong, convert it to UTF-8")
    if BINARY in issues:
        raise BrimfulError(
            f"{path} is no text: it has control characters, as programs and archives have, or UTF-16"
            " without a mark, which iconv -f UTF-16LE -t UTF-8 converts"
        )
    for runs_before, text in enumerate(chain(filter(None, (first,)), runs)):
        if any(issue.startswith(UNDECODABLE) for issue in issues):
            yield from islice(_in_windows_1252(path, kind, issues), runs_before, None)
            break
        yield text
    for issue, number in issues.items():
        if issue.startswith("archive"):
            raise BrimfulError(f"{path}: {issue}; get the file again")
        if not issue.startswith((READ_AS, UNDECODABLE)):
            warn(f"{path}: {escape_controls(issue)}: {number:,}")


def _in_windows_1252(path: Path, kind: str, issues: Counter[str]) -> Iterator[str]:
    """The text of a file that is not UTF-8. One byte beyond ASCII between others is of windows-1252, as Excel
    writes a curly apostrophe; several in a row may be a character of a Chinese charset.

    Raises:
        BrimfulError: there are such, or bytes that windows-1252 does not have; the message shows the first
            line in both.
    """
    wrong, shown, lines, is_western = list[int](), list[str](), 0, True
    readings = [_read(path, kind, Counter(), encoding) for encoding in ("utf-8", *_OTHER_ENCODINGS)]
    for text, *others in zip(*readings, strict=True):
        is_western = is_western and not _NOT_WESTERN.search(others[0])
        for number, line in enumerate(text.split("\n")):
            if "\ufffd" in line:
                wrong.append(lines + number + 1)
                shown = shown or [_around(other.split("\n")[number]) for other in others]
        lines += text.count("\n")
    place = f"{pluralise(len(wrong), 'line')} ({first_lines(wrong)})"
    if not is_western:
        remedies = [
            f"iconv -f {name} -t UTF-8 ({part})" for name, part in zip(_OTHER_ENCODINGS, shown, strict=True)
        ]
        raise BrimfulError(
            f"{path} is not UTF-8 in {place}: convert it from the encoding that it has, such as"
            f" {' or '.join(remedies)}"
        )
    warn(f"{path}: {READ_AS}windows-1252 in {place}: {shown[0]}; if that is wrong, convert it to UTF-8")
    return _read(path, kind, issues, "windows-1252")


def _around(line: str) -> str:
    """The first character of a line that is not ASCII, with those beside it."""
    place = next((at for at, character in enumerate(line) if not character.isascii()), 0)
    return repr(line[max(place - 10, 0) : place + 20])


def _read(path: Path, kind: str, issues: Counter[str], encoding: str = "utf-8") -> Iterator[str]:
    span = Span(path=str(path))
    return read_runs(
        span, encoding, issues, boundary=None, run=_RUN, longest=_ENDLESS, too_long="", kind=kind
    )


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """One line for a file that cannot be read.

    Raises:
        BrimfulError: in place of OSError.
    """
    try:
        yield
    except OSError as error:
        raise BrimfulError(f"cannot read {path}: {error.strerror or error}") from error


def first_lines(lines: Sequence[int]) -> str:
    """The first few of the numbers of lines: `3, 7`, with ... where there are more."""
    return ", ".join(map(str, lines[:_SHOWN])) + (" ..." if len(lines) > _SHOWN else "")
