"""What pretraining is told of its data: which folders, in which shares, and how lengths change in a run."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from brimful.config import require_positive
from brimful.corpus.shards import Corpus
from brimful.corpus.tokenization.tokenizer import load, tokenizer_hash
from brimful.errors import BrimfulError


@dataclass(frozen=True, kw_only=True)
class DataSource:
    """A folder made by `brimful prepare`."""

    path: str
    """Where it is."""
    weight: float = 1.0
    """Its share of the tokens, in any unit."""
    name: str = ""
    """What metrics call it; by default the folder's name."""

    def __post_init__(self) -> None:
        if not 0 < self.weight < math.inf:
            raise BrimfulError(f"data: the weight of {self.path} is {self.weight:g}: it must be above 0")
        if self.name != Path(self.name).name:
            raise BrimfulError(f"data: {self.name!r} cannot name a source: leave out slashes and dots")


@dataclass(frozen=True, kw_only=True)
class PhaseConfig:
    """A part of a run; what is not said here is as in the whole run."""

    steps: int
    """Its updates."""
    max_length: int | None = None
    """The most tokens in a sequence, in the blocks that begin in this phase."""
    rows_per_update: int | None = None
    """Rows that one update sees."""

    def __post_init__(self) -> None:
        require_positive(self, "steps", group="phases.")
        if self.rows_per_update is not None:
            require_positive(self, "rows_per_update", group="phases.")


def parse_source(text: str) -> DataSource:
    """`PATH`, or `PATH:WEIGHT`; what follows the last colon and is no number belongs to the path."""
    path, _, weight = text.rpartition(":")
    try:
        return DataSource(path=path, weight=float(weight)) if path else DataSource(path=text)
    except ValueError:
        return DataSource(path=text)


def parse_phase(text: str) -> PhaseConfig:
    """`STEPS:MAX_LENGTH`, or `STEPS:MAX_LENGTH:ROWS_PER_UPDATE`.

    Raises:
        ValueError: it is neither.
    """
    steps, length, *rows = (int(number) for number in text.split(":"))
    if len(rows) > 1:
        raise ValueError(f"{text} has more than three numbers")
    return PhaseConfig(steps=steps, max_length=length, rows_per_update=rows[0] if rows else None)


def parse_sources(data: str | Sequence[str | DataSource]) -> tuple[DataSource, ...]:
    """The sources, with absolute paths and a name each.

    Raises:
        BrimfulError: there is none, or two have one name.
    """
    given = [data] if isinstance(data, str) else data
    sources = []
    for source in given:
        source = parse_source(source) if isinstance(source, str) else source
        path = Path(source.path).absolute()
        sources.append(replace(source, path=str(path), name=source.name or path.name))
    names = [source.name for source in sources]
    if not names:
        raise BrimfulError("data names no folder")
    for name in names:
        if names.count(name) > 1:
            raise BrimfulError(f"data: two sources are called {name}; give each a name in a --config file")
    return tuple(sources)


def open_sources(sources: Sequence[DataSource], *, verify: bool) -> dict[str, Corpus]:
    """The corpora by name; with `verify`, every byte of them is checked.

    Raises:
        BrimfulError: one is no prepared folder, is damaged, or has another tokenizer than the first; or
            tokenizer.json is not the one that made the shards.
    """
    corpora = {source.name: Corpus.open(source.path, verify=verify) for source in sources}
    (first, one), *others = corpora.items()
    if tokenizer_hash(load(one.tokenizer_path)) != one.tokenizer_hash:
        raise BrimfulError(
            f"{one.tokenizer_path} is not the tokenizer that made the shards beside it; put that one back, or"
            " prepare the corpus again"
        )
    for name, other in others:
        if other.tokenizer_hash != one.tokenizer_hash:
            raise BrimfulError(
                f"data: {name} was made with another tokenizer than {first}; prepare it with"
                f" --tokenizer {one.tokenizer_path}"
            )
    return corpora
