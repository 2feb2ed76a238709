"""A folder has one process at a time, and a killed process leaves no lock."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from brimful.base.errors import BrimfulError
from brimful.base.folder_lock import FolderLock
from brimful.base.storage import LOCK, require_folder_place

HOLDER = """
import os, sys, time
from pathlib import Path
from brimful.base.folder_lock import FolderLock
with FolderLock() as lock:
    lock.take(Path(sys.argv[1]))
    child = os.fork()
    if child:
        print(child, flush=True)
    time.sleep(600)
"""


def holder(folder: Path) -> tuple[subprocess.Popen, int]:
    """A process that holds the lock, and the number of the child that it has forked."""
    line = [sys.executable, "-c", HOLDER, str(folder)]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def end(process: subprocess.Popen, child: int) -> None:
    process.kill()
    os.kill(child, signal.SIGKILL)
    process.communicate()


def take(folder: Path) -> None:
    with FolderLock() as lock:
        lock.take(folder)
        assert (folder / LOCK).is_file()


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path):
    folder = tmp_path / "run"
    process, child = holder(folder)
    try:
        said = rf"run is in use by process {process.pid} on {socket.gethostname()}: wait until it ends"
        for _ in range(2):  # a refused process breaks no lock
            with pytest.raises(BrimfulError, match=said):
                take(folder)
        process.kill()
        process.wait()
        take(folder)  # though the child lives
        assert not (folder / LOCK).exists()
    finally:
        end(process, child)


@pytest.mark.slow
def test_many_processes_one_at_a_time(tmp_path):
    code = """
import sys, time
from pathlib import Path
from brimful.base.errors import BrimfulError
from brimful.base.folder_lock import FolderLock
folder, done = Path(sys.argv[1]), 0
while done < 20:
    try:
        with FolderLock() as lock:
            lock.take(folder)
            (folder / "alone").touch(exist_ok=False)
            (folder / "alone").unlink()
            done += 1
    except BrimfulError:
        time.sleep(0.0005)
"""
    folder = tmp_path / "run"
    folder.mkdir()
    line = [sys.executable, "-c", code, str(folder)]
    processes = [subprocess.Popen(line, stderr=subprocess.PIPE) for _ in range(3)]
    for process in processes:
        assert not process.communicate(timeout=120)[1].decode()
    assert list(folder.iterdir()) == []


def test_a_new_folder_that_stays_empty_is_removed(tmp_path):
    take(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    take(tmp_path / "mine")
    assert (tmp_path / "mine").is_dir()
    with FolderLock() as lock:
        lock.take(tmp_path / "c")
        require_folder_place(tmp_path / "c")  # a lock alone is nothing that could be lost
        with FolderLock() as inner:  # of the same process
            inner.take(tmp_path / "c")
        assert (tmp_path / "c" / LOCK).is_file()
        (tmp_path / "c" / "file").touch()
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["file"]


def test_a_planted_link_is_not_followed(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(tmp_path / "victim")
    with pytest.raises(BrimfulError, match="cannot write"):
        take(tmp_path / "run")
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_file_system_without_locks_is_said(tmp_path, monkeypatch, capfd):
    def none(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.lockf", none)
    take(tmp_path / "run")
    assert "there are no locks of files here" in capfd.readouterr().err


@pytest.mark.slow
def test_a_folder_put_in_its_place_keeps_the_lock_of_another(tmp_path):
    folder = tmp_path / "out"
    with FolderLock() as lock:
        lock.take(folder)
        folder.rename(tmp_path / "old")
        folder.mkdir()
        process, child = holder(folder)
    try:
        with pytest.raises(BrimfulError, match=f"in use by process {process.pid}"):
            take(folder)
    finally:
        end(process, child)
