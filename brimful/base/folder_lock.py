"""A lock that keeps a folder to one process, and ends with the process, even by kill -9.

It is a POSIX record lock (fcntl) on the file .lock in the folder. Processes that the owner forks do not share
it, and over NFS it holds for other machines too. If file locks are not supported, a warning says so.
"""

import errno
import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Self

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.base.storage import LOCK, make_write_error, require_utf8

_TAKEN_ERRORS = (errno.EACCES, errno.EAGAIN)
_UNSUPPORTED_ERRORS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_held: set[Path] = set()
"""The folders that this process has locked. To open and close a lock file again would release its lock."""


class FolderLock:
    """The locks that a verb holds until it ends; a context manager.

    A verb that is called by another one in the same process may use the same folder.
    """

    def __init__(self) -> None:
        self._taken: list[tuple[Path, int, list[Path]]] = []

    def take(self, folder: Path) -> None:
        """Lock a folder for this process. A missing one is created, and removed at the end if it is empty.

        Raises:
            BrimfulError: another process works there, the folder cannot be written, or its path is not UTF-8.
        """
        place = folder.resolve()
        require_utf8(place)
        if place in _held:
            return
        new_folders = [above for above in (place, *place.parents) if not above.exists()]
        try:
            place.mkdir(parents=True, exist_ok=True)
            descriptor = _open_locked(place / LOCK, folder)
        except OSError as error:
            raise make_write_error(folder, error) from error
        _held.add(place)
        self._taken.append((place, descriptor, new_folders))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for place, descriptor, new_folders in reversed(self._taken):
            with suppress(OSError):  # a folder put in its place may have the lock of another process
                if os.path.samestat(os.fstat(descriptor), (place / LOCK).stat()):
                    (place / LOCK).unlink()
            os.close(descriptor)
            _held.discard(place)
            with suppress(OSError):
                for folder in new_folders:
                    folder.rmdir()  # fails, and ends the loop, where the verb has written something


def _open_locked(path: Path, folder: Path) -> int:
    """Open and lock a file, and write the names of this machine and this process into it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            os.close(descriptor)
            if error.errno in _TAKEN_ERRORS:
                raise BrimfulError(
                    f"{folder} is in use by {owner or 'another process'}: wait until it ends, or stop it"
                ) from error
            if error.errno not in _UNSUPPORTED_ERRORS:
                raise
            warn(f"{folder}: there are no locks of files here, so no other process may work in it")
            return os.open(path, os.O_RDWR)
        try:
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
                return descriptor
        except FileNotFoundError:
            pass
        except OSError:  # a full disk
            os.close(descriptor)
            raise
        os.close(descriptor)  # the previous owner removed the file after it was opened here
