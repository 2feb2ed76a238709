"""The version of cleaning: a hash of the code that reads and cleans."""

import functools
from importlib.metadata import version
from pathlib import Path

from brimful.base.config import config_hash


@functools.cache
def cleaning_version() -> str:
    """Return a hash of the code of all cleaning rules and readers, and of the versions of the libraries that
    read HTML and name charsets.

    `prepare` cleans a corpus again when the hash changes.
    """
    corpus = Path(__file__).parents[1]
    files = [*sorted(corpus.glob("cleaning/*.py")), *sorted(corpus.glob("reading/*.py"))]
    files.append(corpus / "text" / "characters.py")
    code = [[path.name, path.read_text(encoding="utf-8")] for path in files]
    return config_hash([code, version("resiliparse"), version("webencodings")])
