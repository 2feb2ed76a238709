"""Checksums of folders with a model, so that a damaged model is refused, not run.

A commit record lists every file: checksums.json in the folder of a finished run, export.json in an export. A
folder of another origin has neither, and is read as it is.
"""

import os
from pathlib import Path

from brimful.base.errors import BrimfulError
from brimful.base.storage import LOCK, commit, crc32, read_commit, read_record

MANIFEST = "MANIFEST.json"
"""The commit record of a prepared folder."""
CHECKSUMS = "checksums.json"
EXPORT = "export.json"
PAGES = "pages"
"""The key of an export's record with the CRCs of files that its user may edit. These are checked only before
another export replaces the files."""


def seal(folder: Path) -> None:
    """Write checksums.json of all files of a folder."""
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
    """Refuse to replace a folder that holds files of its user.

    They are the files and links that its commit record does not list, and pages that were edited since.

    Raises:
        BrimfulError: there are such files; or the record is damaged, so that its list of files is lost.
    """
    if not record.is_file():
        return
    folder = record.parent
    content = read_record(record, remedy="choose another folder")
    listed = {record.name, LOCK, *map(os.path.normpath, content["files"])}
    for name, crc in content.get(PAGES, {}).items():
        if (folder / name).is_file() and crc32(folder / name) == crc:
            listed.add(name)
    # rglob does not follow links, and a link is the user's own even if it leads nowhere.
    own = []
    for path in sorted(folder.rglob("*")):
        name = os.path.relpath(path, folder)
        if (path.is_symlink() or path.is_file()) and name not in listed:
            own.append(name)
    if own:
        others = f" and {len(own) - 1:,} more" if len(own) > 1 else ""
        raise BrimfulError(
            f"{folder} has {own[0]}{others}, of your own or edited since {record.name}: move it away, or"
            " choose another folder"
        )
