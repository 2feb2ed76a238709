"""Compiled loops: kept machine code is never older than what it was made of."""

import errno
import importlib
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import brimful
from brimful.base.compiled import compiled, sources_of

PACKAGE = Path(brimful.__file__).parent
LOOPS = """
from brimful.base.compiled import compiled
from brimful.helpers import LEAST, tripled

@compiled
def loop(x):
    return max(tripled(x), LEAST)
"""
HELPERS = """
from brimful.base.compiled import compiled
from brimful.constants import FACTOR
LEAST = 5

@compiled
def tripled(x):
    return x * FACTOR
"""


@pytest.fixture
def package(tmp_path):
    """A package `brimful`, three of whose modules see each other."""
    package = tmp_path / "here" / "brimful"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    shutil.copytree(PACKAGE / "base", package / "base")
    (package / "loops.py").write_text(LOOPS)
    (package / "helpers.py").write_text(HELPERS)
    (package / "constants.py").write_text("FACTOR = 3\n")
    return package


CALL = """
import sys
from numba.core import event
import brimful.loops as loops
with event.install_recorder("numba:compile") as recorder:
    print(loops.loop(eval(sys.argv[1])))
print(sum(1 for _, e in recorder.buffer if e.is_start and e.data["dispatcher"] is loops.loop))
"""


def start(package: Path, cache: Path, x: object) -> subprocess.Popen:
    """A new interpreter, which prints what `loop(x)` gives and how many of its signatures it compiles."""
    command = [sys.executable, "-W", "error", "-W", "default:compiled loops", "-c", CALL, repr(x)]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=package.parent, env=environment, **pipes)


def call(package: Path, cache: Path, x: object = 7, said: str = "") -> tuple[float, int]:
    out, err = start(package, cache, x).communicate()
    assert said in err if said else not err
    result, count = out.split()
    return float(result), int(count)


@pytest.mark.slow
def test_machine_code_is_kept_until_something_that_it_uses_changes(package, tmp_path):
    cache = tmp_path / "cache"
    assert call(package, cache) == (21, 1)
    assert call(package, cache) == (21, 0)
    assert call(package, cache, 7.5) == (22.5, 1)
    assert call(package, cache, 7.5) == (22.5, 0)
    (package / "constants.py").write_text("FACTOR = 2\n")
    assert call(package, cache) == (14, 1)
    (package / "helpers.py").write_text(HELPERS.replace("LEAST = 5", "LEAST = 50"))
    assert call(package, cache) == (50, 1)
    (package / "unrelated.py").write_text("FACTOR = 9\n")
    assert call(package, cache) == (50, 0)
    (package / "constants.py").write_text("FACTOR = 3\n")
    (package / "helpers.py").write_text(HELPERS)
    assert call(package, cache) == (21, 0)
    for file in cache.rglob("*.nbc"):
        file.write_bytes(file.read_bytes()[:100])  # a power failure
    assert call(package, cache) == (21, 1)


@pytest.mark.slow
def test_without_a_folder_loops_compile_in_memory(package, tmp_path):
    cache = tmp_path / "cache"
    cache.touch()
    for _ in range(2):
        assert call(package, cache, said="BrimfulWarning: compiled loops cannot be kept") == (21, 1)


def test_a_damaged_index_heals(tmp_path, monkeypatch):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    source = tmp_path / "double.py"
    source.write_text("def double(x):\n    return x + x\n")
    scope: dict[str, Any] = {}
    exec(compile(source.read_text(), source, "exec"), scope)
    assert compiled(scope["double"])(21) == 42
    (index,) = tmp_path.rglob("*.nbi")
    whole = index.read_bytes()
    index.write_bytes(whole[:20])
    assert compiled(scope["double"])(21) == 42
    assert index.stat().st_size == len(whole)


def test_without_locks_nothing_is_saved(tmp_path, monkeypatch):
    def without_locks(*_: object, **__: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    def double(x: int) -> int:
        return x + x

    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("fcntl.lockf", without_locks)
    assert compiled(double)(21) == 42
    assert not list(tmp_path.rglob("*.nb?"))


@pytest.mark.slow
def test_processes_may_compile_at_once(package, tmp_path):
    """One process saves at a time: numba's index would mix up signatures that are saved at once."""
    for _ in range(2):
        started = [start(package, tmp_path / "cache", x) for x in (7, 7.5, 7, 7.5)]
        assert [process.communicate()[0].split()[0] for process in started] == ["21", "22.5"] * 2


def modules_with_loops() -> Iterator[str]:
    for path in sorted(PACKAGE.rglob("*.py")):
        if "from brimful.base.compiled import" in path.read_text("utf-8"):
            yield ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


@pytest.mark.parametrize("module", list(modules_with_loops()))
def test_the_sources_of_a_module_are_all_that_its_loops_can_see(module):
    """A name that comes from a package's facade would hide the module that defines it."""
    home = importlib.import_module(module)
    files = sources_of(Path(str(home.__file__)))
    for name, value in vars(home).items():
        defined_in = sys.modules.get(getattr(value, "__module__", None) or "")
        if getattr(value, "__module__", "").startswith("brimful") and defined_in is not None:
            assert Path(str(defined_in.__file__)) in files, f"{module}.{name}"


def test_compiled_loops_can_be_pickled():
    from brimful.base.draws import mix_word

    assert pickle.loads(pickle.dumps(mix_word)) is not None
