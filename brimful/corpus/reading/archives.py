"""The bytes of a file, decompressed. A cut or damaged archive is counted and yields its readable part."""

import bz2
import lzma
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from brimful.base.errors import BrimfulError
from brimful.corpus.reading.inputs import split_suffix

CHUNK = 1 << 18
# An archive begins with these bytes, whatever its name says.
_MAGIC_BYTES = {b"\x1f\x8b\x08": ".gz", b"\x28\xb5\x2f\xfd": ".zst", b"BZh": ".bz2", b"\xfd7zXZ\0": ".xz"}
# Unpacking xz takes as much memory as the dictionary of the archive: 65 MB with the strongest preset.
_XZ_MEMORY_BYTES = 1 << 28
_ZSTD_LARGEST_WINDOW = 1 << 31
# Compressed bytes that are unpacked at once. Four bytes of zstd can hold a block of 128 KB, so 2 KB give
# at most 64 MB.
_PIECE_BYTES = 1 << 11


def compression_of(path: str) -> str:
    """Return the suffix of a file's compression, by its first bytes or else by its name; empty without one.

    Raises:
        OSError: the file cannot be read.
    """
    suffix = split_suffix(path)[1]
    with open(path, "rb") as file:
        head = file.read(8)
    if suffix != ".zip":
        for magic, compression in _MAGIC_BYTES.items():
            if head.startswith(magic):
                return compression
    return suffix


def read_chunks(path: str, issues: Counter[str]) -> Iterator[bytes]:
    """Return the file's bytes, decompressed. Unlike the readers of libraries, this one notices a cut archive.

    Raises:
        BrimfulError: a .zip holds several files, or cannot be unpacked.
        OSError: the file cannot be read.
    """
    if split_suffix(path)[1] == ".zip":
        return _read_member(path, issues)
    compression = compression_of(path)
    if compression:
        return _unpack(read_range(path, 0, None, _PIECE_BYTES), compression, issues)
    return read_range(path, 0, None)


def member_of(path: str) -> str:
    """Return the name of the one file in a .zip.

    Raises:
        BrimfulError: the archive holds several files, or its file cannot be read.
        OSError: the archive cannot be read.
    """
    return _open_zip(path)[1].filename


def _open_zip(path: str) -> tuple[zipfile.ZipFile, zipfile.ZipInfo]:
    """Return an archive, and the one file in it."""
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise BrimfulError(f"{path} is not a zip archive, or is damaged: fetch it again") from error
    members = []
    for member in archive.infolist():
        is_hidden = member.filename.startswith("__MACOSX/") or "/." in member.filename
        if not member.is_dir() and not is_hidden:
            members.append(member)
    if len(members) != 1:
        raise BrimfulError(f"{path} holds {len(members):,} files: unpack it, and name them or their folder")
    if members[0].flag_bits & 1:
        raise BrimfulError(f"{path} has a password: unpack it first")
    return archive, members[0]


def _read_member(path: str, issues: Counter[str]) -> Iterator[bytes]:
    archive, member = _open_zip(path)
    try:
        with archive, archive.open(member) as file:
            while chunk := file.read(CHUNK):
                yield chunk
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError):
        issues["archive damaged, its rest lost"] += 1
    except NotImplementedError as error:
        raise BrimfulError(f"{path} is packed in an unusual way: unpack it first") from error


def _new_stream(compression: str) -> Any:
    """Return a decompressor of one member, frame or stream of an archive. All four have the same methods."""
    if compression == ".gz":
        return zlib.decompressobj(wbits=31)
    if compression == ".bz2":
        return bz2.BZ2Decompressor()
    if compression == ".xz":
        return lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES)
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=_ZSTD_LARGEST_WINDOW).decompressobj()


def _unpack(pieces: Iterable[bytes], compression: str, issues: Counter[str]) -> Iterator[bytes]:
    stream = _new_stream(compression)
    for piece in pieces:
        while piece:
            if stream.eof:
                piece = piece.lstrip(b"\0")  # padding between the members of an archive
                if not piece:
                    break
                stream = _new_stream(compression)
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


def read_range(path: str, begin: int, end: int | None, size: int = CHUNK) -> Iterator[bytes]:
    """Yield the bytes `begin` to `end` of a file as they are stored, `size` bytes at a time."""
    with open(path, "rb", buffering=CHUNK) as file:
        file.seek(begin)
        while chunk := file.read(size if end is None else min(size, end - begin)):
            yield chunk
            begin += len(chunk)
