"""The bytes of a file, decompressed. A cut or damaged archive is counted and yields its readable part."""

import bz2
import lzma
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
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
# Compressed bytes that are unpacked at once. Four of zstd can hold a block of 128 KB, so these give 64 MB.
_PIECE_BYTES = 1 << 11


def _zstd_stream() -> Any:
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=ZSTD_LARGEST_WINDOW).decompressobj()


# Decompressors of one member, frame or stream of an archive; they are alike.
_STREAMS: dict[str, Callable[[], Any]] = {
    ".gz": lambda: zlib.decompressobj(wbits=31),
    ".zst": _zstd_stream,
    ".bz2": bz2.BZ2Decompressor,
    ".xz": lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY),
}


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
            chunks = _unpack(chunks, compression, issues)
        yield from chunks


def member_of(path: str) -> str:
    """The name of the one file in a .zip.

    Raises:
        BrimfulError: there are several, or it cannot be read.
        OSError: likewise.
    """
    return _open_zip(path)[1].filename


def _open_zip(path: str) -> tuple[zipfile.ZipFile, zipfile.ZipInfo]:
    """An archive, and the one file in it."""
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise BrimfulError(f"{path} is no zip archive, or a damaged one: fetch it again") from error
    held = [
        info
        for info in archive.infolist()
        if not info.is_dir() and not info.filename.startswith("__MACOSX/") and "/." not in info.filename
    ]
    if len(held) != 1:
        raise BrimfulError(f"{path} holds {len(held):,} files: unpack it, and name them or their folder")
    if held[0].flag_bits & 1:
        raise BrimfulError(f"{path} has a password: unpack it first")
    return archive, held[0]


def _member(path: str, issues: Counter[str]) -> Iterator[bytes]:
    archive, info = _open_zip(path)
    try:
        with archive, archive.open(info) as file:
            while chunk := file.read(CHUNK):
                yield chunk
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError):
        issues["archive damaged, its rest lost"] += 1
    except NotImplementedError as error:
        raise BrimfulError(f"{path} is packed in an unusual way: unpack it first") from error


def _unpack(chunks: Iterator[bytes], compression: str, issues: Counter[str]) -> Iterator[bytes]:
    new_stream = _STREAMS[compression]
    stream = new_stream()
    for piece in _pieces(chunks):
        while piece:
            if stream.eof:
                piece = piece.lstrip(b"\0")  # padding between the members of an archive
                if not piece:
                    break
                stream = new_stream()
            try:
                unpacked = stream.decompress(piece)
            except MemoryError:
                raise
            except Exception:  # each library has an error of its own for damaged bytes
                issues["archive damaged, its rest lost"] += 1
                return
            if unpacked:
                yield unpacked
            piece = stream.unused_data if stream.eof else b""
    if not stream.eof:  # an empty file is a cut archive, too
        issues["archive cut short"] += 1


def _pieces(chunks: Iterator[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        for begin in range(0, len(chunk), _PIECE_BYTES):
            yield chunk[begin : begin + _PIECE_BYTES]


def read_range(path: str, begin: int, end: int | None) -> Iterator[bytes]:
    """The bytes `begin` to `end` of a file that is not compressed."""
    with open(path, "rb") as file:
        file.seek(begin)
        while chunk := file.read(CHUNK if end is None else min(CHUNK, end - begin)):
            yield chunk
            begin += len(chunk)
