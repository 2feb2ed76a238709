"""TensorBoard shows the lines of metrics.jsonl, and a resumed run no step twice."""

import errno
import struct
import sys
from pathlib import Path

import pytest
import torch
from tensorboardX.proto.event_pb2 import Event, SessionLog

from brimful.base.distributed import SINGLE_RANK, World
from brimful.base.errors import BrimfulError
from brimful.train.journal import Journal, TensorBoard
from brimful.train.metrics import read_metrics
from builders.training import KilledError, examples_of, kill_at, trainer_of


def events_of(path: Path) -> list[Event]:
    """TFRecord: length, its CRC, the event, its CRC."""
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        found.append(Event.FromString(data[at + 12 : at + 12 + size]))
        at += 16 + size
    return found


def shown(directory: Path) -> list[tuple[int, str, float]]:
    """Step, name and value of all that TensorBoard shows: a START drops what came before from its step on."""
    found: list[tuple[int, str, float]] = []
    for path in sorted(directory.glob("events.out.tfevents.*"), key=lambda path: int(path.suffix[1:])):
        for event in events_of(path):
            if event.session_log.status == SessionLog.START:
                found = [value for value in found if value[0] < event.step]
            found += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
    return found


def written(directory: Path) -> list[tuple[int, str, float]]:
    return [
        (line["step"], name, pytest.approx(value, rel=1e-6))  # float32 there
        for line in read_metrics(directory / "metrics.jsonl")
        for name, value in line.items()
        if name != "step"
    ]


def test_tensorboard_shows_what_metrics_jsonl_has_also_after_a_kill(seed, tmp_path):
    settings = {"log_every": 2, "checkpoint_every": 4, "evaluate_every": 3}
    settings |= {"held_out": examples_of(9, seed + 1), "keep_checkpoints": 1}
    killed = kill_at(7, trainer_of(tmp_path, seed, **settings))
    with pytest.raises(KilledError):
        killed.run("test")
    assert shown(tmp_path / "tensorboard") == written(tmp_path)
    assert max(step for step, *_ in shown(tmp_path / "tensorboard")) == 6
    resumed = trainer_of(tmp_path, seed, **settings)
    assert resumed.resume()
    resumed.run("test")
    assert shown(tmp_path / "tensorboard") == written(tmp_path)
    trainer_of(tmp_path, seed, **settings).run(
        "test"
    )  # a run that starts over shows nothing of the one before
    assert shown(tmp_path / "tensorboard") == written(tmp_path)
    assert len(list((tmp_path / "tensorboard").iterdir())) == 3


def test_a_full_disk_is_one_line(tmp_path):
    board = TensorBoard(tmp_path)
    board.begin(0)
    writer = board._writer._py_recordio_writer

    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    writer.flush = full
    for use in (lambda: board.write(1, {"a": 1.0}), board.close):
        with pytest.raises(BrimfulError, match=r"^cannot write .*: No space left on device; free space"):
            use()
    writer.close()


def test_without_its_writer_a_run_has_no_event_files(tmp_path, monkeypatch):
    assert isinstance(Journal(tmp_path, SINGLE_RANK).board, TensorBoard)
    assert Journal(tmp_path, World(1, 2, torch.device("cpu"))).board is None
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    assert Journal(tmp_path, SINGLE_RANK).board is None
