"""The cache of encoded task files. An entry is a folder with a commit record, which is written last."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from brimful.base.errors import BrimfulError
from brimful.base.storage import sweep

VARIABLE = "BRIMFUL_CACHE"
"""The environment variable with the folder; `off` turns the cache off."""
MAX_CACHE_BYTES = 20 << 30
"""The most bytes of all entries together; above it, the least recently used entries are removed."""
RECORD = "entry.json"


def cache_folder() -> Path | None:
    """Return the folder of the entries: $BRIMFUL_CACHE, or brimful/tasks in the user's cache; None if off.

    Raises:
        BrimfulError: the folder is in a home directory that cannot be found.
    """
    chosen = os.environ.get(VARIABLE)
    if chosen in ("", "off"):
        return None
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "brimful", "tasks")
    try:
        return (Path(chosen) if chosen else folder).expanduser()
    except RuntimeError as error:
        raise BrimfulError(f"{chosen or folder}: no such home") from error


def touch_entry(folder: Path) -> None:
    """Record the use of an entry: the most recently used entries are removed last."""
    with suppress(OSError):
        os.utime(folder / RECORD)


def remove_oldest(folder: Path) -> None:
    """Remove the least recently used entries, until all together have at most `MAX_CACHE_BYTES`."""
    sweep(folder)
    entries = []
    for record in folder.glob(f"*/{RECORD}"):
        with suppress(OSError):  # another process removes it
            size = sum(path.stat().st_size for path in record.parent.iterdir())
            entries.append((record.stat().st_mtime_ns, size, record.parent))
    total = sum(size for _, size, _ in entries)
    # The oldest first, but never the newest: it was made just now, and may be larger than the limit.
    for _, size, path in sorted(entries)[:-1]:
        if total <= MAX_CACHE_BYTES:
            return
        shutil.rmtree(path, ignore_errors=True)
        total -= size
