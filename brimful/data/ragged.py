"""Arrays of different lengths that lie one after the other in a few large ones, which may be memory maps."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy import ndarray

ARRAYS_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class Ragged:
    """n arrays as views of larger ones.

    Attributes:
        parts: arrays of elements, (total, ...) each, of one dtype and width.
        part, starts, lengths: int64 (n,); array i is `parts[part[i]][starts[i] : starts[i] + lengths[i]]`.
    """

    parts: Sequence[ndarray]
    part: ndarray
    starts: ndarray
    lengths: ndarray

    @classmethod
    def of(cls, arrays: Iterable[ndarray], dtype: np.dtype | type, width: tuple[int, ...] = ()) -> Self:
        """Copy arrays of the shapes (length, *width); ragged ones are returned as they are."""
        if isinstance(arrays, cls):
            return arrays
        arrays = list(arrays)
        lengths = np.array([len(array) for array in arrays], dtype=np.int64)
        values = np.empty((int(lengths.sum()), *width), dtype=dtype)
        if arrays:
            np.concatenate(arrays, out=values, casting="unsafe")
        return cls.split(values, np.concatenate([[0], np.cumsum(lengths)]))

    @classmethod
    def split(cls, values: ndarray, offsets: ndarray) -> Self:
        """Make the arrays `values[offsets[i] : offsets[i + 1]]`, as views."""
        lengths = np.diff(offsets).astype(np.int64)
        return cls([values], np.zeros_like(lengths), offsets[:-1].astype(np.int64), lengths)

    @classmethod
    def chain(cls, ragged: Sequence[Self]) -> Self:
        """Put the arrays of all one after the other, as views: nothing is copied."""
        parts, columns = list[ndarray](), []
        for each in ragged:
            columns.append((each.part + len(parts), each.starts, each.lengths))
            parts += each.parts
        return cls(parts, *np.concatenate(columns, axis=1))

    @property
    def dtype(self) -> np.dtype:
        """The type of an element."""
        return self.parts[0].dtype

    @property
    def width(self) -> tuple[int, ...]:
        """The shape of one element."""
        return self.parts[0].shape[1:]

    @property
    def values(self) -> ndarray:
        """The elements of all arrays, one after the other: a copy."""
        return np.concatenate([*self, np.empty((0, *self.width), self.dtype)])

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> ndarray:
        start = self.starts[index]
        return self.parts[self.part[index]][start : start + self.lengths[index]]

    def __iter__(self) -> Iterator[ndarray]:
        # Python's integers index faster than numpy's; in slices, so that few of them exist at a time.
        for first in range(0, len(self), ARRAYS_AT_ONCE):
            some = slice(first, first + ARRAYS_AT_ONCE)
            places = self.part[some].tolist(), self.starts[some].tolist(), self.lengths[some].tolist()
            for part, start, length in zip(*places, strict=True):
                yield self.parts[part][start : start + length]

    def map_parts(self, function: Callable[[ndarray], ndarray]) -> Self:
        """Change the elements: the function gets each of `parts`, and keeps its length."""
        return replace(self, parts=[function(part) for part in self.parts])

    def take(self, index: ndarray) -> Self:
        """Take the arrays `index`, as views."""
        return type(self)(self.parts, self.part[index], self.starts[index], self.lengths[index])


def list_ranges(starts: ndarray, counts: ndarray) -> ndarray:
    """List start, start + 1, ... of each range in turn: int64. `counts` (int64) has the lengths."""
    # A range's number at place p is its start plus p, less the place where the range begins.
    numbers = np.repeat(starts - (np.cumsum(counts) - counts), counts)
    return numbers + np.arange(len(numbers))
