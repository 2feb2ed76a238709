"""Folders that are made once for all workers of a test run, and small disks, to be filled."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` of this test run: the first worker that asks for it has `make` fill it, while others
    wait. It is made in place, for what lies in it may hold its path. Tests may only read it.
    """
    root = factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        root = root.parent  # each worker has a folder of its own in that of the run
    folder, done = root / f"shared-{name}", root / f"shared-{name}.done"
    with open(root / f"shared-{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


@contextmanager
def mounted(place: Path, size: str) -> Iterator[Path]:
    """A new file system of this size, or the test is skipped."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("cannot mount a small tmpfs here")
    try:
        yield place
    finally:
        # Lazily: this process may still map files of it, as it does when the test fails.
        subprocess.run(["umount", "--lazy", str(place)], check=True)
