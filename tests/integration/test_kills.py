"""`brimful pretrain` killed, on a full disk, with damaged checkpoints: it goes on to the same bits."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from brimful.base.seals import check_seal
from brimful.base.storage import TEMPORARY, sweep
from brimful.runs import checkpoint
from builders.disks import mounted
from builders.verbs import SMALL, WEIGHTS, Call, command, kill_when, sha256, start, steps_and_losses

ALL_AT_ONCE = (
    *("--optimizer.name", "lamb", "--phases", "8:32", "12:64:6"),
    *("--trainer.evaluate-every", 3, "--trainer.checkpoint-every", 1, "--validation-tokens", 500),
)
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


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def killed(line: list[str], now: Callable[[], bool], after: float = 0.0) -> bool:
    """Run it and kill it `after` seconds from when `now` says so; false if it was done before."""
    with start(line) as process:
        while process.poll() is None and not now():
            time.sleep(0.002)
        time.sleep(after)
        process.send_signal(signal.SIGKILL)
        _, error = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), error.decode()
    return process.returncode != 0


def check_same(out: Path, reference: Path) -> None:
    assert sha256(out / WEIGHTS) == sha256(reference / WEIGHTS)
    assert steps_and_losses(out) == steps_and_losses(reference)
    states = [checkpoint.read_states(run / "checkpoints") for run in (out, reference)]
    assert states[0].keys() == states[1].keys()
    assert states[0][max(states[0])]["best"] == states[1][max(states[1])]["best"]
    assert not list(out.rglob(".tmp-*"))


def kill_often(
    kills: int, draw: random.Random, settings: tuple, chained: Path, tmp_path: Path, call: Call
) -> None:
    """Kill a run at random moments, half of them while a checkpoint is being written; compare the end."""
    new = ("pretrain", "--data", chained, "--seed", 3, *SMALL, *settings)
    assert call(*new, "--out", tmp_path / "whole").code == 0
    out = tmp_path / "killed"
    metrics, checkpoints = out / "metrics.jsonl", out / "checkpoints"
    writing = TEMPORARY + "*-step-*"
    line = command(*new, "--out", out)
    for kill in range(kills):
        done = lines_of(metrics)
        wanted = draw.randint(done + 1, max(done + 1, 18))

        def trained(wanted: int = wanted) -> bool:
            return lines_of(metrics) >= wanted

        if kill % 2:
            made = killed(line, trained, draw.random() / 10)
        else:
            made = killed(slowly(line), lambda: trained() and any(checkpoints.glob(writing)))
            assert not made or any(checkpoints.glob(writing)), "it was killed too late"
        if not made:
            break
        line = command("pretrain", "--resume", out)
    else:
        assert call("pretrain", "--resume", out).code == 0
    check_same(out, tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ("--optimizer.name", "muon", "--phases", "8:32", "12:64:6", "--trainer.checkpoint-every", 1),
        ALL_AT_ONCE,
    ],
    ids=["muon, two phases", "all at once"],
)
def test_killed_many_times(chained, seed, tmp_path, call: Call, settings):
    kill_often(8, random.Random(seed), settings, chained, tmp_path, call)


@pytest.fixture(scope="module")
def interrupted(chained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `pretrained` would be, killed with checkpoints at 10 and 15; beside it data of its own."""
    folder = tmp_path_factory.mktemp("interrupted")
    data, out = shutil.copytree(chained, folder / "data"), folder / "run"
    line = command("pretrain", "--data", data, "--out", out, "--seed", 3, *SMALL)
    kill_when(start(slowly(line)), out / "checkpoints" / "step-15")
    for step in (5, 20):  # it is killed before or after the first of them goes, and maybe late
        shutil.rmtree(out / "checkpoints" / f"step-{step}", ignore_errors=True)
    assert checkpoint.list_steps(out / "checkpoints") == [10, 15]
    return out


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[random.SystemRandom().randrange(len(data))] ^= 0x10
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "a flipped bit": lambda folder: flip(folder / "tensors.safetensors"),
    "garbage JSON": lambda folder: (folder / "checkpoint.json").write_bytes(b'{"step": 15, "\xff[[['),
}


@pytest.mark.cases(1)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_is_used(
    interrupted, pretrained, tmp_path, call: Call, damage
):
    out = tmp_path / "run"
    shutil.copytree(interrupted, out)
    DAMAGES[damage](out / "checkpoints" / "step-15")
    answer = call("pretrain", "--resume", out)
    assert answer.code == 0
    assert answer.error.count("warning: skipping a checkpoint: ") == 1
    assert "step-15" in answer.error
    assert "put" not in answer.error  # no advice: what can be done is done
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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MB."""
    with mounted(tmp_path / "disk", "64m") as place:
        yield place


def test_a_full_disk_is_one_line_and_the_run_goes_on_later(interrupted, pretrained, small_disk, call: Call):
    out, ballast = small_disk / "run", small_disk / "ballast"
    shutil.copytree(interrupted, out)
    for folder in (out, out / "checkpoints"):
        sweep(folder)  # the killed run may have left half of one
    free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
    ballast.write_bytes(bytes(free - 500_000))
    before = checkpoint.read_states(out / "checkpoints")
    message = call("pretrain", "--resume", out).message
    assert "cannot write" in message
    assert "step-20" in message
    assert "free space" in message
    assert checkpoint.read_states(out / "checkpoints") == before
    ballast.unlink()
    answer = call("pretrain", "--resume", out)
    assert "resuming at step 15" in answer.error
    assert "skipping" not in answer.error
    check_same(out, pretrained)
