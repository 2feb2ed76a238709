"""Files of text as users have them: lines of UTF-8, and one line of what is wrong with any other file."""

import codecs
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from brimful.console import counted
from brimful.errors import BrimfulError

_SHOWN = 5
_HEAD = 1 << 16
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",  # begins with the mark of UTF-16
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def text_lines(path: Path, *, newline: str | None = None) -> Iterator[str]:
    """The lines of a file, with their ends; a byte order mark is left out.

    Args:
        newline: what ends a line, as for `open`.

    Raises:
        BrimfulError: a line has a NUL byte.
        OSError, UnicodeDecodeError: see `readable`.
    """
    with open(path, encoding="utf-8-sig", newline=newline) as file:
        for number, line in enumerate(file, 1):
            if "\0" in line:
                raise _has_nul(path, number)
            yield line


def whole_text(path: Path) -> str:
    """The same in one piece."""
    text = path.read_text(encoding="utf-8-sig")
    if (place := text.find("\0")) >= 0:
        raise _has_nul(path, 1 + text.count("\n", 0, place))
    return text


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """One line for a file that cannot be read, or is not UTF-8.

    Raises:
        BrimfulError: in place of OSError and UnicodeDecodeError.
    """
    try:
        yield
    except OSError as error:
        raise BrimfulError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        if (wide := _wide(path)) is not None:
            raise wide from error
        with open(path, "rb") as file:
            wrong = [number for number, line in enumerate(file, 1) if not _is_utf8(line)]
        raise BrimfulError(
            f"{path} is not UTF-8 in {counted(len(wrong), 'line')} ({first_lines(wrong)}): convert it from"
            " the encoding that it has, such as iconv -f GB18030 -t UTF-8"
        ) from error


def first_lines(lines: Sequence[int]) -> str:
    """The first few of the numbers of lines: `3, 7`, with ... where there are more."""
    return ", ".join(map(str, lines[:_SHOWN])) + (" ..." if len(lines) > _SHOWN else "")


def _has_nul(path: Path, line: int) -> BrimfulError:
    return _wide(path) or BrimfulError(
        f"{path}, line {line} has a NUL byte, which no text has: remove it, as with tr -d '\\000'"
    )


def _wide(path: Path) -> BrimfulError | None:
    """What to say of a file whose beginning is UTF-16 or UTF-32; None for any other."""
    with open(path, "rb") as file:
        head = file.read(_HEAD)
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            return BrimfulError(f"{path} is {name}: convert it with iconv -f {name} -t UTF-8")
    head = head[: len(head) // 2 * 2]
    for name, high in (("UTF-16LE", head[1::2]), ("UTF-16BE", head[::2])):
        # The high byte of an ASCII character is NUL, and no other byte is.
        if head.count(0) == high.count(0) and _looks_wide(head, name):
            return BrimfulError(
                f"{path} is {name} without a byte order mark: convert it with iconv -f {name} -t UTF-8"
            )
    return None


def _looks_wide(head: bytes, name: str) -> bool:
    """Whether it can be a text in this encoding: one of many ASCII characters, or, where it is no UTF-8, one
    with ends of lines."""
    text = _decoded(head, name)
    if text is None:
        return False
    return head.count(0) > len(head) // 4 or ("\n" in text and _decoded(head, "UTF-8") is None)


def _decoded(head: bytes, encoding: str) -> str | None:
    """The text of the first bytes of a file, without a character that they have in part."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError:
        return None


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
