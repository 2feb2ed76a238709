"""SIGKILL before any file system operation; what killed processes left is swept, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from brimful.base.errors import BrimfulError
from brimful.base.storage import TEMPORARY, atomic_directory, read_commit, read_json, sweep, temporary_path


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def dead():
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_sweep_removes_what_dead_processes_left(tmp_path, dead):
    mine = temporary_path(tmp_path / "a").name
    theirs = mine.replace(f"-{os.getpid()}-", f"-{dead}-")
    elsewhere = f"{TEMPORARY}another_host-1-a"
    for name in (mine, theirs, elsewhere, "a", "tmp-a"):
        (tmp_path / name).touch()
    (tmp_path / f"{theirs}-directory").mkdir()
    (tmp_path / f"{theirs}-directory" / "file").touch()
    sweep(tmp_path)
    assert names(tmp_path) == sorted([mine, elsewhere, "a", "tmp-a"])


def test_sweep_does_not_follow_links(tmp_path, dead):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").touch()
    place = tmp_path / "place"
    place.mkdir()
    for moved in ("", "old-"):
        name = temporary_path(place / f"{moved}out").name.replace(f"-{os.getpid()}-", f"-{dead}-")
        (place / name).symlink_to(victim)
    sweep(place)
    assert names(place) == []
    assert names(victim) == ["file"]


def test_a_directory_is_written_without_what_a_killed_process_left_of_it(tmp_path, dead):
    """Also of a folder that was being written inside: its temporary folder is beside the outer one."""
    outer = temporary_path(tmp_path / "out")
    left = [outer, temporary_path(outer), temporary_path(outer.with_name(f"old-{outer.name}"))]
    left = [tmp_path / path.name.replace(f"-{os.getpid()}-", f"-{dead}-") for path in left]
    others = [temporary_path(tmp_path / "another"), tmp_path / left[0].name.replace("out", "another")]
    for path in (*left, *others):
        path.mkdir()
        (path / "file").touch()
    with atomic_directory(tmp_path / "out") as temporary:
        (temporary / "new").touch()
    assert names(tmp_path) == sorted(["out", *(path.name for path in others)])
    assert names(tmp_path / "out") == ["new"]


DRIVER = """
import os, signal, sys
from pathlib import Path
from brimful.base.storage import atomic_directory, commit, atomic_file

def write(folder, text):
    for name in ("a", "b"):
        with atomic_file(folder / name) as temporary:
            temporary.write_text(text)
    commit(folder / "record.json", [folder / "a", folder / "b"], text=text)
    with atomic_directory(folder / "directory") as temporary:
        for name in ("one", "two"):
            (temporary / name).write_text(text)

root = Path(sys.argv[1])
WATCHED = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.listdir", "os.scandir"}
for crash in range(1000):
    folder = root / str(crash)
    write(folder, "old" * 1000)
    child = os.fork()
    if not child:
        events = 0
        def hook(event, arguments):
            global events
            if event in WATCHED and any(str(root) in str(a) for a in arguments):
                if events == crash:
                    os.kill(os.getpid(), signal.SIGKILL)
                events += 1
        sys.addaudithook(hook)
        write(folder, "new" * 2000)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        print(crash)
        break
"""


def test_kill_before_any_operation_on_files_and_directories(tmp_path):
    """Once before each: a folder for each process that was killed."""
    command = [sys.executable, "-c", DRIVER, str(tmp_path)]
    crashes = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert crashes >= 10
    gone = 0
    for folder in (tmp_path / str(number) for number in range(crashes)):
        texts = {(folder / name).read_text() for name in ("a", "b")}
        assert texts <= {"old" * 1000, "new" * 2000}
        if texts == {read_json(folder / "record.json")["text"]}:
            read_commit(folder / "record.json", verify=True)
        else:  # the old record, and a file of its successor: seen, so made again
            with pytest.raises(BrimfulError):
                read_commit(folder / "record.json", verify=True)
        sweep(folder)
        assert set(names(folder)) - {"directory"} == {"a", "b", "record.json"}
        if not (folder / "directory").exists():  # between the two renames: nothing is half here
            gone += 1
            continue
        assert names(folder / "directory") == ["one", "two"]
        texts = {path.read_text() for path in (folder / "directory").iterdir()}
        assert texts in ({"old" * 1000}, {"new" * 2000})
    assert gone <= 1
