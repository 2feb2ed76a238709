"""The options of `brimful pack`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from brimful.base.errors import BrimfulError, UsageError
from brimful.packing.histogram import check_limits

Depth = int | None
"""The most sequences in a row; None = no limit."""
Algorithm = Literal["spfhp", "lpfhp", "nnlshp", "cutting-stock"]


@dataclass(frozen=True, kw_only=True)
class PackConfig:
    """Plan rows, and show how close they are to the proven limit."""

    EXAMPLE = "--data data --capacity 512 --algorithm all"

    histogram: str | None = None
    """wikipedia-512, squad-384, or another name of docs/packing.md; or a JSON file {"counts": [...]}, whose
    counts[i] is the number of sequences of i + 1 tokens."""
    data: str | None = None
    """Folder made by `brimful prepare`."""
    max_length: int | None = None
    """The most tokens of a sequence from --data, special tokens included: by default 512, or capacity if that
    is less."""
    capacity: int = 512
    """Token slots of a row."""
    depth: tuple[int | Literal["none"], ...] = ()
    """The most sequences in a row; several values make a plan each. By default no limit; with algorithm all:
    2 3 4 8 16 none."""
    algorithm: Literal[Algorithm, "all"] = "cutting-stock"
    """How rows are planned; all compares every algorithm."""
    out: str | None = None
    """JSON file to write the best plan to: patterns of lengths, and the number of rows with each."""
    dry_run: bool = False
    """Check everything, and write nothing."""

    def __post_init__(self) -> None:
        check_limits(self.capacity, None)
        if (self.histogram is None) == (self.data is None):
            raise UsageError("pack needs --histogram or --data, and not both")
        if self.max_length is not None and self.data is None:
            raise UsageError("--max-length is for --data, whose sequences are cut here")
        if self.data is not None and not 3 <= self.longest <= self.capacity:
            raise BrimfulError(
                f"max_length is {self.longest}: it must be at least 3 and at most capacity ({self.capacity})"
            )
        if self.out is not None and Path(self.out).resolve() == Path(self.histogram or "").resolve():
            raise UsageError("--out and the input must be different files")
        for depth in self.depth:
            if depth != "none" and depth < 1:
                raise BrimfulError(f"depth is {depth}: it must be at least 1, or none")

    @property
    def longest(self) -> int:
        """The most tokens of a sequence from --data."""
        return min(512, self.capacity) if self.max_length is None else self.max_length
