"""Folders with a model: one commit record lists every file, so a damaged model is refused, not run.

The folder of a finished run has checksums.json, an export export.json. A folder of another origin has
neither, and is read as it is.
"""

import os
from pathlib import Path

from brimful.base.console import say
from brimful.base.storage import LOCK, commit, crc32, read_commit, read_record

CHECKSUMS = "checksums.json"
EXPORT = "export.json"
PAGES = "pages"
"""The key of an export's record for files that its user may edit, and their CRCs. They are not checked."""


def seal(folder: Path) -> None:
    """Write checksums.json of all files of a folder.

    Raises:
        BrimfulError: it cannot be written.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / CHECKSUMS)
    commit(folder / CHECKSUMS, files, kind="model")


def check_seal(folder: Path) -> None:
    """Check every file that the commit record of a folder lists, if the folder has one.

    A file is read once in a process, however often its folder is.

    Raises:
        BrimfulError: the record is damaged; or a file is missing, or not the one that was written.
    """
    for name in (CHECKSUMS, EXPORT):
        if (folder / name).is_file():
            read_commit(folder / name, verify=True, remedy="the files are read as they are")


def own_files(record: Path) -> list[str]:
    """What the user has put into a folder: all but its commit record and the files of that, as names in it,
    and the pages that were edited since.

    Links and empty folders count as files. A line says which there are. Without a record there are none.

    Raises:
        BrimfulError: the record is damaged, so nothing tells which files it listed.
    """
    if not record.is_file():
        return []
    folder = record.parent
    said = read_record(record, remedy="choose another folder")
    pages = {name for name, crc in said.get(PAGES, {}).items() if _has_crc(folder / name, crc)}
    known = {record.name, LOCK, *map(os.path.normpath, said["files"]), *pages}
    found: set[str] = set()
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir() or not any(path.iterdir()):
            found.add(os.path.relpath(path, folder))
    own = sorted(found - known)
    if own:
        others = f" and {len(own) - 1:,} more" if len(own) > 1 else ""
        say(f"{folder} keeps {own[0]}{others}, which {record.name} does not list")
    return own


def _has_crc(path: Path, crc: int) -> bool:
    return path.is_file() and crc32(path) == crc
