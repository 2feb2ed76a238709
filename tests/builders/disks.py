"""Small disks, to be filled."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


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
