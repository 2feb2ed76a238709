"""Read users' text files line by line, as `prepare` does, and report a fault in one line."""

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from glob import escape, has_magic
from itertools import chain, islice
from pathlib import Path
from typing import Annotated

from brimful.base.console import escape_controls, pluralise, record_warnings, warn
from brimful.base.errors import BrimfulError
from brimful.base.storage import readable
from brimful.corpus.reading.archives import member_of
from brimful.corpus.reading.inputs import Span, files_of, split_suffix
from brimful.corpus.reading.lines import BINARY, READ_AS, UNDECODABLE, UNICODE_END, read_runs

_SHOWN_LINES = 5
_RUN_BYTES = 1 << 16
_ENDLESS = 1 << 62
"""Bytes of a line: a limit that no line reaches."""
_OTHER_ENCODINGS = ("WINDOWS-1252", "GB18030")
_NOT_WESTERN = re.compile("[^\\x00-\\x7f]{2}|[\\x80-\\x9f\\ufffd]")
_PAGE_SUFFIXES = (".md", ".html", ".htm")
"""Suffixes of files that are common in folders of tables but are not tables, such as README.md."""
_PART = re.compile(r"(train|dev|val|test)(?:ing|elopment|id|idation)?(?![a-z])")
"""Matches the start of the name of a file or folder that is one part of a data set."""


def text_lines(path: Path, *, newline: str | None = None) -> Iterator[str]:
    """Yield the lines of a file; each ends in a line feed, the last one too. Byte order marks are left out.

    A file is read as UTF-8, or, with a warning, in the charset that its mark or bytes show.

    Args:
        newline: the ends of lines. None: a line feed or carriage return, or both; "\\n": any line end of
            Unicode, as in a text; "": as in a table (`brimful.corpus.reading.lines`).

    Raises:
        BrimfulError: the file is binary, has a NUL character, or cannot be decoded.
        OSError: see `base.storage.readable`.
    """
    number, feeds = 1, 0
    others: list[int] = []
    for text in _read_runs(path, "jsonl" if newline is None else "tsv"):
        place = text.find("\0")
        if place >= 0:
            line = number + text.count("\n", 0, place)
            raise BrimfulError(
                f"{path}, line {line} has a NUL byte, which no text has: remove it, as with tr -d '\\000'"
            )
        feeds += text.count("\n")
        if newline == "\n" and UNICODE_END.search(text):
            for end in UNICODE_END.finditer(text):
                others.append(number + text.count("\n", 0, end.start()))
            if feeds == 1:  # the only line feed may have been added after another end
                text = text[:-1]
            text = UNICODE_END.sub("\n", text).removesuffix("\n") + "\n"
        for each in text[:-1].split("\n"):
            yield f"{each}\n"
        number = feeds + 1
    if others and feeds > 1:
        warn(
            f"{path}: {pluralise(len(others), 'text')} (line {first_lines(others)}) end within a line, at a"
            " form feed, U+0085, U+2028 or the like: put texts with those into a .jsonl"
        )


def files_of_table(path: Path | str) -> list[Path]:
    """Return the files of one table, sorted by name: a file, or the files of a folder or of a pattern. A
    warning counts the files of a folder that are left out.

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
        if path.is_dir() and suffix in _PAGE_SUFFIXES:
            left_out[suffix] += 1
        else:
            files.append(file)
    suffixes = ", ".join(f"{escape_controls(suffix)} {number:,}" for suffix, number in left_out.most_common())
    others = f"left out: {suffixes}; a pattern in quotes names files of any suffix" if left_out else "empty"
    if not files:
        raise BrimfulError(f"{path} is a folder without tables ({others})")
    if path.is_dir():
        _refuse_parts(path, files)  # before the warning, which would name a pattern of all parts
    if left_out:
        example = _quote_pattern(path, "*.csv")
        warn(f"{path}: {pluralise(left_out.total(), 'file')} {others}, such as {example}")
    return files


def require_table(path: str) -> None:
    """Refuse a table without files, or with one that does not exist."""
    if path == "none":  # the word for no table
        return
    with record_warnings():  # the verb prints them
        for file in files_of_table(path):
            with readable(file):
                os.stat(file)  # reading a pipe would leave nothing for the verb


# The options of a command that name a table (cli/path_checks.py).
TablePath = Annotated[str, require_table]


def _quote_pattern(folder: Path, name: str) -> str:
    return shlex.quote(f"{escape(str(folder))}/{name}")


def _refuse_parts(folder: Path, files: Sequence[Path]) -> None:
    """Refuse a folder that holds, for example, train and test, which would become one table."""
    parts: set[str] = set()
    for file in files:
        for name in file.relative_to(folder).parts:
            part = _PART.match(name.lower())
            if part:
                parts.add(part[1])
                break  # train/test.csv is a part of train
    if len(parts) > 1:
        raise BrimfulError(
            f"{folder} holds several parts of a data set ({', '.join(sorted(parts))}): name each,"
            " by a folder or a pattern in quotes"
        )


def suffix_of(path: Path) -> str:
    """Return the suffix that names the format of a file, also of a compressed one or the only one in a .zip.

    Raises:
        BrimfulError: a .zip holds several files, or cannot be read.
        OSError: see `base.storage.readable`.
    """
    suffix, compression = split_suffix(str(path))
    if compression == ".zip" and not suffix:
        return split_suffix(member_of(str(path)))[0]
    return suffix


def _read_runs(path: Path, kind: str) -> Iterator[str]:
    """Yield the text of a file in runs of whole lines. Issues cause an error or a warning."""
    issues: Counter[str] = Counter()
    runs = _open_runs(path, kind, issues)
    first = next(runs, "")  # the first run shows the charset, and whether the file is binary
    for issue, number in issues.items():
        if issue.startswith(READ_AS):
            warn(f"{path}: {escape_controls(issue)}: {number:,}; if that is wrong, convert it to UTF-8")
    if BINARY in issues:
        raise BrimfulError(
            f"{path} is no text: it has control characters, as programs and archives have, or UTF-16"
            " without a mark, which iconv -f UTF-16LE -t UTF-8 converts"
        )
    for runs_before, text in enumerate(chain([first] if first else [], runs)):
        if any(issue.startswith(UNDECODABLE) for issue in issues):
            # Earlier runs stay as they were read: if they are not ASCII, the file is refused.
            yield from islice(_read_windows_1252(path, kind, issues), runs_before, None)
            break
        yield text
    for issue, number in issues.items():
        if issue.startswith("archive"):
            raise BrimfulError(f"{path}: {issue}; get the file again")
        if not issue.startswith((READ_AS, UNDECODABLE)):
            warn(f"{path}: {escape_controls(issue)}: {number:,}")


def _read_windows_1252(path: Path, kind: str, issues: Counter[str]) -> Iterator[str]:
    """Read a file that is not UTF-8, as windows-1252 unless it may be in a Chinese charset."""
    # A single byte beyond ASCII between others shows windows-1252, in which Excel writes a curly apostrophe;
    # several in a row may be a character of a Chinese charset.
    wrong, examples, lines, is_western = list[int](), list[str](), 0, True
    readings = [_open_runs(path, kind, Counter(), encoding) for encoding in ("utf-8", *_OTHER_ENCODINGS)]
    for text, *others in zip(*readings, strict=True):
        is_western = is_western and not _NOT_WESTERN.search(others[0])
        for number, line in enumerate(text.split("\n")):
            if "\ufffd" in line:  # the character for bytes that are not UTF-8
                wrong.append(lines + number + 1)
                examples = examples or [_quote_foreign(other.split("\n")[number]) for other in others]
        lines += text.count("\n")  # lines of the earlier runs: `number` restarts in each
    place = f"{pluralise(len(wrong), 'line')} ({first_lines(wrong)})"
    if not is_western:
        western, chinese = (f"iconv -f {name} -t UTF-8" for name in _OTHER_ENCODINGS)
        raise BrimfulError(
            f"{path} is not UTF-8 in {place}: convert it from the encoding that it has, such as"
            f" {western} ({examples[0]}) or {chinese} ({examples[1]})"
        )
    warn(f"{path}: {READ_AS}windows-1252 in {place}: {examples[0]}; if that is wrong, convert it to UTF-8")
    return _open_runs(path, kind, issues, "windows-1252")


def _quote_foreign(line: str) -> str:
    """Return the first character of a line that is not ASCII, with its neighbours, in quotes."""
    foreign = re.search("[^\\x00-\\x7f]", line)
    place = foreign.start() if foreign else 0
    return repr(line[max(place - 10, 0) : place + 20])


def _open_runs(path: Path, kind: str, issues: Counter[str], encoding: str = "utf-8") -> Iterator[str]:
    span = Span(path=str(path))
    return read_runs(
        span, encoding, issues, boundary=None, run=_RUN_BYTES, longest=_ENDLESS, too_long="", kind=kind
    )


def warn_of(path: Path, noun: str, cases: Sequence[object], text: str) -> None:
    """Warn of the number of cases in a file, if there are any; the first one replaces {} in `text`."""
    if cases:
        warn(f"{path}: {pluralise(len(cases), noun)} {text.format(cases[0])}")


def first_lines(lines: Sequence[int]) -> str:
    """Return the first few numbers of lines, such as `3, 7`, with ... if there are more."""
    return ", ".join(map(str, lines[:_SHOWN_LINES])) + (" ..." if len(lines) > _SHOWN_LINES else "")
