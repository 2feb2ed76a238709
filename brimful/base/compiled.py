"""Compiled loops: numba, with its machine code kept in the user's cache.

The folder is `brimful/loops` in `$NUMBA_CACHE_DIR`, else in `$XDG_CACHE_HOME` or `~/.cache`. It has a folder
for each module and each state of its source. That state includes every module of Brimful that it imports,
directly or not, so a compiled loop may use constants and compiled loops of other modules: after a change in
one of them, all that use it are compiled again. Anyone may delete the folder at any time. Where it cannot be
written, loops are compiled in memory.
"""

import contextlib
import functools
import hashlib
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import event
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator

from brimful.base.console import say, warn

_SOURCES = Path(__file__).parents[2]
_IMPORT = re.compile(r"^ *(?:from|import) (brimful[\w.]*)(?: import ([\w ,]+|\([^)]*\)))?", re.MULTILINE)
_QUIET_SECONDS = 600  # within one first start, several processes compile: one of them says so


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a loop on its first call, or load its machine code. Other threads run while it runs."""
    return _compile(function, nogil=True)


def compiled_briefly(function: Callable[..., Any]) -> Any:
    """As `compiled`, for calls of microseconds: other threads wait; taking turns would cost more."""
    return _compile(function, nogil=False)


def compiled_floats(function: Callable[..., Any]) -> Any:
    """As `compiled`, with sums in any order, and infinity for a division by 0: so loops are vectorised."""
    return _compile(function, nogil=True, fastmath={"reassoc"}, error_model="numpy")


def compiled_fused(function: Callable[..., Any]) -> Any:
    """As `compiled`, with one rounding for a product and its sum where the CPU has that operation."""
    return _compile(function, nogil=True, fastmath={"contract"}, error_model="numpy")


def _compile(function: Callable[..., Any], **options: Any) -> Any:
    loop = numba.njit(**options)(function)
    try:
        loop._cache = _Cache(function)
    except RuntimeError:  # numba's word for "no folder"; it then compiles in memory
        return loop
    return loop


def cache_folder() -> Path | None:
    """Where machine code is kept, or None where nothing can be written."""
    try:
        base = numba.config.CACHE_DIR or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(base) / "brimful" / "loops"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: the user has no home
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


@functools.cache
def _source(file: Path) -> bytes:
    return file.read_bytes()


@functools.cache
def sources_of(file: Path) -> frozenset[Path]:
    """A source file, and the sources of all Brimful modules that it or they import, also in functions."""
    found, waiting = {file}, [file]
    while waiting:
        for module, names in _IMPORT.findall(_source(waiting.pop()).decode()):
            imported = [module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))]
            for name in imported:
                path = _SOURCES / name.replace(".", "/")
                for source in (path.with_suffix(".py"), path / "__init__.py"):
                    if source not in found and source.is_file():
                        found.add(source)
                        waiting.append(source)
    return frozenset(found)


@functools.cache
def _folder_of(file: Path) -> Path | None:
    """The folder for the loops of a source file in its present state."""
    folder = cache_folder()
    if folder is None or not file.is_file():
        return None
    state = hashlib.sha256(f"{numba.__version__} {sys.version}".encode())
    for source in sorted(sources_of(file)):
        state.update(hashlib.sha256(_source(source)).digest())
    return folder / f"{file.stem}-{state.hexdigest()[:16]}"


class _Locator(_CacheLocator):
    """Tells numba the folder."""

    def __init__(self, folder: Path, line: int) -> None:
        self._folder = folder
        self._line = line

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> "_Locator | None":
        folder = _folder_of(Path(py_file))
        return cls(folder, py_func.__code__.co_firstlineno) if folder else None

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return self._folder.name

    def get_disambiguator(self) -> str:
        return str(self._line)


class _CacheImpl(CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012


class _Files(IndexDataCacheFile):
    """A file for each signature of a loop, named by a hash of it.

    numba numbers these files in an index. Two processes that compile two signatures at once may take the same
    number, and a third would then load code for other types.
    """

    def _name(self, key: object) -> str:
        return str(self._data_name(int(hashlib.sha256(repr(key).encode()).hexdigest()[:15], 16)))

    def save(self, key: object, data: object) -> None:
        self._save_data(self._name(key), data)

    def load(self, key: object) -> object:
        try:
            return self._load_data(self._name(key))
        except Exception:  # missing, or cut short by a power failure: whatever unpickling then raises
            return None


class _Cache(FunctionCache):
    _impl_class = _CacheImpl

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, stamp)

    def save_overload(self, sig: object, data: object) -> None:
        # The disk may be full: the loop works all the same, and is compiled again next time.
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)


class _Notice(event.Listener):
    """Tells a person at a terminal, once, why the first start takes longer."""

    _done = False

    def on_start(self, _: object) -> None:
        if self._done:
            return
        self._done = True
        folder = cache_folder()
        if folder is None and multiprocessing.parent_process() is None:
            warn(
                "compiled loops cannot be kept, as no cache can be written: each process compiles them again,"
                " which takes a while; set NUMBA_CACHE_DIR to a folder that can be written (BRIMFUL_CACHE is"
                " for task files)"
            )
        if folder is None or sys.stderr is None or not sys.stderr.isatty():
            return
        notice = folder / "told"
        with contextlib.suppress(OSError):
            if notice.exists() and time.time() - notice.stat().st_mtime < _QUIET_SECONDS:
                return
            notice.touch()
            say(f"compiling loops, once: about 14 s of CPU time for prepare (they are kept in {folder})")

    def on_end(self, _: object) -> None:
        pass


event.register("numba:compile", _Notice())
