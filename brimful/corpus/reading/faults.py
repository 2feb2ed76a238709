"""Faults: a lenient reader counts them, a strict one refuses the file; a failing machine stops both."""

import errno
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from brimful.base.console import warn
from brimful.base.errors import BrimfulError

Item = TypeVar("Item")


@dataclass(frozen=True)
class Fault:
    """A kind of fault.

    Attributes:
        issue: the name under which the lenient reader counts it.
        refusal: the strict reader's message about the line, with the remedy.
    """

    issue: str
    refusal: str


_QUOTE = "has a quote that is never closed; one within a quoted text must be doubled"
UNCLOSED = Fault("quote never closed, its line skipped", _QUOTE)
AFTER_UNCLOSED = Fault("lines skipped after a quote that is never closed", _QUOTE)
AFTER_QUOTE = Fault(
    "rows with text behind a closing quote, read without the quotes",
    "has text behind a closing quote; one within a quoted text must be doubled",
)
LATE_QUOTE = Fault(
    "rows with a field that begins with a quote, which is kept (--read.quote '\"' reads what it encloses)",
    "is the first with a field that begins with a quote: --read.quote none keeps such quotes, --read.quote"
    " '\"' reads what they enclose",
)
SHORT_ROW = Fault("rows cut short", "has fewer fields than the header")
LONG_ROW = Fault("rows longer than the header", "has more fields than the header")
NOT_JSON = Fault("broken JSON lines", "is not JSON")
DAMAGED = Fault("rows damaged, the rest of their group lost", "cannot be read: the file is damaged")
CUT_JSON = Fault("broken JSON, its rest lost", "is not JSON")
NOT_RECORD = Fault("JSON that is no record", "must be a JSON object")
REPEATED = Fault("a key twice in a JSON row, the last one read", "has a key twice: keep one of them")


@dataclass(frozen=True)
class Report:
    """Counts the faults that a reader finds: the lenient reader's report."""

    issues: Counter[str] = field(default_factory=Counter)

    def lose(self, fault: Fault, line: int, detail: str = "") -> None:
        """Count the fault of a record.

        Args:
            line: where the record begins, from 1.
            detail: a message in place of `fault.refusal`.
        """
        self.issues[fault.issue] += 1

    def note(self, message: str) -> None:
        """Count something that the user should know about the whole file."""
        self.issues[message] += 1


@dataclass(frozen=True)
class Refusing(Report):
    """The strict reader's report: a fault ends the reading; notes are printed as warnings.

    Attributes:
        place: the unit in which records are counted, such as line.
    """

    path: Path = Path()
    place: str = "line"

    def lose(self, fault: Fault, line: int, detail: str = "") -> None:
        """Refuse the file.

        Raises:
            BrimfulError: always.
        """
        raise BrimfulError(f"{self.path}, {self.place} {line} {detail or fault.refusal}")

    def note(self, message: str) -> None:
        """Print the message, once."""
        super().note(message)
        if self.issues[message] == 1:
            warn(f"{self.path} {message}")


# Error numbers that mean a fault of the file. Libraries use 0 and None for a damaged file.
_FILE_ERRORS = {None, 0, errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELOOP}
_FILE_ERRORS |= {errno.ENAMETOOLONG, errno.EINVAL}  # EINVAL is an offset in a damaged file


def check_machine(error: Exception, path: str) -> None:
    """Raise BrimfulError if a file could not be read for a reason outside of the file.

    Counting such a file as bad would leave it out of the corpus for good.
    """
    if isinstance(error, OSError) and error.errno not in _FILE_ERRORS:
        reason = error.strerror or error
        raise BrimfulError(f"cannot read {path}: {reason}; run again when it can be read") from error


def count_error(items: Iterable[Item], path: str, issues: Counter[str]) -> Iterator[Item]:
    """Yield the items of a file up to the first error, which is counted.

    Raises:
        BrimfulError: the reason is outside of the file: a full disk, a lost network, too many open files.
    """
    try:
        yield from items
    except OSError as error:
        check_machine(error, path)
        issues[f"cannot be read ({error.strerror or error})"] += 1
