"""What not every system has: each part switched off; a corpus, a model and its vectors without any part."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from brimful.base import system
from brimful.base.folder_lock import FolderLock
from brimful.base.resources import available_memory

ROOT = Path(__file__).parents[2]

PLAIN = """
import builtins, ctypes, faulthandler, io, mmap, os, signal, sys

sys.modules |= {"fcntl": None, "resource": None}
parts = {
    os: ["sched_getaffinity", "posix_fadvise"],
    mmap: [name for name in dir(mmap) if name.startswith("MADV_")],
    signal: ["SIGUSR1", "setitimer", "getitimer"],
    faulthandler: ["register"],
}
for module, names in parts.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)

def hidden(path):
    return str(path).startswith(("/proc", "/sys", "/dev/fd"))

def without(function):
    def call(path, *values, **named):
        if hidden(path):
            raise FileNotFoundError(2, "hidden", path)
        return function(path, *values, **named)
    return call

builtins.open = io.open = without(io.open)
os.listdir = without(os.listdir)
found = ctypes.CDLL.__getattr__

def function_of(library, name):
    if name in ("mallopt", "GOMP_parallel"):
        raise AttributeError(name)
    return found(library, name)

ctypes.CDLL.__getattr__ = function_of
"""


def test_what_not_every_system_has_stands_in_one_module() -> None:
    words = re.compile(r"import (fcntl|resource)$|sched_getaffinity|posix_fadvise|CDLL\(|\"/?proc/", re.M)
    for path in (ROOT / "brimful").rglob("*.py"):
        lines = [line for line in path.read_text().splitlines() if "kernel_file(" not in line]
        assert path.name == "system.py" or not words.search("\n".join(lines)), path


def test_each_part_has_a_plain_form(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(system, "fcntl", None)
    monkeypatch.setattr(system, "resource", None)
    for module, name in (
        (os, "sched_getaffinity"),
        (os, "posix_fadvise"),
        (system.mmap, "MADV_DONTNEED"),
        (system.signal, "SIGUSR1"),
        (system.faulthandler, "register"),
    ):
        monkeypatch.delattr(module, name, raising=False)
    with pytest.raises(OSError, match="no locks of files"):
        system.lock_file(0)
    assert system.peak_memory("self") is None
    assert system.allow_open_files(1 << 40) is None
    assert system.usable_cores() == os.cpu_count()
    assert [each.name for each in system.signals("SIGINT", "SIGUSR1")] == ["SIGINT"]
    assert not system.has_timers()
    assert system.kernel_file("proc/meminfo", tmp_path) is None
    assert system.library_function(tmp_path / "none.so", "any") is None
    assert system.library_function(None, "no_such_function") is None
    assert not system.may_reserve(tmp_path)
    assert available_memory(tmp_path) == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    file = tmp_path / "file"
    file.write_bytes(bytes(1 << 16))
    with open(file, "rb") as opened, system.mmap.mmap(opened.fileno(), 0, access=1) as memory:
        system.forget_cached(opened.fileno())
        system.forget_read(memory)
        assert memory[:] == bytes(1 << 16)


def test_open_files_are_guessed_where_they_cannot_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < system.open_files() < 10_000

    def absent(path: str) -> list[str]:
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "listdir", absent)
    assert system.open_files() == system.PLAUSIBLE_FILES


def test_a_folder_without_locks_is_worked_in_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(system, "fcntl", None)
    with FolderLock() as lock:
        lock.take(tmp_path / "run")
        assert "no other process may work in it" in capfd.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_corpus_a_model_and_its_vectors_without_any_part(tmp_path: Path) -> None:
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook/sitecustomize.py").write_text(PLAIN)
    texts = [f"the room {n} was a great price for a book" for n in range(300)]
    (tmp_path / "text.txt").write_text("\n".join(texts))
    shape = "--model tiny --rows-per-update 4 --trainer.steps 2 --validation-tokens 200"
    verbs = [
        "prepare text.txt --read.split line --out data --tokenizer train:200 --workers 2",
        f"pretrain --data data --out run {shape}",
        "predict --model run --input text.txt --output vectors.npy",
    ]
    program = f"""
import sys
from brimful.base import system
from brimful.cli.main import main
assert system.fcntl is system.resource is system.kernel_file("proc/stat") is None
for line in {verbs!r}:
    assert not main(line.split())
"""
    path = os.pathsep.join([str(tmp_path / "hook"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("there are no locks of files here") == 2  # prepare's folder, and pretrain's
    assert done.stderr.count("no timers of CPU time") == 1
    vectors = np.load(tmp_path / "vectors.npy")
    assert len(vectors) == 300
    assert np.isfinite(vectors).all()
