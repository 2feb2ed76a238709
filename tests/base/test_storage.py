"""Files and folders are whole or absent, whatever fails: exceptions, disks, links."""

import errno
import os
from pathlib import Path

import pytest

from brimful.base.errors import BrimfulError
from brimful.base.storage import TEMPORARY, atomic_directory, atomic_file, read_json, write_json


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


class BugError(Exception):
    """Not an OSError, not a BrimfulError."""


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("atomic", [atomic_file, atomic_directory])
def test_an_exception_leaves_what_was_there_and_no_temporary(tmp_path: Path, atomic, before: bool) -> None:
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


def test_what_fails_beside_the_file_is_not_blamed_on_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"), atomic_file(tmp_path / "out"):
        (tmp_path / "absent").read_text()
    assert names(tmp_path) == []


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


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077, 0o000])
def test_files_and_folders_have_the_mode_of_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_json(tmp_path / "file", 1)
        with atomic_directory(tmp_path / "out") as folder:
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
        with pytest.raises(BrimfulError, match="cannot write"), atomic_directory(tmp_path / name):
            pass
        assert (tmp_path / name).is_symlink()
