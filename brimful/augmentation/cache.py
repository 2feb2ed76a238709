"""What is made once of texts, kept as `tasks.cache` keeps: mapped, under a hash of the input."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from inspect import getfile
from pathlib import Path
from typing import Any

from brimful.base.distributed import ALONE
from brimful.base.errors import BrimfulError
from brimful.tasks.cache import code_hash, kept_entry
from brimful.tasks.entries import Entry, Facts, Rows


def text_hash(texts: Iterable[str]) -> str:
    """A hash of texts and their order."""
    digest = hashlib.sha256()
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def file_hashes(files: Mapping[str, Path]) -> dict[str, str]:
    """A hash of the content of each file.

    Raises:
        BrimfulError: one cannot be read.
    """
    found = {}
    for name, path in files.items():
        try:
            with open(path, "rb") as file:
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise BrimfulError(f"cannot read {path}: {error.strerror or error}") from error
    return found


def kept(key: Mapping[str, Any], build: Callable[[], tuple[Rows, Facts]]) -> Entry:
    """What `build` makes, out of the cache if it is there.

    Args:
        key: what decides it, beside the code.
    """
    return kept_entry({**key, "code": code_hash(getfile(build))}, build, ALONE, "candidates")
