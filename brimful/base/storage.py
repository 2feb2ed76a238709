"""Nothing half-written: atomic files and directories, checksums, and commit records.

An artefact exists only when its JSON record does. The data files are written first, each under a
temporary name, synced and renamed; the record, which holds their sizes and CRCs, comes last.
A kill at any moment leaves at most files without a record, which the next run overwrites.
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
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import msgspec

from brimful.base.errors import BrimfulError
from brimful.base.paths import utf8_path

TEMPORARY = ".tmp-"
LOCK = ".lock"
"""The file by which a process keeps a folder to itself (folder_lock.py). An empty folder may hold it."""
_OLD = "old-"
_HOST = socket.gethostname().replace("-", "_")
# HOST+RANDOM, and the number of the process.
_PREFIX = rf"{re.escape(TEMPORARY)}([^-+]+)(?:\+[0-9a-f]+)?-(\d+)-({_OLD})?"
_TEMPORARY_NAME = re.compile(rf"{_PREFIX}(.+)", re.DOTALL)
_TEMPORARY_PREFIXES = re.compile(rf"^({_PREFIX})*")
_SETTLED = 2_000_000_000
"""Nanoseconds after which a file's times tell whether it changes."""
_UNFINISHED = "an unfinished run"
# What the name of a file says about the folder that holds it; the first that is there decides.
_CONTENTS = {
    "summary.json": "a finished run",
    "MANIFEST.json": "a prepared corpus",
    "plan.json": "an unfinished corpus",
    "config.yaml": _UNFINISHED,
    "export.json": "an export",
    "config.json": "a model",
}


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def temporary_path(path: Path) -> Path:
    """A new temporary name beside `path`, from which `sweep` reads this process."""
    return path.with_name(f"{TEMPORARY}{_HOST}+{secrets.token_hex(8)}-{os.getpid()}-{path.name}")


def _is_folder(path: Path) -> bool:
    """Whether it is a folder and no link to one."""
    return path.is_dir() and not path.is_symlink()


def _final_name(name: str) -> str:
    """The name that a temporary file or folder, also one of a temporary folder, will have."""
    return _TEMPORARY_PREFIXES.sub("", name)


def cannot_write(path: Path, error: OSError) -> BrimfulError:
    """The one line for a failed write: full disk, missing permission, read-only file system."""
    shown = Path(*map(_final_name, path.parts))
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, None)  # numpy and safetensors give no errno
    remedy = "free space or choose another place" if full else "choose another place"
    return BrimfulError(f"cannot write {shown}: {error.strerror or error}; {remedy}")


def _is_about_another(error: OSError, path: Path, temporary: Path) -> bool:
    """Whether another file failed while this one was being written, such as an input."""
    if error.filename is None:
        return False
    failed = Path(os.fsdecode(error.filename))
    return failed != path.parent and not failed.is_relative_to(temporary) and not failed.is_relative_to(path)


def require_file_place(path: Path) -> None:
    """Refuse a path that no file can have.

    Raises:
        BrimfulError: `path` is a folder or a device, or a part of it is a file.
    """
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
    """The one answer to "may I write this folder?": yes if nothing would be lost.

    An absent folder is free, and so is an empty one, apart from what killed processes left in it.

    Args:
        replaces: a noun ("an earlier export") and a function that recognises such a folder, which may be
            written over.
        unfinished: what to do about an unfinished run, before `remedy`; ends with a comma and "or".
        remedy: what to do instead.

    Raises:
        BrimfulError: `directory` or a part of its path is a file, or it holds anything else.
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
    holds = next((what for name, what in _CONTENTS.items() if (directory / name).exists()), "")
    state = f"{directory} holds {holds}" if holds else f"{directory} is not empty"
    state += f" and is not {replaces[0]}" if replaces else ""
    raise BrimfulError(f"{state}; {unfinished if holds == _UNFINISHED else ''}{remedy}")


def is_empty(directory: Path) -> bool:
    """Whether a folder holds nothing but a lock."""
    return all(path.name == LOCK for path in directory.iterdir())


def _require_parents(path: Path) -> None:
    for above in path.parents:
        if (mode := _mode(above)) is not None:
            if not stat.S_ISDIR(mode):
                raise BrimfulError(f"cannot write {path}: {above} is a file; name another place")
            return


def _mode(path: Path) -> int | None:
    """The mode of what is at `path`; None if nothing is. Asked once: another process may delete it at any
    moment, so that two questions have answers that contradict each other."""
    try:
        return path.stat().st_mode
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP):  # as Path.exists does
            return None
        raise


@contextmanager
def atomic_file(path: Path | str) -> Iterator[Path]:
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
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)
    except OSError as error:
        if _is_about_another(error, path, temporary):
            raise
        raise cannot_write(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


@contextmanager
def atomic_directory(path: Path | str, kept: Sequence[str] = ()) -> Iterator[Path]:
    """Yield a temporary directory beside `path`; on success rename it to `path`, replacing what was there.

    What a killed process left of an earlier attempt is removed first. A `path` that is a link stays one: the
    folder that it leads to is replaced.

    Args:
        kept: what stays of the folder that is replaced, as names in it; see `seals.own_files`.

    Raises:
        BrimfulError: the directory cannot be written, or has a new file where one stays. `path` is then as it
            was before.
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
        for name in kept:
            _keep(path, temporary, name)
        _sync(temporary)
        if path.exists():
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
        raise cannot_write(path, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _keep(old: Path, new: Path, name: str) -> None:
    """Put a file, link or empty folder of the old folder into the new one; it stays in the old one too."""
    source, target = old / name, new / name
    if os.path.lexists(target):
        raise BrimfulError(
            f"{source} is your own file, and the new folder has one of that name: move it away"
        )
    for above in reversed(target.relative_to(new).parents[:-1]):
        if not (new / above).exists():
            (new / above).mkdir()
            shutil.copystat(old / above, new / above)
    if _is_folder(source):
        shutil.copytree(source, target)
        return
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # a file system without links
        shutil.copy2(source, target, follow_symlinks=False)


@contextmanager
def atomic_files(record: Path, paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield a temporary path for each of `paths`; on success rename them all, `commit` being next.

    An earlier record is removed before the first file is replaced, so none describes files of two runs.

    Raises:
        BrimfulError: a file cannot be written.
    """
    with ExitStack() as stack:
        yield [stack.enter_context(atomic_file(path)) for path in paths]
        if record.exists():
            record.unlink()
            _sync(record.parent)


def write_tensors(path: Path, tensors: dict[str, Any]) -> None:
    """Write torch tensors by name as safetensors; `path` lies in a directory that is being made.

    Raises:
        OSError: the file cannot be written (safetensors has an exception of its own for that).
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    path.touch()
    mode = path.stat().st_mode  # as the umask has it; safetensors makes files for their owner alone
    try:
        with utf8_path(path) as place:
            save_file(tensors, place, metadata={"format": "pt"})
        path.chmod(mode)
    except SafetensorError as error:
        raise OSError(str(error)) from error


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` as UTF-8 JSON, atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(
            json.dumps(value, ensure_ascii=False, indent=1) + "\n", "utf-8", "backslashreplace"
        )


def read_json(path: Path | str, *, marked: bool = False) -> Any:
    """Read a JSON file.

    Args:
        marked: whether other programs wrote it, which may put a byte order mark first.

    Raises:
        BrimfulError: it is absent or not JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8-sig" if marked else "utf-8"))
    except OSError as error:
        raise BrimfulError(f"cannot read {path}: {error.strerror}") from error
    except RecursionError as error:
        raise BrimfulError(f"{path} is nested too deeply to be Brimful's") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, character {error.colno}"
        raise BrimfulError(f"{path} is not valid JSON at {where}; it is damaged or not Brimful's") from error
    except ValueError as error:  # not UTF-8, or a number of thousands of digits
        raise BrimfulError(f"{path} is not valid JSON in UTF-8; it is damaged or not Brimful's") from error


def read_object(path: Path | str, *, marked: bool = False) -> dict[str, Any]:
    """Read a JSON file that holds an object. Arguments as those of `read_json`.

    Raises:
        BrimfulError: it is absent, not JSON, or holds something else.
    """
    value = read_json(path, marked=marked)
    if not isinstance(value, dict):
        raise BrimfulError(f"{path} is not a JSON object")
    return value


def crc32(path: Path | str, begin: int = 0, end: int | None = None) -> int:
    """CRC-32 of a file's bytes, or of its bytes `begin` to `end`."""
    value = 0
    left = sys.maxsize if end is None else end - begin
    with open(path, "rb") as file:
        file.seek(begin)
        while left > 0 and (chunk := file.read(min(left, 1 << 22))):
            value = zlib.crc32(chunk, value)
            left -= len(chunk)
    return value


class _State(NamedTuple):
    """What changes when a file is written to; times in nanoseconds."""

    device: int
    number: int
    bytes: int
    modified: int
    changed: int


_seen_crc32: dict[_State, int] = {}


def _crc32_once(path: Path) -> int:
    """CRC-32 of a file, which is read once in this process unless it changes."""
    found = path.stat()
    state = _State(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    if (known := _seen_crc32.get(state)) is not None:
        return known
    value = crc32(path)
    # A clock may tick seldom: what was written just now may be written again at the same time.
    if time.time_ns() - max(state.modified, state.changed) > _SETTLED:
        _seen_crc32[state] = value
    return value


def _own_crc32(value: dict[str, Any]) -> int:
    """CRC-32 of the content of a commit record, without this number."""
    facts = {key: fact for key, fact in value.items() if key != "crc32"}
    return zlib.crc32(json.dumps(facts, sort_keys=True).encode())


def commit(record: Path | str, files: Iterable[Path | str], **facts: Any) -> dict[str, Any]:
    """Write the commit record of `files`, in its folder or below: their sizes and CRCs, and `facts`.

    Returns:
        the record as JSON values.
    """
    record = Path(record)
    described = {
        os.path.relpath(file, record.parent): {"bytes": os.path.getsize(file), "crc32": crc32(file)}
        for file in files
    }
    value = json.loads(json.dumps({**facts, "files": described}))
    value["crc32"] = _own_crc32(value)
    write_json(record, value)
    return value


class _File(TypedDict):
    bytes: int
    crc32: int


class Record(TypedDict):
    """What every commit record holds: its files by their names in its folder, and a CRC of all the rest."""

    files: dict[str, _File]
    crc32: int


def require_shape(value: Any, shape: Any, path: Path | str, remedy: str) -> None:
    """Refuse a value read from `path` that has other types than Brimful writes there.

    Args:
        shape: a type that `msgspec.convert` knows, such as a TypedDict. Further keys are allowed.

    Raises:
        BrimfulError: it has.
    """
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$")
        lacking = re.search(r"missing required field `(.*)`", what)
        named = place.strip("`.") + (f".{lacking[1]}" if lacking and place else "")
        named = named or (lacking[1] if lacking else "its content")
        how = "is missing" if lacking else "is not of the type that Brimful writes"
        raise BrimfulError(f"{path} is damaged or not Brimful's: {named} {how}; {remedy}") from error


def read_record(
    record: Path | str, shape: Any = Record, *, remedy: str = "run the command again"
) -> dict[str, Any]:
    """Read a commit record, whatever became of its files.

    Args:
        shape: what it holds beside `files`; see `require_shape`.
        remedy: what the user should do after removing the record, for the error message.

    Raises:
        BrimfulError: it is absent, damaged, or not a commit record of this shape.
    """
    record = Path(record)
    try:
        value = read_json(record)
    except BrimfulError as error:
        remedy = f"remove it and {remedy}" if record.exists() else remedy
        raise BrimfulError(f"{error}; put the right file back, or {remedy}") from error
    if not isinstance(value, dict) or not isinstance(value.get("files"), dict):
        raise BrimfulError(f"{record} is not a commit record; remove it and {remedy}")
    if value.get("crc32") != _own_crc32(value):
        raise BrimfulError(f"{record} is damaged (CRC differs); remove it and {remedy}")
    for each in {Record, shape}:
        require_shape(value, each, record, f"remove it and {remedy}")
    return value


def read_commit(
    record: Path | str, shape: Any = Record, *, verify: bool = False, remedy: str = "run the command again"
) -> dict[str, Any]:
    """Read a commit record and check the sizes of its files (with `verify`, also their CRCs).

    Args:
        shape, remedy: as in `read_record`.

    Raises:
        BrimfulError: the record or a file is absent, or a file differs from its record.
    """
    record = Path(record)
    value = read_record(record, shape, remedy=remedy)
    for name, facts in value["files"].items():
        file = record.parent / name
        if not file.is_file():
            raise BrimfulError(f"{file} is missing; put it back, or remove {record} and {remedy}")
        if file.stat().st_size != facts["bytes"]:
            raise BrimfulError(
                f"{file} was cut short or replaced: it has {file.stat().st_size:,} bytes, not"
                f" {facts['bytes']:,}; put the right file back, or remove {record} and {remedy}"
            )
        if verify and _read(file) != facts["crc32"]:
            raise BrimfulError(
                f"{file} is damaged (CRC differs); put the right file back, or remove {record} and {remedy}"
            )
    return value


def _read(file: Path) -> int:
    try:
        return _crc32_once(file)
    except OSError as error:
        raise BrimfulError(f"cannot read {file}: {error.strerror}") from error


def find_commit(
    record: Path | str,
    shape: Any = Record,
    *,
    verify: bool = False,
    damaged: Callable[[str], None] | None = None,
    **facts: Any,
) -> dict[str, Any] | None:
    """The commit record if `read_commit` accepts it and it holds these facts; otherwise None.

    Args:
        damaged: called with what is wrong with a record that is there, or with its files.
    """
    try:
        known = read_commit(record, shape, verify=verify)
    except BrimfulError as error:
        if damaged is not None and Path(record).exists():
            damaged(str(error).partition(";")[0])
        return None
    return known if all(known.get(name) == value for name, value in facts.items()) else None


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's process
        return True
    return True


def sweep(directory: Path | str, only: str | None = None) -> None:
    """Remove the temporary files of processes of this machine that have ended.

    A directory that a killed process moved aside and did not replace is moved back.

    Args:
        only: the name of the file or folder whose temporary ones are meant; by default all.
    """
    for path in Path(directory).glob(f"{TEMPORARY}*"):
        parts = _TEMPORARY_NAME.fullmatch(path.name)
        if parts is None or only not in (None, _final_name(path.name)):
            continue
        host, process, moved, name = parts.groups()
        if host != _HOST or _is_alive(int(process)):
            continue
        with suppress(OSError):  # of another user
            original = path.with_name(name)
            if moved and _is_folder(path) and not name.startswith(TEMPORARY) and not original.exists():
                os.replace(path, original)
            elif _is_folder(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
