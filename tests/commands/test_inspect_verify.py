"""`inspect --verify`: a flipped bit anywhere below a folder is found and named."""

import random
import shutil
from typing import Any

import pytest

from brimful import inspect
from brimful.base.errors import BrimfulError
from brimful.base.storage import commit
from brimful.cli.main import main


def verify(directory: str) -> dict[str, Any]:
    return inspect(directory=directory, verify=True)


def test_a_flipped_bit_is_found_and_named(corpus_dir, tmp_path, capfd):
    whole = verify(directory=str(corpus_dir))
    assert whole["records"] >= 5
    assert whole["files"] > 10
    out = tmp_path / "copy"
    shutil.copytree(corpus_dir, out)
    draw = random.Random(5)
    checked = [
        path
        for folder in ("text", "dedup", "shards")
        for path in sorted((out / folder).iterdir())
        if path.suffix != ".json" and path.stat().st_size
    ]
    for path in [*checked, out / "tokenizer.json"]:
        content = path.read_bytes()
        for place in {0, draw.randrange(len(content)), draw.randrange(len(content))}:
            damaged = bytearray(content)
            damaged[place] ^= 1 << draw.randrange(8)
            path.write_bytes(damaged)
            capfd.readouterr()
            with pytest.raises(BrimfulError, match=r"\d+ problems? below .*: put the right"):
                verify(directory=str(out))
            assert path.name in capfd.readouterr().err
        path.write_bytes(content)
    assert verify(directory=str(out)) == whole
    (out / "shards" / "train-00000.tok").unlink()
    with pytest.raises(BrimfulError, match=r"\d+ problems? below"):
        verify(directory=str(out))


@pytest.mark.cases(9)
@pytest.mark.parametrize("content", ["{}", "0", "[]", "null", '{"files": {}}', None])
@pytest.mark.parametrize(
    "name",
    [
        *("MANIFEST.json", "plan.json", "text/part-00000.json", "dedup/decisions.json"),
        *("shards/train-00000.json", "run/step-5/checkpoint.json", "run/result/result.json"),
    ],
)
def test_a_record_that_is_destroyed_or_gone_is_found(corpus_dir, tmp_path, capfd, name, content):
    out = tmp_path / "copy"
    shutil.copytree(corpus_dir, out)
    for folder, data, record in (("step-5", "tensors", "checkpoint"), ("result", "weights", "result")):
        place = out / "run" / folder
        place.mkdir(parents=True)
        (place / f"{data}.safetensors").write_bytes(b"weights")
        commit(place / f"{record}.json", [place / f"{data}.safetensors"])
    assert verify(directory=str(out))["files"] > 10
    path = out / name
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(BrimfulError, match=r"\d+ problems? below"):
        verify(directory=str(out))
    assert path.stem.partition("-")[0] in capfd.readouterr().err


def test_an_own_json_file_is_no_destroyed_record(corpus_dir, tmp_path):
    out = tmp_path / "copy"
    shutil.copytree(corpus_dir, out)
    for name in ("plan.json", "result.json", "checkpoint.json", "notes.json", "shards.tok"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "notes.json").write_text("{}")
    assert verify(directory=str(tmp_path)) == verify(directory=str(out))


@pytest.mark.parametrize("name", ["checksums.json", "export.json"])
def test_the_record_of_a_model_is_known_by_its_name(corpus_dir, tmp_path, name):
    shutil.copytree(corpus_dir, tmp_path / "data")
    (tmp_path / name).write_text("{}")
    with pytest.raises(BrimfulError, match=r"1 problem below .*: put the right files back"):
        verify(directory=str(tmp_path))


def test_what_cannot_be_verified(tmp_path):
    with pytest.raises(BrimfulError, match="is not a folder"):
        verify(directory=str(tmp_path / "absent"))
    (tmp_path / "other.json").write_text('{"files": 3}')
    with pytest.raises(BrimfulError, match="nothing to verify"):
        verify(directory=str(tmp_path))


def test_the_command_line(corpus_dir, capsys):
    assert main(["inspect", str(corpus_dir), "--verify"]) == 0
    found = verify(directory=str(corpus_dir))
    lines = "".join(f"{name}: {found[name]:,}\n" for name in ("records", "files", "bytes"))
    assert capsys.readouterr().out == lines
