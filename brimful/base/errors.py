"""The exceptions that a user meets: one line that says what is wrong and what to do; and the one warning."""

import difflib
from collections.abc import Iterable


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
        problem = "the model's outputs are NaN or infinite: its weights are damaged, or too large for the"
        super().__init__(message or f"{problem} precision")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: a MemoryError, or the kinds of RuntimeError that torch raises instead."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return any(sign in str(error) for sign in ("out of memory", "can't allocate memory"))


def suggest_name(name: str, valid: Iterable[str]) -> str:
    """Return a hint that names the valid word closest to `name`, or lists all valid words."""
    words = sorted(valid)
    matches = difflib.get_close_matches(name, words, n=1, cutoff=0.5)
    if matches:
        return f"did you mean {matches[0]!r}?"
    return f"known: {', '.join(words)}"
