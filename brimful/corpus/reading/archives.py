"""The bytes of a file, decompressed. A cut or damaged archive is counted and yields its readable part."""

import bz2
import lzma
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

from brimful.base.errors import BrimfulError
from brimful.corpus.reading.inputs import split_suffix

CHUNK = 1 << 18
# A file whose name says nothing of them may still begin with these.
_MAGIC = {b"\x1f\x8b\x08": ".gz", b"\x28\xb5\x2f\xfd": ".zst", b"BZh": ".bz2", b"\xfd7zXZ\0": ".xz"}
# xz needs as much memory as its dictionary; its strongest preset takes 65 MB.
_XZ_MEMORY = 1 << 28
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


class _Held:
    """A stream of bz2 or xz, whose decompressor holds what it was given."""

    _stream: Any

    def decompress(self, chunk: bytes) -> Iterator[bytes]:
        yield self._stream.decompress(chunk, CHUNK)
        while not (self._stream.eof or self._stream.needs_input):
            yield self._stream.decompress(b"", CHUNK)

    @property
    def rest(self) -> bytes | None:
        """The bytes after its end; None before the end."""
        return self._stream.unused_data if self._stream.eof else None


class _Bz2(_Held):
    """A stream of a .bz2 file."""

    damage: type[Exception] = OSError

    def __init__(self) -> None:
        self._stream = bz2.BZ2Decompressor()


class _Xz(_Held):
    """A stream of an .xz file."""

    damage: type[Exception] = lzma.LZMAError

    def __init__(self) -> None:
        self._stream = lzma.LZMADecompressor(memlimit=_XZ_MEMORY)


_Stream = _Gzip | _Zstd | _Bz2 | _Xz
_STREAMS: dict[str, type[_Stream]] = {".gz": _Gzip, ".zst": _Zstd, ".bz2": _Bz2, ".xz": _Xz}


def compression_of(path: str) -> str:
    """The suffix of the file's compression, by its first bytes or else its name; empty if it has none.

    Raises:
        OSError: the file cannot be read.
    """
    named = split_suffix(path)[1]
    with open(path, "rb") as file:
        return _compression(named, file.read(8))


def _compression(named: str, head: bytes) -> str:
    found = [suffix for magic, suffix in _MAGIC.items() if head.startswith(magic)]
    return found[0] if found and named != ".zip" else named


def read_chunks(path: str, issues: Counter[str]) -> Iterator[bytes]:
    """The file's bytes, decompressed. Unlike library readers, this one notices that an archive was cut.

    Raises:
        BrimfulError: a .zip holds several files, or what cannot be unpacked.
        OSError: the file cannot be read.
    """
    named = split_suffix(path)[1]
    if named == ".zip":
        yield from _member(path, issues)
        return
    with open(path, "rb") as file:
        head = file.read(CHUNK)
        chunks = chain([head], iter(lambda: file.read(CHUNK), b"")) if head else iter(())
        if compression := _compression(named, head[:8]):
            chunks = _unpack(chunks, _STREAMS[compression], issues)
        yield from chunks


def member_of(path: str) -> str:
    """The name of the one file in a .zip.

    Raises:
        BrimfulError: there are several, or it cannot be read.
        OSError: likewise.
    """
    with _archive(path) as archive:
        return _only(archive, path).filename


def _archive(path: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise BrimfulError(f"{path} is no zip archive, or a damaged one: fetch it again") from error


def _only(archive: zipfile.ZipFile, path: str) -> zipfile.ZipInfo:
    held = [
        info
        for info in archive.infolist()
        if not info.is_dir() and not info.filename.startswith("__MACOSX/") and "/." not in info.filename
    ]
    if len(held) != 1:
        raise BrimfulError(f"{path} holds {len(held):,} files: unpack it, and name them or their folder")
    if held[0].flag_bits & 1:
        raise BrimfulError(f"{path} has a password: unpack it first")
    return held[0]


def _member(path: str, issues: Counter[str]) -> Iterator[bytes]:
    with _archive(path) as archive:
        info = _only(archive, path)
        try:
            with archive.open(info) as file:
                while chunk := file.read(CHUNK):
                    yield chunk
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError):
            issues["archive damaged, its rest lost"] += 1
        except NotImplementedError as error:
            raise BrimfulError(f"{path} is packed in an unusual way: unpack it first") from error


def _unpack(chunks: Iterator[bytes], new_stream: type[_Stream], issues: Counter[str]) -> Iterator[bytes]:
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
