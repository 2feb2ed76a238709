"""Folders with a model: damage is refused before it is read, and the user's own files outlive an export."""

import random
from pathlib import Path

import pytest

from brimful.base.errors import BrimfulError
from brimful.base.seals import CHECKSUMS, EXPORT, check_seal, seal
from brimful.base.storage import atomic_directory, commit
from brimful.exporting.formats import require_no_own_files


def written(folder: Path) -> Path:
    (folder / "1_Pooling").mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "1_Pooling/config.json"):
        (folder / name).write_bytes(random.Random(name).randbytes(2000))
    return folder


def test_a_damaged_file_is_refused_wherever_it_is(tmp_path, seed):
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


def again(out: Path, names: list[str]) -> None:
    """An export over what is there."""
    require_no_own_files(out / EXPORT)
    with atomic_directory(out) as folder:
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True, parents=True)
            (folder / name).write_text("new")
        commit(folder / EXPORT, [folder / name for name in names])


def test_an_export_over_files_of_the_user_is_refused(tmp_path):
    out = tmp_path / "out"
    again(out, ["config.json", "model.safetensors", "old/left.json"])
    again(out, ["config.json", "model.safetensors"])
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "export.json", "model.safetensors"]
    (out / "mine" / "deep").mkdir(parents=True)
    (out / "mine" / "deep" / "notes").write_text("mine")
    (out / "link").symlink_to("mine/deep/notes")
    with pytest.raises(BrimfulError, match=r"out has link and 1 more, of your own .*: move it away"):
        again(out, ["config.json"])
    assert (out / "link").read_text() == "mine"
    (out / "link").unlink()
    (out / EXPORT).write_text("{}")
    with pytest.raises(BrimfulError, match="damaged or not Brimful"):
        again(out, ["config.json"])
    assert (out / "mine" / "deep" / "notes").read_text() == "mine"
