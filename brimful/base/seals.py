"""Names of the records of a folder, and checksums of its files, so that a damaged model is refused, not run.

A commit record lists every file: checksums.json in the folder of a finished run, export.json in an export. A
folder of another origin has neither, and is read as it is.
"""

from pathlib import Path

from brimful.base.storage import commit, read_commit

MANIFEST = "MANIFEST.json"
"""The commit record of a prepared folder."""
CONFIG = "config.yaml"
SUMMARY = "summary.json"
"""The settings of a run, and its facts, which are written last."""
CHECKSUMS = "checksums.json"
EXPORT = "export.json"
PAGES = "pages"
"""The key of an export's record with the CRCs of files that its user may edit. The CRCs are checked only
before another export replaces the files."""


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
