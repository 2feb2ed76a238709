"""The length histograms that come with this package, and those in files."""

from pathlib import Path

import numpy as np

from brimful.base.errors import BrimfulError
from brimful.base.storage import read_json

PUBLISHED = {path.stem: path for path in sorted(Path(__file__).with_name("histograms").glob("*.json"))}
"""Histograms that come with this package, by name; each file says where its counts are from."""


def read_histogram(name: str | Path) -> np.ndarray:
    """Read the counts of a published histogram or of a JSON file: int64 (longest + 1,).

    Args:
        name: a name of `PUBLISHED`, or the path of a file {"counts": [...]}: counts[i] sequences of length
            i + 1.

    Raises:
        BrimfulError: there is no such file and no such histogram, or the file holds something else.
    """
    path = PUBLISHED.get(str(name), Path(name))
    if not path.exists():
        raise BrimfulError(f"{path} is neither a file nor one of {', '.join(PUBLISHED)}")
    value = read_json(path)
    counts = value.get("counts") if isinstance(value, dict) else None
    if not (isinstance(counts, list) and counts and all(type(n) is int and 0 <= n < 2**53 for n in counts)):
        raise BrimfulError(
            f'{path} must be a JSON object with "counts": a list of whole numbers, counts[i] being how many'
            " sequences have i + 1 tokens"
        )
    return np.array([0, *counts], dtype=np.int64)
