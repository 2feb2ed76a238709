"""Atomic files and directories, checksums, and commit records: nothing is ever half-written.

An artefact exists only when its JSON record does. The data files are written first, each under a temporary
name, synced and renamed; the record, which holds their sizes and CRCs, comes last. A kill at any moment
leaves at most files without a record, which the next run overwrites.
"""

import errno
import json
import os
import re
import secrets
import shutil
import socket
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from brimful.base.errors import BrimfulError
from brimful.base.types import Values

AnyPath = Path | str
CHUNK_BYTES = 1 << 22
"""Bytes of a file that are read at once for its CRC."""
TEMPORARY = ".tmp-"
LOCK = ".lock"
"""The file with which a process locks a folder (folder_lock.py). A folder with only this file is empty."""
IN_MEMORY = "in-memory"
"""The folder for data that was given in memory, which is written there before a run begins."""
_OLD = "old-"
_HOST = socket.gethostname().replace("-", "_")
# HOST+RANDOM, and the id of the process.
_PREFIX = rf"{re.escape(TEMPORARY)}([^-+]+)(?:\+[0-9a-f]+)?-(\d+)-({_OLD})?"
_TEMPORARY_NAME = re.compile(rf"{_PREFIX}(.+)", re.DOTALL)
_TEMPORARY_PREFIXES = re.compile(rf"^({_PREFIX})*")
_RUN_FILE = "config.yaml"
"""The file that a run writes first."""
_FINAL_FILES = ("summary.json", "MANIFEST.json", "plan.json")
"""A folder with one of these holds a finished run, or something other than a run."""


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def temporary_path(path: Path) -> Path:
    """Return a new temporary name beside `path`. It holds the id of this process, which `sweep` reads."""
    return path.with_name(f"{TEMPORARY}{_HOST}+{secrets.token_hex(8)}-{os.getpid()}-{path.name}")


def _final_name(name: str) -> str:
    """Return the final name of a temporary file or folder, without its temporary prefixes."""
    return _TEMPORARY_PREFIXES.sub("", name)


def make_write_error(path: Path, error: OSError) -> BrimfulError:
    """Make the error for a failed write: full disk, missing permission, read-only file system."""
    target = Path(*map(_final_name, path.parts))
    remedy = "choose another place"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, None):  # numpy and safetensors give no errno
        remedy = "free space or choose another place"
    return BrimfulError(f"cannot write {target}: {error.strerror or error}; {remedy}")


def _is_about_another(error: OSError, path: Path, temporary: Path) -> bool:
    """Whether the error concerns another file, such as an input, rather than the one being written."""
    if error.filename is None:
        return False
    failed = Path(os.fsdecode(error.filename))
    return failed != path.parent and not failed.is_relative_to(temporary) and not failed.is_relative_to(path)


@contextmanager
def readable(path: AnyPath) -> Iterator[None]:
    """A context that turns an error of reading a file into a message of one line.

    Raises:
        BrimfulError: in place of OSError.
    """
    try:
        yield
    except OSError as error:
        raise BrimfulError(f"cannot read {path}: {error.strerror or error}") from error


def require_utf8(path: AnyPath) -> None:
    """Refuse a name that is not UTF-8 (from a foreign archive, say): pyarrow and safetensors fail on it."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise BrimfulError(f"{path} has a name that is not UTF-8: rename it, or choose another") from error


def require_file_place(path: AnyPath) -> None:
    """Refuse a path that no file can have.

    Raises:
        BrimfulError: `path` is a folder or a device, or a part of it is a file.
    """
    path = Path(path)
    mode = _mode(path)
    if mode is not None and not stat.S_ISREG(mode):
        raise BrimfulError(f"cannot write {path}: it is a folder or a device, not a file; name another place")
    _require_parents(path)


def require_folder_place(
    directory: Path,
    *,
    replaces: tuple[str, Callable[[Path], bool]] | None = None,
    unfinished: str = "",
    remedy: str = "choose another --out",
) -> None:
    """Refuse a folder that cannot be written without loss.

    An absent folder is free, and so is an empty one; files that killed processes left in it do not count.

    Args:
        replaces: a noun ("an earlier export") and a function that recognises such a folder, which may be
            written over.
        unfinished: the advice for an unfinished run, before `remedy`; it ends with a comma and "or".
        remedy: the advice at the end of the error.

    Raises:
        BrimfulError: `directory` or a part of its path is a file, or the folder holds anything else.
    """
    mode = _mode(directory)
    if mode is not None and not stat.S_ISDIR(mode):
        raise BrimfulError(f"cannot write {directory}: it is a file, not a folder; {remedy}")
    _require_parents(directory)
    if mode is None:
        return
    sweep(directory)
    if is_empty(directory) or (replaces and replaces[1](directory)):
        return
    problem = f"{directory} is not empty"
    if replaces:
        problem += f" and is not {replaces[0]}"
    if (directory / _RUN_FILE).exists() and not any((directory / name).exists() for name in _FINAL_FILES):
        remedy = unfinished + remedy
    raise BrimfulError(f"{problem}; {remedy}")


def is_empty(directory: Path) -> bool:
    """Whether a folder holds nothing but a lock, and data that was given in memory."""
    return all(path.name in (LOCK, IN_MEMORY) for path in directory.iterdir())


def _require_parents(path: Path) -> None:
    for above in path.parents:
        mode = _mode(above)
        if mode is None:
            continue
        if not stat.S_ISDIR(mode):
            raise BrimfulError(f"cannot write {path}: {above} is a file; name another place")
        return


def _mode(path: Path) -> int | None:
    """Return the mode of a file or folder; None if it does not exist."""
    # One call decides: between `exists` and `is_dir`, another process may delete it.
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise make_write_error(path, error) from error


@contextmanager
def atomic_file(path: AnyPath) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success sync it and rename it to `path`.

    Raises:
        BrimfulError: the file cannot be written. `path` is then as it was before.
    """
    path = Path(path)
    require_file_place(path)
    temporary = temporary_path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        yield temporary
        # The content must be on the disk before its name is, and the name before the caller goes on.
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)
    except OSError as error:
        if _is_about_another(error, path, temporary):
            raise
        raise make_write_error(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


@contextmanager
def atomic_directory(path: AnyPath) -> Iterator[Path]:
    """Yield a temporary directory beside `path`; on success rename it to `path`, replacing what was there.

    What a killed process left of an earlier attempt is removed first. A `path` that is a link stays one: the
    folder that it leads to is replaced.

    Raises:
        BrimfulError: the directory cannot be written. `path` is then as it was before.
    """
    path = Path(path)
    if path.is_symlink():
        path = Path(os.path.realpath(path))
    temporary = temporary_path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent, path.name)
        temporary.mkdir()
        yield temporary
        for file in temporary.rglob("*"):
            _sync(file)
        _sync(temporary)
        if path.exists():
            # A folder with files cannot be replaced in one step. A kill between the two renames leaves the
            # old folder under a name from which `sweep` moves it back.
            old = temporary_path(path.with_name(_OLD + path.name))
            os.replace(path, old)
            try:
                os.replace(temporary, path)
            except OSError:
                os.replace(old, path)
                raise
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.replace(temporary, path)
        _sync(path.parent)
    except OSError as error:
        if _is_about_another(error, path, temporary):
            raise
        raise make_write_error(path, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def atomic_files(record: Path, paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield a temporary path for each of `paths`; on success rename them all. The caller then calls `commit`.

    An earlier record is removed before the first file is replaced, so that no record describes files of two
    runs.
    """
    with ExitStack() as stack:
        yield [stack.enter_context(atomic_file(path)) for path in paths]
        if record.exists():
            record.unlink()
            _sync(record.parent)


def write_tensors(path: Path, tensors: Values) -> None:
    """Write torch tensors by name as safetensors, in a directory that is still temporary.

    Raises:
        OSError: the file cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    path.touch()  # with the mode of the umask; safetensors makes a file that only its owner can read
    mode = path.stat().st_mode
    try:
        save_file(tensors, path, metadata={"format": "pt"})
        path.chmod(mode)
    except SafetensorError as error:
        raise OSError(str(error)) from error


def write_json(path: AnyPath, value: Any) -> None:
    """Write `value` as UTF-8 JSON, atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(
            json.dumps(value, ensure_ascii=False, indent=1) + "\n", "utf-8", "backslashreplace"
        )


def read_json(path: AnyPath) -> Any:
    """Read a JSON file, which may begin with a byte order mark, as other programs write.

    Raises:
        BrimfulError: the file is absent or not JSON.
    """
    try:
        with readable(path):
            return json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, or nested too deeply
        line = getattr(error, "lineno", 1)
        raise BrimfulError(f"{path} is no JSON (line {line}): it is damaged or not Brimful's") from error


def read_object(path: AnyPath) -> Values:
    """Read a JSON file that holds an object.

    Raises:
        BrimfulError: the file is absent, not JSON, or holds something else.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise BrimfulError(f"{path} is not a JSON object")
    return value


def crc32(path: AnyPath, begin: int = 0, end: int | None = None) -> int:
    """Compute the CRC-32 of a file's bytes, or of its bytes `begin` to `end`."""
    value = 0
    remaining = sys.maxsize if end is None else max(0, end - begin)
    with open(path, "rb") as file:
        file.seek(begin)
        while chunk := file.read(min(remaining, CHUNK_BYTES)):
            value = zlib.crc32(chunk, value)
            remaining -= len(chunk)
    return value


def _own_crc32(value: Values) -> int:
    """Return the CRC-32 of a commit record's content, without its key `crc32`."""
    facts = {key: fact for key, fact in value.items() if key != "crc32"}
    return zlib.crc32(json.dumps(facts, sort_keys=True).encode())


def commit(record: AnyPath, files: Iterable[AnyPath], **facts: Any) -> Values:
    """Write the commit record of `files`, in its folder or below: their sizes and CRCs, and `facts`.

    Returns:
        the record as JSON values.
    """
    record = Path(record)
    described = {}
    for file in files:
        name = os.path.relpath(file, record.parent)
        described[name] = {"bytes": os.path.getsize(file), "crc32": crc32(file)}
    # Through JSON and back, so that the CRC is computed from what a reader will see.
    value = json.loads(json.dumps({**facts, "files": described}))
    value["crc32"] = _own_crc32(value)
    write_json(record, value)
    return value


class _File(TypedDict):
    bytes: int
    crc32: int


class Record(TypedDict):
    """The keys of every commit record: its files by their names in its folder, and the CRC of the record."""

    files: dict[str, _File]
    crc32: int


def require_shape(value: Any, shape: Any, path: AnyPath, remedy: str) -> None:
    """Refuse a value read from `path` whose types differ from what Brimful writes there.

    The shape is a type that `msgspec.convert` knows, such as a TypedDict. Further keys are allowed.
    """
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        why = str(error).replace("`", "")
        raise BrimfulError(f"{path} is damaged or not Brimful's: {why}; {remedy}") from error


def read_record(record: AnyPath, shape: Any = Record, *, remedy: str = "run the command again") -> Values:
    """Read a commit record of this shape (see `require_shape`) without checking its files.

    Raises:
        BrimfulError: the record is absent, damaged, or of another shape; `remedy` ends the message.
    """
    if Path(record).exists():
        remedy = f"remove it and {remedy}"
    try:
        value = read_json(record)
    except BrimfulError as error:
        raise BrimfulError(f"{error}; put the right file back, or {remedy}") from error
    require_shape(value, Record, record, remedy)
    if value["crc32"] != _own_crc32(value):
        raise BrimfulError(f"{record} is damaged (CRC differs); {remedy}")
    require_shape(value, shape, record, remedy)
    return value


def read_commit(
    record: AnyPath, shape: Any = Record, *, verify: bool = False, remedy: str = "run the command again"
) -> Values:
    """Read a commit record as `read_record` does, and check the sizes of its files; with `verify`, also CRCs.

    Raises:
        BrimfulError: the record or a file is absent, or a file differs from its record.
    """
    record = Path(record)
    value = read_record(record, shape, remedy=remedy)
    remedy = f"put the right file back, or remove {record} and {remedy}"
    for name, facts in value["files"].items():
        file = record.parent / name
        if not file.is_file():
            raise BrimfulError(f"{file} is missing; {remedy}")
        size = file.stat().st_size
        if size != facts["bytes"]:
            problem = f"was cut short or replaced: it has {size:,} bytes, not {facts['bytes']:,}"
            raise BrimfulError(f"{file} {problem}; {remedy}")
        with readable(file):
            if verify and crc32(file) != facts["crc32"]:
                raise BrimfulError(f"{file} is damaged (CRC differs); {remedy}")
    return value


def find_commit(
    record: AnyPath,
    shape: Any = Record,
    *,
    verify: bool = False,
    damaged: Callable[[str], None] | None = None,
    **facts: Any,
) -> Values | None:
    """Return the commit record if `read_commit` accepts it and it holds these facts; otherwise None.

    `damaged` is called with the problem if the record exists but it or its files are bad.
    """
    try:
        content = read_commit(record, shape, verify=verify)
    except BrimfulError as error:
        if damaged is not None and Path(record).exists():
            damaged(str(error).partition(";")[0])
        return None
    if any(content.get(name) != value for name, value in facts.items()):
        return None
    return content


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)  # another user's process lives
    return True


def sweep(directory: AnyPath, only: str | None = None) -> None:
    """Remove temporary files of ended processes of this machine, or only those with the final name `only`.

    A directory that a killed process moved aside and did not replace is moved back.
    """
    for path in Path(directory).glob(f"{TEMPORARY}*"):
        parts = _TEMPORARY_NAME.fullmatch(path.name)
        if parts is None or only not in (None, _final_name(path.name)):
            continue
        host, process, moved, name = parts.groups()
        # A process of another machine, which shares the folder, may still write.
        if host != _HOST or _is_alive(int(process)):
            continue
        is_folder = path.is_dir() and not path.is_symlink()
        with suppress(OSError):  # the file may belong to another user
            original = path.with_name(name)
            if moved and is_folder and not name.startswith(TEMPORARY) and not original.exists():
                os.replace(path, original)
            elif is_folder:
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
