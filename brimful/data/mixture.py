"""The sources of a mixture: folders and their proportions."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from brimful.base.config import Argument
from brimful.base.errors import BrimfulError
from brimful.corpus.shards import Corpus, require_prepared
from brimful.corpus.text.tokenizer import load, tokenizer_hash

MAX_WEIGHT = 1e15
"""The largest weight; the smallest is 1 / MAX_WEIGHT. So sums and quotients of proportions and tokens stay
within the range and the precision of float64."""
SOURCES = Argument(form="PATH[:WEIGHT] ...")
"""The form of a mixture on a command line; see `parse_source`."""


@dataclass(frozen=True, kw_only=True)
class DataSource:
    """A folder made by `brimful prepare`."""

    path: str
    """Where it is."""
    weight: float = 1.0
    """Its proportion of the tokens, in any unit."""
    name: str = ""
    """Its name in metrics; by default the folder's name."""

    def __post_init__(self) -> None:
        if not 1 / MAX_WEIGHT <= self.weight <= MAX_WEIGHT:
            raise BrimfulError(
                f"data: the weight of {self.path} is {self.weight:g}: it must be above 0, from"
                f" {1 / MAX_WEIGHT:g} to {MAX_WEIGHT:g}"
            )
        if self.name != Path(self.name).name or self.name == "..":
            raise BrimfulError(f"data: {self.name!r} cannot name a source: leave out slashes and dots")


def parse_source(text: str) -> DataSource:
    """Parse `PATH` or `PATH:WEIGHT`. Text after the last colon that is not a number belongs to the path.

    Raises:
        BrimfulError: the weight is not a number, and there is a folder PATH, but no folder `PATH:WEIGHT`.
    """
    path, _, weight = text.rpartition(":")
    try:
        if path:
            return DataSource(path=path, weight=float(weight))
    except ValueError as error:
        if Path(path).is_dir() and not Path(text).exists():
            raise BrimfulError(f"data: {weight!r}, the weight of {path}, is not a number") from error
    return DataSource(path=text)


def parse_sources(data: str | DataSource | Sequence[str | DataSource]) -> tuple[DataSource, ...]:
    """Parse sources, and give them absolute paths and names.

    Raises:
        BrimfulError: there is no source, one is not a prepared folder, or two have the same name.
    """
    if isinstance(data, str | DataSource):
        data = [data]
    sources = []
    for source in data:
        if isinstance(source, str):
            source = parse_source(source)
        require_prepared(Path(source.path))  # before it is absolute: the error names it as it was given
        path = Path(os.path.abspath(source.path))  # whose name is never ".."
        sources.append(replace(source, path=str(path), name=source.name or path.name))
    if not sources:
        raise BrimfulError("data names no folder")
    names = [source.name for source in sources]
    for name in names:
        if names.count(name) > 1:
            raise BrimfulError(f"data: two sources are called {name}; give each a name in a --config file")
    return tuple(sources)


# The options of a command that are PATH or PATH:WEIGHT (cli/path_checks.py).
SourcePath = Annotated[str, parse_sources]


def open_sources(sources: Sequence[DataSource], *, verify: bool) -> dict[str, Corpus]:
    """Open the corpora, by name; with `verify`, every byte of them is checked.

    Raises:
        BrimfulError: a folder is not prepared, is damaged, or has another tokenizer than the first; or the
            tokenizer.json of the first is not the one that made its shards.
    """
    corpora = {source.name: Corpus.open(source.path, verify=verify) for source in sources}
    (first, one), *others = corpora.items()
    if tokenizer_hash(load(one.tokenizer_path)) != one.tokenizer_hash:
        raise BrimfulError(
            f"{one.tokenizer_path} is not the tokenizer that made the shards beside it; restore it, or"
            " prepare the corpus again"
        )
    for name, other in others:
        if other.tokenizer_hash != one.tokenizer_hash:
            raise BrimfulError(
                f"data: {name} was made with another tokenizer than {first}; prepare it with"
                f" --tokenizer {one.tokenizer_path}"
            )
    return corpora
