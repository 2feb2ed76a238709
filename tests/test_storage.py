"""Files are whole or absent: under exceptions, full disks, and SIGKILL before any file system operation."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brimful.errors import BrimfulError
from brimful.storage import (
    TEMPORARY,
    atomic_directory,
    atomic_file,
    atomic_files,
    commit,
    crc32,
    read_commit,
    read_json,
    read_record,
    require_file_place,
    require_folder_place,
    sweep,
    temporary_path,
    write_json,
)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


class BugError(Exception):
    """Not an OSError, not a BrimfulError."""


def test_atomic_file_replaces(tmp_path: Path) -> None:
    for text in ("old", "new"):
        with atomic_file(tmp_path / "deep" / "er" / "file") as temporary:
            temporary.write_text(text)
        assert (tmp_path / "deep" / "er" / "file").read_text() == text
    assert names(tmp_path / "deep" / "er") == ["file"]


@pytest.mark.parametrize("before", [None, "old"])
def test_an_exception_leaves_the_old_file_and_no_temporary(tmp_path: Path, before: str | None) -> None:
    path = tmp_path / "file"
    if before:
        path.write_text(before)

    def fail() -> None:
        with atomic_file(path) as temporary:
            temporary.write_text("half")
            raise BugError

    with pytest.raises(BugError):
        fail()
    assert names(tmp_path) == (["file"] if before else [])
    assert not before or path.read_text() == before


@pytest.mark.parametrize("before", [False, True])
def test_an_exception_leaves_the_old_directory(tmp_path: Path, before: bool) -> None:
    path = tmp_path / "directory"
    if before:
        path.mkdir()
        (path / "old").touch()

    def fail() -> None:
        with atomic_directory(path) as temporary:
            (temporary / "new").touch()
            raise BugError

    with pytest.raises(BugError):
        fail()
    assert names(tmp_path) == (["directory"] if before else [])
    assert not before or names(path) == ["old"]


def test_atomic_directory_replaces_everything(tmp_path: Path) -> None:
    path = tmp_path / "directory"
    for name in ("old", "new"):
        with atomic_directory(path) as temporary:
            (temporary / name).mkdir()
            (temporary / name / "file").write_text(name)
        assert names(path) == [name]
        assert (path / name / "file").read_text() == name
    assert names(tmp_path) == ["directory"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT])
@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_failing_disk_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, call: str
) -> None:
    path = tmp_path / "file.json"
    write_json(path, "old")
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "old").touch()

    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    def replace_directory() -> None:
        with atomic_directory(tmp_path / "directory") as temporary:
            (temporary / "new").touch()

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(BrimfulError) as file_error:
            write_json(path, "new")
        with pytest.raises(BrimfulError) as directory_error:
            replace_directory()
    for error, what in ((file_error, "file.json"), (directory_error, "directory")):
        text = str(error.value)
        assert "\n" not in text
        assert what in text
        assert os.strerror(code) in text
    assert read_json(path) == "old"
    assert names(tmp_path) == ["directory", "file.json"]
    assert names(tmp_path / "directory") == ["old"]


def test_a_directory_whose_second_rename_fails_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "old").touch()
    real, calls = os.replace, []

    def fail_once(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(source, target)

    def replace_directory() -> None:
        with atomic_directory(tmp_path / "directory") as temporary:
            (temporary / "new").touch()

    monkeypatch.setattr(os, "replace", fail_once)
    with pytest.raises(BrimfulError):
        replace_directory()
    assert names(tmp_path / "directory") == ["old"]
    assert names(tmp_path) == ["directory"]


def test_a_parent_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BrimfulError, match="cannot write"):
        write_json(tmp_path / "file" / "below.json", 1)

    def directory_below() -> None:
        with atomic_directory(tmp_path / "file" / "below"):
            pass

    with pytest.raises(BrimfulError, match="cannot write"):
        directory_below()
    assert names(tmp_path) == ["file"]


def test_json_round_trip_and_damage(tmp_path: Path) -> None:
    value = {"text": '汉字 \u2028 "quoted"', "number": 0.1, "none": None, "list": [1, [2]]}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json") == value
    with pytest.raises(BrimfulError, match=r"absent\.json"):
        read_json(tmp_path / "absent.json")
    for damage in (b"{", b"", b"\xff\xfe"):
        (tmp_path / "a.json").write_bytes(damage)
        with pytest.raises(BrimfulError, match=r"a\.json"):
            read_json(tmp_path / "a.json")


def committed(directory: Path, seed: int) -> tuple[Path, list[Path]]:
    draw = random.Random(seed)
    files = [directory / name for name in ("a.bin", "b.bin")]
    for file in files:
        file.write_bytes(draw.randbytes(draw.randint(1, 5000)))
    record = directory / "record.json"
    commit(record, files, steps=7)
    return record, files


def test_a_commit_reads_back(tmp_path: Path, seed: int) -> None:
    record, files = committed(tmp_path, seed)
    value = read_commit(record, verify=True)
    assert value["steps"] == 7
    assert {name: facts["crc32"] for name, facts in value["files"].items()} == {
        file.name: crc32(file) for file in files
    }


def test_an_absent_or_foreign_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BrimfulError, match=r"record\.json"):
        read_commit(tmp_path / "record.json")
    (tmp_path / "record.json").write_text('{"files": {')
    with pytest.raises(BrimfulError, match=r"record\.json is not valid JSON .* remove it and run"):
        read_commit(tmp_path / "record.json")
    for value in ([], {}, {"files": 3}, {"files": {}}, None):
        write_json(tmp_path / "record.json", value)
        with pytest.raises(BrimfulError, match=r"record\.json"):
            read_commit(tmp_path / "record.json")


def test_damage_is_found(tmp_path: Path, seed: int) -> None:
    record, files = committed(tmp_path, seed)
    draw = random.Random(seed)
    file = draw.choice(files)
    whole = file.read_bytes()

    flipped = bytearray(whole)
    flipped[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
    file.write_bytes(flipped)
    read_commit(record)
    with pytest.raises(BrimfulError, match=file.name):
        read_commit(record, verify=True)

    for damaged in (whole[: draw.randrange(len(whole))], whole + b"x"):
        file.write_bytes(damaged)
        with pytest.raises(BrimfulError, match=file.name):
            read_commit(record)
    file.unlink()
    with pytest.raises(BrimfulError, match=file.name):
        read_commit(record)


def test_a_commit_record_goes_before_the_first_of_its_files_is_replaced(tmp_path: Path) -> None:
    record, paths = tmp_path / "record.json", [tmp_path / "a", tmp_path / "b"]

    def write(value: str) -> None:
        with atomic_files(record, paths) as temporaries:
            for temporary in temporaries:
                temporary.write_text(value)

    write("1")
    commit(record, paths)
    with pytest.raises(BugError), atomic_files(record, paths):
        raise BugError
    assert read_commit(record, verify=True)
    seen: list[bool] = []
    real = os.replace

    def watch(source: Path, target: Path) -> None:
        seen.append(record.exists())
        real(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", watch)
        write("2")
    assert seen == [False, False]
    assert [path.read_text() for path in paths] == ["2", "2"]


def test_what_fails_beside_the_file_is_not_blamed_on_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"), atomic_file(tmp_path / "out"):
        (tmp_path / "absent").read_text()
    assert names(tmp_path) == []


def test_sweep_removes_what_dead_processes_left(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    mine = temporary_path(tmp_path / "a").name
    theirs = mine.replace(f"-{os.getpid()}-", f"-{dead.pid}-")
    elsewhere, forgotten = f"{TEMPORARY}another_host-1-a", f"{TEMPORARY}another_host-2-a"
    for name in (mine, theirs, elsewhere, forgotten, "a", "tmp-a"):
        (tmp_path / name).touch()
    two_days_ago = time.time() - 2 * 24 * 3600
    os.utime(tmp_path / forgotten, (two_days_ago, two_days_ago))
    (tmp_path / f"{theirs}-directory").mkdir()
    (tmp_path / f"{theirs}-directory" / "file").touch()
    sweep(tmp_path)
    assert names(tmp_path) == sorted([mine, elsewhere, "a", "tmp-a"])


@pytest.fixture
def dead() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_directory_is_written_without_what_a_killed_process_left_of_it(tmp_path: Path, dead: int) -> None:
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


def test_a_full_disk_inside_a_temporary_folder_names_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write() -> None:
        with atomic_directory(tmp_path / "out") as outer, atomic_directory(outer) as inner:
            write_json(inner / "below" / "a.json", 1)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(BrimfulError, match=r"cannot write .*/out/below/a\.json: No space") as caught:
        write()
    assert TEMPORARY not in str(caught.value)


DRIVER = """
import json, os, signal, sys
from pathlib import Path
from brimful.storage import atomic_directory, commit, atomic_file, read_commit, write_json

def fill(directory, text):
    with atomic_directory(directory) as temporary:
        (temporary / "one").write_text(text)
        (temporary / "two").write_text(text)

def write(directory, text):
    for name in ("a", "b"):
        with atomic_file(directory / name) as temporary:
            temporary.write_text(text)
    commit(directory / "record.json", [directory / "a", directory / "b"], text=text)

operation, root = {"files": write, "directory": fill}[sys.argv[1]], Path(sys.argv[2])
WATCHED = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.listdir", "os.scandir"}
for crash in range(1000):
    target = root / str(crash)
    operation(target, "old" * 1000)
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
        operation(target, "new" * 2000)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        print(crash)
        break
"""


def crashes(operation: str, root: Path) -> list[Path]:
    """A folder for each file system operation of `operation`: a process was killed just before it."""
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, operation, str(root)], check=True, capture_output=True, text=True
    )
    assert int(done.stdout) >= 5
    return [root / str(number) for number in range(int(done.stdout))]


def test_kill_before_any_operation_on_files(tmp_path: Path) -> None:
    for directory in crashes("files", tmp_path):
        texts = {name: (directory / name).read_text() for name in ("a", "b")}
        assert set(texts.values()) <= {"old" * 1000, "new" * 2000}
        record = read_json(directory / "record.json")
        if len(set(texts.values())) == 1 and record["text"] == texts["a"]:
            read_commit(directory / "record.json", verify=True)
        else:  # the old record, and a file of its successor: seen, so made again
            with pytest.raises(BrimfulError):
                read_commit(directory / "record.json", verify=True)
        sweep(directory)
        assert names(directory) == ["a", "b", "record.json"]


def test_kill_before_any_operation_on_a_directory(tmp_path: Path) -> None:
    gone = 0
    for directory in crashes("directory", tmp_path):
        if not directory.exists():  # between the two renames: neither is here, nothing is half here
            gone += 1
            continue
        assert names(directory) == ["one", "two"]
        texts = {(directory / name).read_text() for name in ("one", "two")}
        assert texts in ({"old" * 1000}, {"new" * 2000})
    assert gone <= 1
    sweep(tmp_path)
    assert all(not name.startswith(TEMPORARY) for name in names(tmp_path))


WRITER = """
import itertools, sys
from brimful.storage import write_json
print("ready", flush=True)
for number in itertools.count():
    write_json(sys.argv[1], [number] * 20000)
"""


def test_kill_at_random_moments(tmp_path: Path, seed: int) -> None:
    path, draw = tmp_path / "file.json", random.Random(seed)
    for _ in range(6):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
            while not path.exists():
                time.sleep(0.005)
            time.sleep(draw.random() * 0.1)
            writer.send_signal(signal.SIGKILL)
        numbers = json.loads(path.read_text())
        assert len(numbers) == 20000
        assert len(set(numbers)) == 1
    sweep(tmp_path)
    assert names(tmp_path) == ["file.json"]


def test_only_a_folder_that_nothing_is_lost_from_may_be_written(tmp_path: Path) -> None:
    mine = ("an earlier thing", lambda folder: (folder / "thing.json").is_file())
    (tmp_path / "file").touch()
    full = tmp_path / "full"
    full.mkdir()
    for free in (tmp_path / "absent" / "below", full):
        require_folder_place(free)
        assert free.exists() == (free == full)
    (full / "summary.json").touch()
    for place, words in (
        (tmp_path / "file", "it is a file"),
        (tmp_path / "file" / "below", "file is a file"),
        (full, "holds a finished run and is not an earlier thing; choose another --out"),
    ):
        with pytest.raises(BrimfulError, match=words):
            require_folder_place(place, replaces=mine)
    (full / "thing.json").touch()
    require_folder_place(full, replaces=mine)


def test_an_unfinished_run_is_refused_with_the_way_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").touch()
    with pytest.raises(BrimfulError, match="unfinished run; resume it, or choose another --out"):
        require_folder_place(tmp_path, unfinished="resume it, or ")
    (tmp_path / "MANIFEST.json").touch()
    with pytest.raises(BrimfulError, match="holds a prepared corpus; choose another --out"):
        require_folder_place(tmp_path, unfinished="resume it, or ")


def test_a_file_that_another_process_deletes_is_no_folder(tmp_path):
    path = tmp_path / "plan"
    code = f"""
from pathlib import Path
path = Path({str(path)!r})
while True:
    path.touch()
    path.unlink()
"""
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            deadline = time.monotonic() + 1
            while time.monotonic() < deadline:
                require_file_place(path)
        finally:
            process.kill()


def test_temporary_names_cannot_be_guessed_and_planted_links_are_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    place = tmp_path / "shared"
    place.mkdir()
    assert temporary_path(place / "o") != temporary_path(place / "o")
    for name in ("o.jsonl", "out"):
        for process in range(os.getpid(), os.getpid() + 5):
            (place / f"{TEMPORARY}{os.uname().nodename.replace('-', '_')}-{process}-{name}").symlink_to(
                victim
            )
    with atomic_file(place / "o.jsonl") as temporary:
        temporary.write_text("mine")
    with atomic_directory(place / "out") as folder:
        (folder / "file").write_text("mine")
    assert victim.read_text() == "precious"
    assert not (place / "o.jsonl").is_symlink()
    assert (place / "o.jsonl").read_text() == (place / "out" / "file").read_text() == "mine"


@pytest.mark.parametrize("planted", ["file", "link", "folder"])
def test_what_stands_under_the_temporary_name_is_never_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    """As if the name had been guessed."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("precious")
    place = tmp_path / "guessed"
    {
        "file": lambda: place.write_text("theirs"),
        "link": lambda: place.symlink_to(victim / "file"),
        "folder": lambda: place.symlink_to(victim),
    }[planted]()
    monkeypatch.setattr("brimful.storage.temporary_path", lambda path: place)
    with pytest.raises(BrimfulError, match=r"cannot write .*out"), atomic_file(tmp_path / "out") as temporary:
        temporary.write_text("mine")
    place.unlink(missing_ok=True)
    place.symlink_to(victim)
    with pytest.raises(BrimfulError, match=r"cannot write .*out"), atomic_directory(tmp_path / "out"):
        pass
    assert (victim / "file").read_text() == "precious"


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077, 0o000])
def test_files_and_folders_have_the_mode_of_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_json(tmp_path / "file", 1)
        with atomic_directory(tmp_path / "out") as folder:
            assert folder.stat().st_mode & 0o077 == 0
            (folder / "file").touch()
    finally:
        os.umask(before)
    for path, mode in ((tmp_path / "file", 0o666), (tmp_path / "out", 0o777), (tmp_path / "out/file", 0o666)):
        assert path.stat().st_mode & 0o777 == mode & ~umask


def test_a_folder_that_is_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "disk" / "real").mkdir(parents=True)
    (tmp_path / "disk" / "real" / "old").touch()
    (tmp_path / "link").symlink_to("disk/real")
    (tmp_path / "to link").symlink_to(tmp_path / "link")
    (tmp_path / "new").symlink_to("disk/absent")
    for name in ("link", "to link", "new"):
        with atomic_directory(tmp_path / name) as folder:
            (folder / name).touch()
        assert (tmp_path / name).is_symlink()
        assert names(tmp_path / name) == [name]
    assert names(tmp_path / "disk") == ["absent", "real"]
    assert names(tmp_path) == ["disk", "link", "new", "to link"]
    for name, target in (("loop", "loop"), ("to", "fro"), ("fro", "to")):
        (tmp_path / name).symlink_to(target)
    for name in ("loop", "to"):
        with pytest.raises(BrimfulError, match="its links lead in a circle"):
            require_folder_place(tmp_path / name)
        with pytest.raises(BrimfulError, match="cannot write"), atomic_directory(tmp_path / name):
            pass
        assert (tmp_path / name).is_symlink()


def test_sweep_leaves_what_no_process_of_brimful_named(tmp_path: Path) -> None:
    old = time.time() - 7 * 24 * 3600
    mine = [f"{TEMPORARY}notes", f"{TEMPORARY}my-backup-of-it", f"{TEMPORARY}host-x-y"]
    for name in mine:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (old, old))
    sweep(tmp_path)
    assert names(tmp_path) == sorted(mine)


def test_sweep_does_not_follow_links(tmp_path: Path, dead: int) -> None:
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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.data())
def test_a_forged_record_is_one_line(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any JSON in place of any value, under a CRC that is right."""
    place = tmp_path_factory.mktemp("forged")
    (place / "a").write_bytes(b"abc")
    record = place / "record.json"
    value = commit(record, [place / "a"], steps=7)
    where = data.draw(
        st.sampled_from([("files",), ("files", "a"), ("files", "a", "bytes"), ("files", "a", "crc32")])
    )
    inside = value
    for key in where[:-1]:
        inside = inside[key]
    inside[where[-1]] = data.draw(JSON)
    said = {key: fact for key, fact in value.items() if key != "crc32"}
    value["crc32"] = zlib.crc32(json.dumps(said, sort_keys=True).encode())
    write_json(record, value)
    for read in (read_record, lambda path: read_commit(path, verify=True)):
        said = ""
        try:
            assert read(record) == value
        except BrimfulError as error:
            said = str(error)
        assert not said or ("record.json" in said and "\n" not in said)
