"""A commit record says which files belong together: what is damaged, missing or forged is named."""

import os
import random
from pathlib import Path

import pytest

from brimful.base.errors import BrimfulError
from brimful.base.storage import atomic_files, commit, crc32, read_commit, write_json


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
    with pytest.raises(BrimfulError, match=r"record\.json is no JSON \(line 1\): .* remove it and run"):
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
