"""Arrays of different lengths that lie one after the other in a single array, which may be a memory map."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self

import numpy as np

_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class Ragged:
    """n arrays as views of one.

    Attributes:
        values: (total, ...).
        starts, lengths: int64 (n,); array i is `values[starts[i] : starts[i] + lengths[i]]`.
    """

    values: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, arrays: Iterable[np.ndarray], dtype: np.dtype | type, width: tuple[int, ...] = ()) -> Self:
        """Copies of arrays of the shapes (length, *width)."""
        arrays = list(arrays)
        lengths = np.array([len(array) for array in arrays], dtype=np.int64)
        values = np.empty((int(lengths.sum()), *width), dtype=dtype)
        if arrays:
            np.concatenate(arrays, out=values, casting="unsafe")
        return cls(values, np.cumsum(lengths) - lengths, lengths)

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """The arrays of all parts, in order; their values are copied."""
        return cls.of((array for part in parts for array in part), parts[0].values.dtype, parts[0].width)

    @property
    def width(self) -> tuple[int, ...]:
        """The shape of one element."""
        return self.values.shape[1:]

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> np.ndarray:
        start = self.starts[index]
        return self.values[start : start + self.lengths[index]]

    def __iter__(self) -> Iterator[np.ndarray]:
        for first in range(0, len(self), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            for start, length in zip(self.starts[part].tolist(), self.lengths[part].tolist(), strict=True):
                yield self.values[start : start + length]

    def any(self) -> bool:
        """Whether an element of an array is not zero. `values` may have more, which are in no array."""
        return bool(self.values.any()) and any(array.any() for array in self)

    def take(self, index: np.ndarray) -> Self:
        """The arrays `index`, as views."""
        return type(self)(self.values, self.starts[index], self.lengths[index])


class Chain(Sequence[np.ndarray]):
    """The arrays of several `Ragged`, in order, as views: nothing is copied."""

    def __init__(self, parts: Sequence[Ragged]) -> None:
        self.parts = list(parts)
        self.lengths = np.concatenate([part.lengths for part in parts])
        self._ends = np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: Any) -> Any:
        part = int(np.searchsorted(self._ends, index, "right"))
        return self.parts[part][index - (self._ends[part - 1] if part else 0)]

    def __iter__(self) -> Iterator[np.ndarray]:
        return chain.from_iterable(self.parts)

    def any(self) -> bool:
        """Whether an element of an array is not zero."""
        return any(part.any() for part in self.parts)


def ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """start, start + 1, ... of each range, one after the other: int64. `counts` (int64) has their lengths."""
    numbers = np.repeat(starts - (np.cumsum(counts) - counts), counts)
    return numbers + np.arange(len(numbers))
