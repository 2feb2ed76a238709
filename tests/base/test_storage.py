"""Files and folders are whole or absent, and what is damaged, missing or forged is named."""

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from brimful.base.errors import BrimfulError
from brimful.base.storage import (
    TEMPORARY,
    atomic_directory,
    atomic_file,
    atomic_files,
    commit,
    crc32,
    read_commit,
    read_json,
    require_folder_place,
    write_json,
)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def replace(directory: Path, name: str) -> None:
    """Write a directory that holds this file alone."""
    with atomic_directory(directory) as temporary:
        (temporary / name).touch()


def failing(code: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


class BugError(Exception):
    """Not an OSError, not a BrimfulError."""


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("atomic", [atomic_file, atomic_directory])
def test_an_exception_leaves_what_was_there_and_no_temporary(tmp_path, atomic, before):
    path = tmp_path / "place"

    def write(text: str, error: type[Exception] | None) -> None:
        with atomic(path) as temporary:
            (temporary / "file" if atomic is atomic_directory else temporary).write_text(text)
            if error:
                raise error

    if before:
        write("old", None)
    with pytest.raises(BugError):
        write("new", BugError)
    assert names(tmp_path) == (["place"] if before else [])
    if before:
        assert (path / "file" if atomic is atomic_directory else path).read_text() == "old"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT])
@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_failing_disk_is_one_line(tmp_path, monkeypatch, code, call):
    path, directory = tmp_path / "file.json", tmp_path / "directory"
    write_json(path, "old")
    replace(directory, "old")
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(code))
        with pytest.raises(BrimfulError) as file_error:
            write_json(path, "new")
        with pytest.raises(BrimfulError) as directory_error:
            replace(directory, "new")
    for error, what in ((file_error, "file.json"), (directory_error, "directory")):
        text = str(error.value)
        assert "\n" not in text
        assert what in text
        assert os.strerror(code) in text
    assert read_json(path) == "old"
    assert names(tmp_path) == ["directory", "file.json"]
    assert names(directory) == ["old"]


def test_a_directory_whose_second_rename_fails_is_put_back(tmp_path, monkeypatch):
    replace(tmp_path / "directory", "old")
    real, calls = os.replace, []

    def fail_once(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) == 2:
            failing(errno.EIO)()
        real(source, target)

    monkeypatch.setattr(os, "replace", fail_once)
    with pytest.raises(BrimfulError):
        replace(tmp_path / "directory", "new")
    assert names(tmp_path / "directory") == ["old"]
    assert names(tmp_path) == ["directory"]


def test_json_round_trip_and_damage(tmp_path):
    value = {"text": '汉字 \u2028 "quoted"', "number": 0.1, "none": None, "list": [1, [2]]}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json") == value
    with pytest.raises(BrimfulError, match=r"absent\.json"):
        read_json(tmp_path / "absent.json")
    for damage in (b"{", b"", b"\xff\xfe"):
        (tmp_path / "a.json").write_bytes(damage)
        with pytest.raises(BrimfulError, match=r"a\.json"):
            read_json(tmp_path / "a.json")


def test_what_fails_beside_the_file_is_not_blamed_on_it(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent"), atomic_file(tmp_path / "out"):
        (tmp_path / "absent").read_text()
    assert names(tmp_path) == []


def test_a_full_disk_inside_a_temporary_folder_names_the_folder(tmp_path, monkeypatch):
    def write() -> None:
        with atomic_directory(tmp_path / "out") as outer, atomic_directory(outer) as inner:
            write_json(inner / "below" / "a.json", 1)

    monkeypatch.setattr(os, "fsync", failing(errno.ENOSPC))
    with pytest.raises(BrimfulError, match=r"cannot write .*/out/below/a\.json: No space") as caught:
        write()
    assert TEMPORARY not in str(caught.value)


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077, 0o000])
def test_files_and_folders_have_the_mode_of_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_json(tmp_path / "file", 1)
        with atomic_directory(tmp_path / "out") as folder:
            (folder / "file").touch()
    finally:
        os.umask(before)
    for path, mode in ((tmp_path / "file", 0o666), (tmp_path / "out", 0o777), (tmp_path / "out/file", 0o666)):
        assert path.stat().st_mode & 0o777 == mode & ~umask


def test_a_folder_that_is_a_link_stays_one(tmp_path):
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
        with pytest.raises(BrimfulError, match="cannot write"), atomic_directory(tmp_path / name):
            pass
        assert (tmp_path / name).is_symlink()


def test_only_a_folder_that_nothing_is_lost_from_may_be_written(tmp_path):
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
        (full, "full is not empty and is not an earlier thing; choose another --out"),
    ):
        with pytest.raises(BrimfulError, match=words):
            require_folder_place(place, replaces=mine)
    (full / "thing.json").touch()
    require_folder_place(full, replaces=mine)


def test_an_unfinished_run_is_refused_with_the_way_to_go_on(tmp_path):
    (tmp_path / "config.yaml").touch()
    with pytest.raises(BrimfulError, match="is not empty; resume it, or choose another --out"):
        require_folder_place(tmp_path, unfinished="resume it, or ")
    (tmp_path / "MANIFEST.json").touch()
    with pytest.raises(BrimfulError, match="is not empty; choose another --out"):
        require_folder_place(tmp_path, unfinished="resume it, or ")


def test_an_absent_or_foreign_record_is_refused(tmp_path):
    with pytest.raises(BrimfulError, match=r"record\.json"):
        read_commit(tmp_path / "record.json")
    (tmp_path / "record.json").write_text('{"files": {')
    with pytest.raises(BrimfulError, match=r"record\.json is no JSON \(line 1\): .* remove it and run"):
        read_commit(tmp_path / "record.json")
    for value in ([], {}, {"files": 3}, {"files": {}}, None):
        write_json(tmp_path / "record.json", value)
        with pytest.raises(BrimfulError, match=r"record\.json"):
            read_commit(tmp_path / "record.json")


def test_a_commit_reads_back_and_damage_is_found(tmp_path, seed):
    draw, record = random.Random(seed), tmp_path / "record.json"
    files = [tmp_path / name for name in ("a.bin", "b.bin")]
    for file in files:
        file.write_bytes(draw.randbytes(draw.randint(1, 5000)))
    commit(record, files, steps=7)
    value = read_commit(record, verify=True)
    assert value["steps"] == 7
    sums = {name: facts["crc32"] for name, facts in value["files"].items()}
    assert sums == {file.name: crc32(file) for file in files}

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


def test_a_commit_record_goes_before_the_first_of_its_files_is_replaced(tmp_path):
    record, paths = tmp_path / "record.json", [tmp_path / "a", tmp_path / "b"]

    def write(value: str) -> None:
        with atomic_files(record, paths) as temporaries:
            for temporary in temporaries:
                temporary.write_text(value)

    write("1")
    commit(record, paths)
    with pytest.raises(KeyError), atomic_files(record, paths):
        raise KeyError
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
