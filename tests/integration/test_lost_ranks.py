"""Two real ranks of `brimful pretrain`, of which one is killed or stopped."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from builders.verbs import SMALL, command, start, wait_for

LONG = (*SMALL, "--trainer.steps", 60)


def ranks_of(process: subprocess.Popen) -> list[int]:
    return list(map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()))


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("rank", [0, 1])
def test_when_a_rank_is_killed_the_other_says_so_and_ends(chained, tmp_path, rank: int):
    out = tmp_path / "run"
    with start(command("pretrain", "--data", chained, "--out", out, *LONG, ranks=2)) as process:
        wait_for(process, out / "checkpoints" / "step-5")
        os.kill(ranks_of(process)[rank], signal.SIGKILL)
        began = time.monotonic()
        _, error = process.communicate(timeout=60)
    assert time.monotonic() - began < 30
    assert process.returncode
    (line,) = [line for line in error.decode().splitlines() if line.startswith("brimful: ")]
    lost = rf"brimful: rank {1 - rank} has lost another rank, which torchrun names \(.*Connection .+\);"
    assert re.fullmatch(lost + " the run can go on with --resume", line)


@pytest.mark.slow
@pytest.mark.distributed
def test_a_rank_that_does_not_answer_ends_the_run_at_the_limit(chained, tmp_path):
    out = tmp_path / "run"
    line = command("pretrain", "--data", chained, "--out", out, *LONG, "--trainer.hang-limit", 8, ranks=2)
    with start(line) as process:
        wait_for(process, out / "checkpoints" / "step-5")
        stopped, began = ranks_of(process)[1], time.monotonic()
        os.kill(stopped, signal.SIGSTOP)
        while process.poll() is None and time.monotonic() - began < 60:
            if len(ranks_of(process)) < 2:
                break
            time.sleep(0.2)
        assert 7 < time.monotonic() - began < 25
        os.kill(stopped, signal.SIGKILL)  # torchrun would do so in 30 s
        _, error = process.communicate(timeout=60)
    assert process.returncode
    (line,) = [line for line in error.decode().splitlines() if line.startswith("brimful: ")]
    assert re.fullmatch(r"brimful: rank 0 has waited in vain for .+ trainer\.hang_limit .+ --resume", line)
