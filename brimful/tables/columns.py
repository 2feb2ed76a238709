"""Columns of a table that lie in an Arrow file: a value is decoded when it is read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, overload

import msgspec
import numpy as np

if TYPE_CHECKING:
    import pyarrow

_VALUES_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class Column(Sequence[Any]):
    """n values, as text or as JSON.

    Attributes:
        values: large_string, the text or the JSON of each value.
        type: of the values, as `msgspec.convert` takes it; `str` for text.
        rows: int64 (n,), which of `values` these are; None: all of them, in order.
    """

    values: "pyarrow.ChunkedArray"
    type: Any = str
    rows: np.ndarray | None = None

    @classmethod
    def of(cls, values: Sequence[Any], type: Any = str) -> Self:
        """A column in memory.

        Raises:
            TypeError, ValueError: a value cannot be written as JSON.
        """
        import pyarrow

        texts = list(values) if type is str else [msgspec.json.encode(value).decode() for value in values]
        return cls(pyarrow.chunked_array([pyarrow.array(texts, pyarrow.large_string())]), type)

    def __len__(self) -> int:
        return len(self.values) if self.rows is None else len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        row = range(len(self))[index] if self.rows is None else self.rows[index]
        return self._decoded(self.values[int(row)].as_py())

    def __iter__(self) -> Iterator[Any]:
        if self.rows is not None:
            for row in self.rows:
                yield self._decoded(self.values[int(row)].as_py())
            return
        for start in range(0, len(self), _VALUES_AT_ONCE):
            yield from map(self._decoded, self.values.slice(start, _VALUES_AT_ONCE).to_pylist())

    def take(self, rows: np.ndarray) -> Self:
        """The values of the given rows (int64)."""
        return type(self)(self.values, self.type, rows if self.rows is None else self.rows[rows])

    def _decoded(self, text: str) -> Any:
        return text if self.type is str else msgspec.json.decode(text, type=self.type)
