"""The options of `brimful pack`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from brimful.base.errors import BrimfulError, UsageError
from brimful.packing.histogram import check_limits

Depth = int | None
"""The most sequences in a row; None = no limit."""
Algorithm = Literal["spfhp", "lpfhp", "nnlshp", "ennlshp", "cutting-stock", "best-fit", "online"]


@dataclass(frozen=True, kw_only=True)
class PackConfig:
    """Plan rows, and show how close they are to the proven limit."""

    EXAMPLE = "--data data --capacity 512 --algorithm all"

    histogram: str | None = None
    """wikipedia-512 (published); a JSON file {"counts": [...]}, counts[i] sequences of i + 1 tokens; or the
    lengths of all sequences as a .npy file."""
    data: str | None = None
    """Folder made by `brimful prepare`."""
    texts: str | None = None
    """Table of a task (.tsv, .csv, .jsonl; columns text and, for pairs, text_b); needs --tokenizer."""
    tokenizer: str | None = None
    """Tokenizer for --texts: a file, or a folder such as a model's."""
    max_length: int | None = None
    """The most tokens of a sequence from --data or --texts, special tokens included: by default 512, or
    capacity if that is less."""
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
        if (self.data or self.texts) and self.capacity < 3:
            raise BrimfulError(
                f"capacity is {self.capacity}: texts need rows of at least 3, for [CLS] and [SEP]"
            )
        given = [name for name in ("histogram", "data", "texts") if getattr(self, name) is not None]
        if len(given) != 1:
            raise UsageError(
                "pack needs one of --histogram, --data and --texts"
                + (f", not {' and '.join(f'--{name}' for name in given)}" if given else "")
            )
        if (self.texts is None) != (self.tokenizer is None):
            raise UsageError("--texts and --tokenizer go together")
        if self.max_length is not None and self.data is None and self.texts is None:
            raise UsageError("--max-length is for --data and --texts, whose sequences are cut here")
        if self.max_length is not None and not 3 <= self.max_length <= self.capacity:
            raise BrimfulError(
                f"max_length is {self.max_length}: it must be at least 3 and at most capacity"
                f" ({self.capacity})"
            )
        if self.algorithm == "online" and self.out:
            raise UsageError("online makes rows, not a plan: choose another algorithm for --out")
        if self.out is not None and Path(self.out).resolve() == Path(getattr(self, given[0])).resolve():
            raise UsageError("--out and the input must be different files")
        for depth in self.depth:
            if depth != "none" and depth < 1:
                raise BrimfulError(f"depth is {depth}: it must be at least 1, or none")
