"""Compiled loops: numba, with its machine code kept in the user's cache.

The folder is `brimful/loops` in `$NUMBA_CACHE_DIR`, else in `$XDG_CACHE_HOME` or `~/.cache`. It has a folder
for each module and each state of its source. That state includes every module of Brimful that it imports,
directly or not, so a compiled loop may use constants and compiled loops of other modules: after a change in
one of them, all that use it are compiled again. (numba itself looks only at a loop's own file.) Anyone may
delete the folder at any time. Where it cannot be written, loops are compiled in memory.
"""

import contextlib
import fcntl
import functools
import hashlib
import multiprocessing
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import event

from brimful.base.console import say, warn

Function = Callable[..., Any]
_SOURCES = Path(__file__).parents[2]
_IMPORT = re.compile(r"^ *(?:from|import) (brimful[\w.]*)(?: import ([\w ,]+|\([^)]*\)))?", re.MULTILINE)


def compiled(function: Function) -> Any:
    """Compile a loop on its first call, or load its machine code. Other threads run while it runs."""
    return _compile(function, nogil=True)


def compiled_briefly(function: Function) -> Any:
    """Compile for calls of microseconds: other threads wait, since to change threads would take longer."""
    return _compile(function, nogil=False)


def compiled_floats(function: Function) -> Any:
    """Compile as `compiled`, with sums in any order and infinity for x / 0, so that loops are vectorised."""
    return _compile(function, nogil=True, fastmath={"reassoc"}, error_model="numpy")


def compiled_fused(function: Function) -> Any:
    """Compile as `compiled`, with one rounding for a product and its sum if the CPU has this operation."""
    return _compile(function, nogil=True, fastmath={"contract"}, error_model="numpy")


def _compile(function: Function, **options: Any) -> Any:
    loop = numba.njit(**options)(function)
    folder = _folder_of(Path(function.__code__.co_filename))
    if folder is None:
        return loop
    users, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(folder)
    try:
        loop.enable_caching()
    except RuntimeError:  # numba finds no folder that it can write, and compiles in memory
        return loop
    finally:
        numba.config.CACHE_DIR = users
    loop._cache.load_overload = functools.partial(_load, loop._cache.load_overload)
    loop._cache.save_overload = functools.partial(_save, loop._cache, loop._cache.save_overload, folder)
    return loop


def _load(load: Function, *values: Any) -> Any:
    try:
        return load(*values)
    except Exception:  # unpickling a file that a power failure cut short may raise anything
        return None


def _save(cache: Any, save: Callable[..., None], folder: Path, *values: Any) -> None:
    # numba numbers a loop's signatures in an index: two processes that save at once would take the same
    # number, and a third would load code for other types. So without locks of files nothing is saved.
    with contextlib.suppress(Exception), open(folder / "lock", "w") as lock:  # such as a full disk
        fcntl.lockf(lock, fcntl.LOCK_EX)
        try:
            save(*values)
        except OSError:
            raise
        except Exception:  # the index is damaged, and its entries cannot be loaded any more
            Path(cache._cache_file._index_path).unlink()
            save(*values)


def cache_folder() -> Path | None:
    """Return the folder of the machine code; None where nothing can be written."""
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
    """Return a source file and the sources of all Brimful modules that it imports, directly or not."""
    sources, waiting = {file}, [file]
    while waiting:
        for module, names in _IMPORT.findall(_source(waiting.pop()).decode()):
            # An imported name may be a module or an object in one.
            for name in [module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))]:
                path = _SOURCES / name.replace(".", "/")
                for source in (path.with_suffix(".py"), path / "__init__.py"):
                    if source not in sources and source.is_file():
                        sources.add(source)
                        waiting.append(source)
    return frozenset(sources)


@functools.cache
def _folder_of(file: Path) -> Path | None:
    folder = cache_folder()
    if folder is None or not file.is_file():
        return None
    state = hashlib.sha256(f"{numba.__version__} {sys.version}".encode())
    for source in sorted(sources_of(file)):
        state.update(hashlib.sha256(_source(source)).digest())
    folder = folder / f"{file.stem}-{state.hexdigest()[:16]}"
    try:
        folder.mkdir(exist_ok=True)
    except OSError:  # a full disk
        return None
    return folder


class _Notice(event.Listener):
    """Tells a person at a terminal once why the first start takes longer."""

    _done = False

    def on_start(self, _: object) -> None:
        if self._done or multiprocessing.parent_process() is not None:
            return
        self._done = True
        folder = cache_folder()
        if folder is None:
            warn(
                "compiled loops cannot be kept, as no cache can be written: each process compiles them again,"
                " which takes a while; set NUMBA_CACHE_DIR to a folder that can be written (BRIMFUL_CACHE is"
                " for task files)"
            )
        elif sys.stderr is not None and sys.stderr.isatty():
            say(f"compiling loops, once: about 14 s of CPU time for prepare (they are kept in {folder})")

    def on_end(self, _: object) -> None:
        pass


event.register("numba:compile", _Notice())
