"""Folders with a model: one commit record lists every file, so a damaged model is refused, not run.

The folder of a finished run has checksums.json, an export export.json. A folder of another origin has
neither, and is read as it is.
"""

import os
from pathlib import Path

from brimful.base.errors import BrimfulError
from brimful.base.storage import LOCK, commit, crc32, read_commit, read_record

CHECKSUMS = "checksums.json"
EXPORT = "export.json"
PAGES = "pages"
"""The key of an export's record for files that its user may edit, and their CRCs. They are only checked
before another export takes their place."""


def seal(folder: Path) -> None:
    """Write checksums.json of all files of a folder.

    Raises:
        BrimfulError: it cannot be written.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / CHECKSUMS)
    commit(folder / CHECKSUMS, files, kind="model")


def check_seal(folder: Path) -> None:
    """Check every file that the commit record of a folder lists, if the folder has one.

    Raises:
        BrimfulError: the record is damaged; or a file is missing, or not the one that was written.
    """
    for name in (CHECKSUMS, EXPORT):
        if (folder / name).is_file():
            read_commit(folder / name, verify=True, remedy="the files are read as they are")


def require_no_own_files(record: Path) -> None:
    """Refuse to replace a folder into which its user has put something: files and links that its commit
    record does not list, and pages that were edited since.

    Raises:
        BrimfulError: there are such files; or the record is damaged, so nothing tells which files it listed.
    """
    if not record.is_file():
        return
    folder = record.parent
    said = read_record(record, remedy="choose another folder")
    known = {record.name, LOCK, *map(os.path.normpath, said["files"])}
    for name, crc in said.get(PAGES, {}).items():
        if (folder / name).is_file() and crc32(folder / name) == crc:
            known.add(name)
    found = {
        os.path.relpath(path, folder) for path in folder.rglob("*") if path.is_symlink() or path.is_file()
    }
    own = sorted(found - known)
    if own:
        others = f" and {len(own) - 1:,} more" if len(own) > 1 else ""
        raise BrimfulError(
            f"{folder} has {own[0]}{others}, of your own or edited since {record.name}: move it away, or"
            " choose another folder"
        )
