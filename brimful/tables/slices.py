"""A file of any size in slices: a reader of tables is called once a slice, and goes on where it stopped."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from brimful.tables.table import Table, Take

TEXTS = 16_384
CHARACTERS = 1 << 20
"""A slice ends at this many texts or characters: some 60 batches of inference."""


class Slices:
    """Deals out the rows of one file. A row is a text, or a tuple or dictionary with texts in it.

    Args:
        texts, characters: a slice ends when it has this many of either.
    """

    def __init__(self, texts: int = TEXTS, characters: int = CHARACTERS) -> None:
        self.texts = texts
        self.characters = characters
        self._rows: Iterator[Any] | None = None
        self._following: list[Any] = []

    @property
    def left(self) -> bool:
        """Whether there are more rows than were taken."""
        return bool(self._following)

    def take(self, rows: Iterator[Any]) -> Iterator[Any]:
        """The rows of the next slice: of the iterator that came first, wherever later ones would begin."""
        self._rows = rows if self._rows is None else self._rows
        texts = characters = 0
        following, self._following = self._following, []
        for row in chain(following, self._rows):
            if texts >= self.texts or characters >= self.characters:
                self._following = [row]
                return
            texts, characters = texts + 1, characters + _characters(row)
            yield row


def _characters(row: Any) -> int:
    if isinstance(row, str):
        return len(row)
    values = row.values() if isinstance(row, dict) else row if isinstance(row, tuple) else ()
    return sum(_characters(value) for value in values)


def read_files(read: Callable[[Path, Take], Table], files: Iterable[Path]) -> Iterator[Table]:
    """The tables that the slices of several files are, one file after the other.

    Raises:
        BrimfulError: as the reader.
    """
    for file in files:
        yield from read_slices(partial(read, file))


def read_slices(read: Callable[[Take], Table]) -> Iterator[Table]:
    """The tables that a file's slices are.

    Args:
        read: a reader, such as `lambda take: read_file(task, path, labelled=False, take=take)`.

    Raises:
        BrimfulError: as the reader.
    """
    slices = Slices()
    yield read(slices.take)
    while slices.left:
        yield read(slices.take)
