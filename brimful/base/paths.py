"""Paths whose names are not UTF-8, as archives of other systems leave them: given to libraries that only take
UTF-8."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def utf8_path(path: Path | str) -> Iterator[str]:
    """A path to the same file or folder that is UTF-8: its own, or one through a link to its folder, or to
    itself."""
    path = Path(path)
    if _is_utf8(str(path)):
        yield str(path)
        return
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder, "link")
        has_name = _is_utf8(path.name)
        link.symlink_to(os.path.abspath(path.parent if has_name else path))
        yield str(link / path.name if has_name else link)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
