"""`brimful pretrain` that was killed, met a full disk or lost a checkpoint goes on to the same bits."""

import random
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from brimful.base.seals import check_seal
from brimful.base.storage import TEMPORARY, sweep
from brimful.runs import checkpoint
from builders.shared import mounted
from builders.verbs import SMALL, Call, check_same, command, kill_when, sha256

SLOW_DISK = """
import sys, time
from brimful.runs import checkpoint
from brimful.cli.main import main
commit = checkpoint.commit
def slow(*files, **facts):
    time.sleep(0.2)
    return commit(*files, **facts)
checkpoint.commit = slow
sys.exit(main(sys.argv[1:]))
"""
"""Runs a command line; a checkpoint takes 0.2 seconds to write, in which training goes on."""


def slowly(line: list[str]) -> list[str]:
    """The command line of `command` with a slow disk."""
    return [sys.executable, "-c", SLOW_DISK, *line[line.index("brimful") + 1 :]]


def count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def is_time(out: Path, lines: int, in_checkpoint: bool) -> bool:
    """Whether a run has logged so many lines and, if `in_checkpoint`, is writing a checkpoint."""
    is_writing = any((out / "checkpoints").glob(TEMPORARY + "*-step-*"))
    return count_lines(out / "metrics.jsonl") >= lines and (is_writing or not in_checkpoint)


@pytest.mark.slow
@pytest.mark.parametrize("mixed", [False, True], ids=["muon", "lamb on a mixture"])
def test_killed_many_times(chained, other, seed, tmp_path, call: Call, mixed):
    """At random moments, half of them while a checkpoint is being written; in two phases."""
    draw, out = random.Random(seed), tmp_path / "killed"
    new = ("pretrain", "--seed", 3, *SMALL, "--phases", "8:32", "12:64:6", "--trainer.checkpoint-every", 1)
    if mixed:
        new += ("--optimizer.name", "lamb", "--trainer.evaluate-every", 3, "--validation-tokens", 500)
        new += ("--data", f"{chained}:3", other)
    else:
        new += ("--optimizer.name", "muon", "--data", chained)
    assert call(*new, "--out", tmp_path / "whole").code == 0
    line = command(*new, "--out", out)
    for kill in range(8):
        next_line, in_checkpoint = count_lines(out / "metrics.jsonl") + 1, kill % 2 == 0
        now = partial(is_time, out, draw.randint(next_line, max(next_line, 18)), in_checkpoint)
        if in_checkpoint:
            was_killed = kill_when(slowly(line), now)
            assert not was_killed or now(), "it was killed too late"
        else:
            was_killed = kill_when(line, now, draw.random() / 10)
        if not was_killed:
            break
        line = command("pretrain", "--resume", out)
    else:
        assert call("pretrain", "--resume", out).code == 0
    check_same(out, tmp_path / "whole")


@pytest.fixture(scope="module")
def interrupted(chained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of `pretrained`, killed when it had checkpoints at 10 and 15, with a copy of its data."""
    folder = tmp_path_factory.mktemp("interrupted")
    data, out = shutil.copytree(chained, folder / "data"), folder / "run"
    line = command("pretrain", "--data", data, "--out", out, "--seed", 3, *SMALL)
    assert kill_when(slowly(line), out / "checkpoints" / "step-15")
    for step in (5, 20):  # it is killed before or after the first of them goes, and maybe late
        shutil.rmtree(out / "checkpoints" / f"step-{step}", ignore_errors=True)
    assert checkpoint.list_steps(out / "checkpoints") == [10, 15]
    return out


def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_is_used(
    interrupted, pretrained, tmp_path, call: Call
):
    """Damages of each kind: tests/runs/test_checkpoint.py."""
    out = shutil.copytree(interrupted, tmp_path / "run")
    (out / "checkpoints" / "step-15" / "checkpoint.json").write_bytes(b'{"step": 15, "\xff[[[')
    answer = call("pretrain", "--resume", out)
    assert answer.code == 0
    assert answer.error.count("warning: skipping a checkpoint: ") == 1
    assert "step-15" in answer.error
    assert "resuming at step 10" in answer.error
    check_same(out, pretrained)


FINISHING = """
import os, shutil, signal, sys
from pathlib import Path
from brimful.runs.job import finish

run, root = Path(sys.argv[1]), Path(sys.argv[2])
WATCHED = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree"}
for crash in range(1000):
    copy = root / str(crash)
    shutil.copytree(run, copy, copy_function=os.link)  # nothing of a run is written in place but logs
    child = os.fork()
    if not child:
        events = 0
        def hook(event, arguments):
            global events
            if event in WATCHED:
                if events == crash:
                    os.kill(os.getpid(), signal.SIGKILL)
                events += 1
        sys.addaudithook(hook)
        finish(copy, {"kind": "pretrain"}, ("blocks", "validation", "start"))
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        print(crash)
        break
"""


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): sha256(path) for path in folder.rglob("*") if path.is_file()}


def test_killed_at_any_step_of_finishing_it_is_finished_or_can_go_on(
    interrupted, pretrained, tmp_path, call: Call
):
    run = tmp_path / "run"
    shutil.copytree(interrupted, run)
    shutil.copytree(pretrained / "encoder", run / "encoder")
    sweep(run / "checkpoints")
    kept = [path.name for path in run.iterdir()]
    assert {"start", "blocks"} <= {*kept}
    before = content(run)
    driver = [sys.executable, "-c", FINISHING, str(run), str(tmp_path / "copies")]
    count = int(subprocess.run(driver, check=True, capture_output=True, text=True).stdout)
    assert count > 20
    finished = 0
    for copy in (tmp_path / "copies" / str(number) for number in range(count)):
        if (copy / "summary.json").exists():
            finished += 1
            check_seal(copy / "encoder")
            assert (copy / "encoder" / "checksums.json").is_file()
            assert call("pretrain", "--resume", copy).value == {"kind": "pretrain"}
        else:
            assert {name: found for name, found in content(copy).items() if name in before} | {
                name: found for name, found in before.items() if name.startswith("encoder/checksums")
            } == before
    assert 3 < finished < count
    last = tmp_path / "copies" / str(count - finished - 1)
    assert call("pretrain", "--resume", last).code == 0
    check_same(last, pretrained)


def test_a_full_disk_is_one_line_and_the_run_goes_on_later(interrupted, pretrained, tmp_path, call: Call):
    with mounted(tmp_path / "disk", "64m") as disk:
        out, ballast = disk / "run", disk / "ballast"
        shutil.copytree(interrupted, out)
        for folder in (out, out / "checkpoints"):
            sweep(folder)  # the killed run may have left half of one
        ballast.write_bytes(bytes(shutil.disk_usage(disk).free - 500_000))
        before = checkpoint.read_states(out / "checkpoints")
        message = call("pretrain", "--resume", out).message
        assert all(part in message for part in ("cannot write", "step-20", "free space"))
        assert checkpoint.read_states(out / "checkpoints") == before
        ballast.unlink()
        answer = call("pretrain", "--resume", out)
        assert "resuming at step 15" in answer.error
        assert "skipping" not in answer.error
        check_same(out, pretrained)
