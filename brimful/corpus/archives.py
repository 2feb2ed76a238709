"""The bytes of a file, decompressed; a cut or damaged archive yields what is readable, and is counted."""

import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from brimful.corpus.inputs import split_suffix

CHUNK = 1 << 16
ZSTD_LARGEST_WINDOW = 1 << 31


def _codec(compression: str) -> tuple[Callable[[], Any], type[Exception]]:
    """What makes a decompressor, and what that raises for damaged data."""
    if compression == ".gz":
        return lambda: zlib.decompressobj(wbits=31), zlib.error
    import zstandard

    reader = zstandard.ZstdDecompressor(max_window_size=ZSTD_LARGEST_WINDOW)
    return reader.decompressobj, zstandard.ZstdError


def read_chunks(path: str, issues: Counter[str]) -> Iterator[bytes]:
    """The file's bytes, decompressed. Library readers may end silently in a cut archive: this one tells."""
    compression = split_suffix(path)[1]
    with open(path, "rb") as file:
        if not compression:
            while chunk := file.read(CHUNK):
                yield chunk
            return
        new_stream, damage = _codec(compression)
        stream, midway = new_stream(), False
        while chunk := file.read(CHUNK):
            while chunk:
                if not midway:
                    chunk = chunk.lstrip(b"\0")  # padding between the members of an archive
                    if not chunk:
                        break
                    stream, midway = new_stream(), True
                try:
                    data = stream.decompress(chunk)
                except damage:
                    issues["archive damaged, its rest lost"] += 1
                    return
                if data:
                    yield data
                midway = not stream.eof
                chunk = stream.unused_data if stream.eof else b""
        if midway:
            issues["archive cut short"] += 1
