"""Columns of a table that lie in a memory map: a value is decoded when it is read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, overload

import msgspec
import numpy as np

from brimful.data.ragged import Ragged

_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class Column(Sequence[Any]):
    """n values, as UTF-8 text or as JSON.

    Attributes:
        values: uint8 ragged, the bytes of each distinct value.
        codes: int (n,), which of them each row has.
        type: of the values, as `msgspec.convert` takes it; `str` for text.
    """

    values: Ragged
    codes: np.ndarray
    type: Any = str

    @classmethod
    def of(cls, values: Sequence[Any], type: Any = str) -> Self:
        """A column in memory."""
        parts = [_bytes(value) if type is str else msgspec.json.encode(value) for value in values]
        codes = {part: code for code, part in enumerate(dict.fromkeys(parts))}
        lengths = np.array([len(part) for part in codes], dtype=np.int64)
        joined = np.frombuffer(b"".join(codes), dtype=np.uint8)
        return cls(
            Ragged(joined, np.cumsum(lengths) - lengths, lengths),
            np.array([codes[part] for part in parts], dtype=np.int32),
            type,
        )

    def __len__(self) -> int:
        return len(self.codes)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        return self._decoded(self.values[self.codes[index]].tobytes())

    def __iter__(self) -> Iterator[Any]:
        if len(self.values) < len(self) // 2:
            distinct = [self._decoded(part.tobytes()) for part in self.values]
            return (distinct[code] for code in self.codes.tolist())
        return (
            self._decoded(part.tobytes())
            for start in range(0, len(self), _AT_ONCE)
            for part in self.values.take(self.codes[start : start + _AT_ONCE])
        )

    def take(self, rows: np.ndarray) -> Self:
        """The values of the given rows (int64)."""
        return type(self)(self.values, self.codes[rows], self.type)

    def _decoded(self, value: bytes) -> Any:
        if self.type is str:
            return value.decode("utf-8", "surrogatepass")
        return msgspec.json.decode(value, type=self.type)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
