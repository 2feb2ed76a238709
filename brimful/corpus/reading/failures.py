"""Reading fails because of the file, which is counted and left, or of the machine, which stops the run."""

import errno
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeVar

from brimful.errors import BrimfulError

# 0 and None: what a library says of a damaged file.
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
    errno.EINVAL,  # a place that a damaged file names
}

Item = TypeVar("Item")


def check_machine(error: Exception, path: str) -> None:
    """Raises BrimfulError if reading a file failed for a reason that lies outside of the file.

    Such a file must not be counted as bad: what was made without it would never be made again.
    """
    if isinstance(error, OSError) and error.errno not in _OF_THE_FILE:
        reason = error.strerror or error
        raise BrimfulError(f"cannot read {path}: {reason}; run again when it can be read") from error


def reporting(items: Iterable[Item], path: str, issues: Counter[str]) -> Iterator[Item]:
    """The items of a file, up to where reading fails; then that is counted.

    Raises:
        BrimfulError: the reason lies outside of the file: a full disk, a lost network, too many open files.
    """
    try:
        yield from items
    except OSError as error:
        check_machine(error, path)
        issues[f"cannot be read ({error.strerror or error})"] += 1
