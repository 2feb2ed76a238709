"""A bad file is counted and skipped; a failing machine stops the run."""

import errno
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeVar

from brimful.base.errors import BrimfulError

# Errors of the file. Libraries use 0 and None for a damaged file.
_OF_THE_FILE = {
    None,
    0,
    errno.ENOENT,
    errno.EACCES,
    errno.EPERM,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.EINVAL,  # an offset in a damaged file
}

Item = TypeVar("Item")


def check_machine(error: Exception, path: str) -> None:
    """Raises BrimfulError if a file could not be read for a reason outside of the file.

    Counting such a file as bad would leave it out of the corpus for good.
    """
    if isinstance(error, OSError) and error.errno not in _OF_THE_FILE:
        reason = error.strerror or error
        raise BrimfulError(f"cannot read {path}: {reason}; run again when it can be read") from error


def reporting(items: Iterable[Item], path: str, issues: Counter[str]) -> Iterator[Item]:
    """The items of a file up to the first error, which is counted.

    Raises:
        BrimfulError: the reason is outside of the file: a full disk, a lost network, too many open files.
    """
    try:
        yield from items
    except OSError as error:
        check_machine(error, path)
        issues[f"cannot be read ({error.strerror or error})"] += 1
