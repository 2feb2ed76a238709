"""Folders with a model: damage is refused before it is read, and the user's own files outlive an export."""

import random
from pathlib import Path

import pytest

from brimful.base.errors import BrimfulError
from brimful.base.seals import CHECKSUMS, EXPORT, check_seal, own_files, seal
from brimful.base.storage import atomic_directory, commit, crc32


def written(folder: Path) -> Path:
    (folder / "1_Pooling").mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "1_Pooling/config.json"):
        (folder / name).write_bytes(random.Random(name).randbytes(2000))
    return folder


def test_a_damaged_file_is_refused_wherever_it_is(tmp_path: Path, seed: int) -> None:
    folder = written(tmp_path / "model")
    check_seal(folder)
    seal(folder)
    check_seal(folder)
    draw = random.Random(seed)
    for name in ("config.json", "model.safetensors", "1_Pooling/config.json", CHECKSUMS):
        path = folder / name
        content = bytearray(path.read_bytes())
        content[draw.randrange(len(content) - 1)] ^= 1 << draw.randrange(7)
        whole = path.read_bytes()
        path.write_bytes(content)
        with pytest.raises(BrimfulError, match=name):
            check_seal(folder)
        path.write_bytes(whole)
        check_seal(folder)
    (folder / CHECKSUMS).unlink()
    (folder / "config.json").write_text("{}")  # of a folder without a record, nobody knows
    check_seal(folder)


def test_a_file_that_does_not_change_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path / "model")
    seal(folder)
    read: list[Path] = []
    monkeypatch.setattr("brimful.base.storage._SETTLED", -(10**12))

    def reading(path: Path) -> int:
        read.append(path)
        return crc32(path)

    monkeypatch.setattr("brimful.base.storage.crc32", reading)
    check_seal(folder)
    check_seal(folder)
    assert len(read) == 3


def again(out: Path, names: list[str]) -> None:
    """An export over what is there."""
    with atomic_directory(out, own_files(out / EXPORT)) as folder:
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True, parents=True)
            (folder / name).write_text("new")
        commit(folder / EXPORT, [folder / name for name in names])


def test_the_users_own_files_outlive_an_export(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    again(out, ["config.json", "model.safetensors", "old/left.json"])
    assert not capfd.readouterr().err
    (out / "README.md").write_text("mine")
    (out / "mine" / "deep").mkdir(parents=True)
    (out / "mine" / "deep" / "notes").write_text("mine")
    (out / "mine" / "empty").mkdir()
    (out / "mine").chmod(0o700)
    (out / "link").symlink_to("mine/deep/notes")
    (out / "folder").symlink_to("mine")
    number = (out / "README.md").stat().st_ino
    again(out, ["config.json", "model.safetensors"])
    assert "README.md and 4 more, which export.json does not list" in capfd.readouterr().err
    assert {str(path.relative_to(out)) for path in out.rglob("*")} == {
        *("config.json", "model.safetensors", "export.json", "README.md", "link", "folder"),
        *("mine", "mine/deep", "mine/deep/notes", "mine/empty"),
    }
    assert (out / "link").read_text() == (out / "README.md").read_text() == "mine"
    assert (out / "folder").is_symlink()
    assert (out / "mine").stat().st_mode & 0o777 == 0o700
    assert (out / "README.md").stat().st_ino == number
    assert (out / "config.json").read_text() == "new"


def test_an_own_file_that_the_new_export_has_too_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    again(out, ["config.json"])
    (out / "modules.json").write_text("mine")
    with pytest.raises(BrimfulError, match=r"out/modules\.json is your own file"):
        again(out, ["config.json", "modules.json"])
    assert (out / "modules.json").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    (out / EXPORT).write_text("{}")
    with pytest.raises(BrimfulError, match="is not a commit record"):
        again(out, ["config.json"])
    assert (out / "modules.json").read_text() == "mine"
