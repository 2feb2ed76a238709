"""Checkpoints: whole or absent, rotated, and skipped when damaged."""

import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import wait

import pytest
import torch

from brimful.base.errors import BrimfulError
from brimful.base.storage import sweep
from brimful.runs import checkpoint
from brimful.runs.checkpoint import Writer, load_latest, save


@pytest.fixture
def seed(seed: int) -> int:
    torch.manual_seed(seed)
    return seed


def write(directory, step: int, keep: int = 10) -> dict[str, torch.Tensor]:
    tensors = {"weight": torch.randn(5, 7), "step": torch.tensor(float(step))}
    save(directory, step, tensors, {"cursor": {"epoch": 1, "row": step}, "seconds": 0.1}, keep)
    return tensors


def steps_on_disk(directory) -> list[int]:
    return sorted(int(path.name.removeprefix("step-")) for path in directory.iterdir())


def test_what_is_saved_is_loaded(seed, tmp_path):
    matrix = torch.randn(6, 4)
    tensors = {
        "weights.float": matrix,
        "weights.transposed": matrix.T,
        "half": torch.randn(3).bfloat16(),
        "scalar": torch.tensor(7.0),
        "parameter": torch.nn.Parameter(torch.randn(2, 2)),
        "empty": torch.zeros(0, 3),
    }
    state = {"cursor": {"epoch": 3, "row": 2**40, "plan": "腾讯"}, "seconds": 0.1 + 0.2}
    save(tmp_path / "checkpoints", 12, tensors, state, keep=1)
    step, loaded, restored = load_latest(tmp_path / "checkpoints")
    assert step == 12
    assert restored == state
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_rotation_keeps_the_newest(seed, tmp_path, keep):
    for step in (2, 9, 10, 100):
        last = write(tmp_path, step, keep)
    assert steps_on_disk(tmp_path) == [2, 9, 10, 100][-keep:]
    step, tensors, _ = load_latest(tmp_path)
    assert step == 100
    assert torch.equal(tensors["weight"], last["weight"])


def flip_a_byte(path):
    data = bytearray(path.read_bytes())
    data[-3] ^= 0x40
    path.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: flip_a_byte(folder / "tensors.safetensors"),
        lambda folder: (folder / "tensors.safetensors").write_bytes(b""),
        lambda folder: (folder / "tensors.safetensors").unlink(),
        lambda folder: (folder / "checkpoint.json").unlink(),
        lambda folder: (folder / "checkpoint.json").write_bytes(b'{"step": 8, "fi'),
        lambda folder: (folder / "checkpoint.json").write_bytes(b"\xff\xfe\x00"),
    ],
    ids=["flipped bit", "emptied", "no tensors", "no record", "cut record", "binary record"],
)
def test_a_damaged_newest_one_falls_back_to_the_one_before(seed, tmp_path, damage):
    before = write(tmp_path, 4)
    write(tmp_path, 8)
    damage(tmp_path / "step-8")
    step, tensors, state = load_latest(tmp_path)
    assert step == 4
    assert torch.equal(tensors["weight"], before["weight"])
    assert state["cursor"]["row"] == 4


def test_what_a_killed_process_left_half_written_is_ignored_and_swept(seed, tmp_path):
    """A process dies by SIGKILL after the tensors are written and before the record is."""
    write(tmp_path, 4)
    script = (
        "import os, signal, torch, brimful.runs.checkpoint as c; from pathlib import Path\n"
        "c.commit = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"c.save(Path({str(tmp_path)!r}), 8, {{'weight': torch.ones(3)}}, {{}}, 10)"
    )
    assert subprocess.run([sys.executable, "-c", script], env=dict(os.environ), check=False).returncode == -9
    assert len(list(tmp_path.iterdir())) == 2
    assert load_latest(tmp_path)[0] == 4
    sweep(tmp_path)
    assert steps_on_disk(tmp_path) == [4]


def test_what_is_written_behind_is_what_was_given(seed, tmp_path, monkeypatch):
    """Training goes on, and changes tensors while the disk is slow."""
    slow = threading.Event()

    def late(*arguments):
        assert slow.wait(30)
        save(*arguments)

    monkeypatch.setattr(checkpoint, "save", late)
    weight = torch.randn(50, generator=torch.Generator().manual_seed(seed))
    given = weight.clone()
    with Writer(tmp_path, 2) as writer:
        writer.write(4, {"weight": weight}, {"at": 4})
        weight.zero_()
        writer.check()
        assert load_latest(tmp_path) is None
        slow.set()
        writer.write(8, {"weight": weight}, {"at": 8})
        assert (tmp_path / "step-4").exists()  # the one before is whole when the next begins
    assert steps_on_disk(tmp_path) == [4, 8]
    step, tensors, state = load_latest(tmp_path)
    assert (step, state) == (8, {"at": 8})
    shutil.rmtree(tmp_path / "step-8")
    step, tensors, state = load_latest(tmp_path)
    assert (step, state) == (4, {"at": 4})
    assert torch.equal(tensors["weight"], given)


@pytest.mark.parametrize("go_on", [lambda writer: writer.write(8, {}, {}), Writer.check, Writer.__exit__])
def test_what_cannot_be_written_behind_is_told_once(tmp_path, go_on):
    (tmp_path / "file").write_text("")
    writer = Writer(tmp_path / "file", 2)
    writer.write(4, {"weight": torch.ones(3)}, {})
    wait([writer._writing])
    with pytest.raises(BrimfulError, match="cannot write"):
        go_on(writer)
    writer.finish()


@pytest.mark.parametrize("number", [None, 1, checkpoint.FORMAT + 1])
def test_another_format_is_refused_in_one_line(seed, tmp_path, monkeypatch, number):
    """A checkpoint of another format is not skipped as a damaged one is: a new start would overwrite it."""
    write(tmp_path, 4)
    commit, named = checkpoint.commit, {} if number is None else {"format": number}
    monkeypatch.setattr(checkpoint, "commit", lambda *files, format, **facts: commit(*files, **facts | named))
    write(tmp_path, 8)
    assert list(checkpoint.read_states(tmp_path)) == [4]
    for read in (load_latest, lambda directory: checkpoint.load(directory, 8)):
        with pytest.raises(BrimfulError, match=r"step-8 was written by another version .*continue") as error:
            read(tmp_path)
        assert "\n" not in str(error.value)
        assert number != 1 or "format is 1" in str(error.value)


def test_one_of_them_is_loaded_and_nothing_is_changed(seed, tmp_path):
    written = write(tmp_path, 4)
    write(tmp_path, 8)
    before = sorted(tmp_path.rglob("*"))
    _, tensors, state = checkpoint.load(tmp_path, 4)
    assert torch.equal(tensors["weight"], written["weight"])
    assert state["cursor"]["row"] == 4
    with pytest.raises(BrimfulError, match=r"no checkpoint .*step-5: .* 4, 8"):
        checkpoint.load(tmp_path, 5)
    flip_a_byte(tmp_path / "step-4" / "tensors.safetensors")
    with pytest.raises(BrimfulError, match="damaged"):
        checkpoint.load(tmp_path, 4)
    assert sorted(tmp_path.rglob("*")) == before


def test_damaged_later_ones_do_not_rotate_out_what_is_written_now(seed, tmp_path):
    for step in (4, 8, 12):
        write(tmp_path, step)
    for step in (8, 12):
        flip_a_byte(tmp_path / f"step-{step}" / "tensors.safetensors")
    write(tmp_path, 6, keep=2)
    assert steps_on_disk(tmp_path) == [4, 6, 8, 12]
    assert load_latest(tmp_path)[0] == 6
    write(tmp_path, 8, keep=2)
    assert steps_on_disk(tmp_path) == [6, 8, 12]
    assert load_latest(tmp_path)[0] == 8
