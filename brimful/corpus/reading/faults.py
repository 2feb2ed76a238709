"""What can be wrong with a record: a lenient reader counts it and goes on, a strict one refuses the file."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from brimful.base.console import warn
from brimful.base.errors import BrimfulError


@dataclass(frozen=True)
class Fault:
    """A kind of fault.

    Attributes:
        counted: what the lenient reader counts.
        refused: what the strict reader says of the line, and the remedy.
    """

    counted: str
    refused: str


_QUOTE = "has a quote that is never closed; one within a quoted text must be doubled"
UNCLOSED = Fault("quote never closed, its line skipped", _QUOTE)
UNCLOSED_LONG = Fault("quote not closed within 16 MB, its line skipped", _QUOTE)
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
SHORT = Fault("rows cut short", "has fewer fields than the header")
LONG = Fault("rows longer than the header", "has more fields than the header")
NOT_JSON = Fault("broken JSON lines", "is not JSON")
CUT_JSON = Fault("broken JSON, its rest lost", "is not JSON")
NOT_RECORD = Fault("JSON that is no record", "must be a JSON object")
REPEATED = Fault("a key twice in a JSON row, the last one read", "has a key twice: keep one of them")


class Report(Protocol):
    """Takes what a reader finds wrong."""

    def lose(self, fault: Fault, line: int, detail: str = "") -> None:
        """A record has a fault.

        Args:
            line: where it begins, from 1.
            detail: in place of `fault.refused`.

        Raises:
            BrimfulError: the reader is strict.
        """

    def note(self, message: str) -> None:
        """Something that the user should know of the whole file."""


@dataclass(frozen=True)
class Counting:
    """The lenient report: everything is counted."""

    issues: Counter[str]

    def lose(self, fault: Fault, line: int, detail: str = "") -> None:
        """Count the fault."""
        self.issues[fault.counted] += 1

    def note(self, message: str) -> None:
        """Count the message."""
        self.issues[message] += 1


@dataclass(frozen=True)
class Refusing:
    """The strict report: a fault ends the reading; notes are printed as warnings.

    Attributes:
        place: what records are counted in.
    """

    path: Path
    place: str = "line"
    _notes: set[str] = field(default_factory=set)

    def lose(self, fault: Fault, line: int, detail: str = "") -> None:
        """Refuse the file.

        Raises:
            BrimfulError: always.
        """
        raise BrimfulError(f"{self.path}, {self.place} {line} {detail or fault.refused}")

    def note(self, message: str) -> None:
        """Print the message, once."""
        if message not in self._notes:
            self._notes.add(message)
            warn(f"{self.path} {message}")
