"""What is made once of texts, kept as `tasks.cache` keeps: mapped, under a hash of the input."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import brimful.corpus.words.segmenter
import brimful.data.augmented
from brimful.config import config_hash
from brimful.console import warn
from brimful.distributed import World
from brimful.errors import BrimfulError
from brimful.tasks.cache import MOST, VARIABLE, cache_folder
from brimful.tasks.entries import Entry, read_entry, try_to_write


@cache
def _code() -> str:
    """A hash of the code that decides candidates."""
    folders = (Path(__file__).parent, Path(brimful.corpus.words.segmenter.__file__).parent)
    files = [file for folder in folders for file in sorted(folder.glob("*.py"))]
    digest = hashlib.sha256(f"{version('tokenizers')} {version('torch')}".encode())
    for file in (*files, Path(brimful.data.augmented.__file__)):
        digest.update(file.read_bytes())
    return digest.hexdigest()


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


def kept(key: Mapping[str, Any], build: Callable[[], Entry], ranks: World) -> Entry:
    """What `build` makes, out of the cache if it is there. All ranks call this; the main one builds.

    Args:
        key: what decides it, beside the code.
    """
    folder, main = cache_folder(), ranks.is_main
    if folder is None:
        return build()
    place = folder / config_hash({**key, "code": _code()})
    entry: Entry | None = None
    made: Entry | None = None
    try:
        if main:
            entry = read_entry(place, verify=True)
            if entry is None:
                made = build()
                error = try_to_write(place, made, MOST)
                if error is not None:
                    warn(f"candidates are not kept ({error}); {VARIABLE}=off does without")
                entry = read_entry(place)
    finally:
        ready = ranks.least(int(entry is not None or not main))
    if ready and not main:
        entry = read_entry(place)
    return entry or made or build()
