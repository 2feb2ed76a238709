"""The exceptions that a user meets (one line: what is wrong, what to do), the warning, and common checks."""

import difflib
import operator
import re
from collections.abc import Collection, Iterable
from typing import Any

_NOT_FINITE = (
    "the model's outputs are NaN or infinite: its weights are damaged, or too large for the precision"
)
_COMPARISONS = {"at least": operator.ge, "above": operator.gt, "at most": operator.le, "below": operator.lt}


class BrimfulError(Exception):
    """Bad input, configuration or environment. The command line prints its text and exits with 1."""

    exit_code = 1


class BrimfulWarning(UserWarning):
    """Something that the user should notice, in one line. The command line prints it."""


class UsageError(BrimfulError):
    """A command line that cannot be understood. Exits with 2, as argument parsers do."""

    exit_code = 2


class NotFiniteError(BrimfulError):
    """A model's outputs are NaN or infinite. The caller adds the folder: see `naming_weights`."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or _NOT_FINITE)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: a MemoryError, or the kinds of RuntimeError that torch raises instead."""
    is_of_memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return is_of_memory or any(sign in str(error) for sign in ("out of memory", "can't allocate memory"))


def suggest_name(name: str, valid: Iterable[str]) -> str:
    """Return a hint that names the valid word closest to `name`, or lists all valid words."""
    words = sorted(valid)
    matches = difflib.get_close_matches(name, words, n=1, cutoff=0.5)
    if matches:
        return f"did you mean {matches[0]!r}?"
    return f"known: {', '.join(words)}"


def require_known(what: str, name: str, valid: Collection[str]) -> None:
    """Refuse a name that is not among the valid ones, as an unknown `what`."""
    if name not in valid:
        raise BrimfulError(f"unknown {what} {name!r}: {suggest_name(str(name), valid)}")


def require_range(config: Any, bounds: str, *names: str, group: str = "") -> None:
    """Refuse attributes that are NaN or out of `bounds` ("at least 0 and below 1"); None is allowed."""
    for name in names:
        value = getattr(config, name)
        for words, limit in re.findall(r"(at least|above|at most|below) (\S+)", bounds):
            if value is not None and not _COMPARISONS[words](value, float(limit)):
                raise BrimfulError(f"{group}{name} is {value}: it must be {bounds}")
