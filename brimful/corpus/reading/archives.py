"""The bytes of a file, decompressed. A cut or damaged archive is counted and yields its readable part."""

import zlib
from collections import Counter
from collections.abc import Iterator

from brimful.corpus.reading.inputs import split_suffix

CHUNK = 1 << 18
ZSTD_LARGEST_WINDOW = 1 << 31
# Input to zstd at once. Four bytes can hold a block of 128 KB, so the output is at most 64 MB.
_ZSTD_INPUT = 1 << 11


class _Gzip:
    """A member of a .gz file."""

    damage: type[Exception] = zlib.error

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)

    def decompress(self, chunk: bytes) -> Iterator[bytes]:
        while chunk:
            yield self._stream.decompress(chunk, CHUNK)
            chunk = self._stream.unconsumed_tail

    @property
    def rest(self) -> bytes | None:
        """The bytes after its end; None before the end."""
        return self._stream.unused_data if self._stream.eof else None


class _Zstd:
    """A frame of a .zst file."""

    def __init__(self) -> None:
        import zstandard

        self.damage: type[Exception] = zstandard.ZstdError
        self._stream = zstandard.ZstdDecompressor(max_window_size=ZSTD_LARGEST_WINDOW).decompressobj()
        self._unread = b""

    def decompress(self, chunk: bytes) -> Iterator[bytes]:
        for begin in range(0, len(chunk), _ZSTD_INPUT):
            end = begin + _ZSTD_INPUT
            yield self._stream.decompress(chunk[begin:end])
            if self._stream.eof:
                self._unread = chunk[end:]
                return

    @property
    def rest(self) -> bytes | None:
        """The bytes after its end; None before the end."""
        return self._stream.unused_data + self._unread if self._stream.eof else None


def read_chunks(path: str, issues: Counter[str]) -> Iterator[bytes]:
    """The file's bytes, decompressed. Unlike library readers, this one notices that an archive was cut."""
    compression = split_suffix(path)[1]
    with open(path, "rb") as file:
        chunks = iter(lambda: file.read(CHUNK), b"")
        if compression:
            chunks = _unpack(chunks, _Gzip if compression == ".gz" else _Zstd, issues)
        yield from chunks


def _unpack(
    chunks: Iterator[bytes], new_stream: type[_Gzip] | type[_Zstd], issues: Counter[str]
) -> Iterator[bytes]:
    stream = new_stream()
    between = False  # between two members; an empty file is a cut archive
    for chunk in chunks:
        rest: bytes | None = chunk
        while rest:
            if between:
                rest = rest.lstrip(b"\0")  # padding between the members of an archive
                if not rest:
                    break
                stream, between = new_stream(), False
            try:
                yield from filter(None, stream.decompress(rest))
            except stream.damage:
                issues["archive damaged, its rest lost"] += 1
                return
            rest = stream.rest
            between = rest is not None
    if not between:
        issues["archive cut short"] += 1


def read_range(path: str, begin: int, end: int | None) -> Iterator[bytes]:
    """The bytes `begin` to `end` of a file that is not compressed."""
    with open(path, "rb") as file:
        file.seek(begin)
        while chunk := file.read(CHUNK if end is None else min(CHUNK, end - begin)):
            yield chunk
            begin += len(chunk)
