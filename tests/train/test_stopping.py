"""Signals to some of several ranks: all stop after the same update, once its checkpoint is on disk."""

import json
import signal
from pathlib import Path

import pytest

from brimful.runs.signals import SIGNALS, StopRequest, choose_signal
from builders.ranks import on_two_ranks


def test_the_signal_that_came_to_any_rank_is_known_to_all() -> None:
    def after(*numbers: int) -> int:
        sums = dict.fromkeys(StopRequest().votes(), 0.0)
        for number in numbers:
            request = StopRequest()
            request.number = number
            sums = {name: sums[name] + vote for name, vote in request.votes().items()}
        return choose_signal(sums)

    assert after(0, 0) == 0
    for number in SIGNALS:
        assert after(0, number) == after(number, number) == number
    assert after(signal.SIGUSR1, signal.SIGTERM) == after(signal.SIGTERM, signal.SIGUSR1)


RANK = """
import json, os, signal, sys, time
from pathlib import Path
sys.path.insert(0, "tests")
from brimful.base.distributed import join_ranks
from brimful.runs import checkpoint
from brimful.runs.signals import StoppedError
from brimful.train.objective import Runtime
from builders.training import trainer_of
folder = Path(sys.argv[1])
write = checkpoint.write_tensors
def slowly(*arguments):
    time.sleep(2)
    write(*arguments)
checkpoint.write_tensors = slowly
with join_ranks() as ranks:
    trainer = trainer_of(folder / "run", 1, runtime=Runtime(ranks, "fp32"), steps=100, checkpoint_every=100)
    def signalled(batch, loss=trainer.loss):
        if trainer.progress.step == 4 and ranks.rank == 1:
            os.kill(os.getpid(), signal.SIGUSR1)
        return loss(batch)
    trainer.loss = signalled
    try:
        trainer.run("test")
    except StoppedError as error:
        saved = [path.name for path in (folder / "run" / "checkpoints").glob("step-*")]
        result = {"step": trainer.progress.step, "code": error.exit_code, "line": str(error), "saved": saved}
        (folder / f"{ranks.rank}.json").write_text(json.dumps(result))
"""


@pytest.mark.slow
@pytest.mark.distributed
def test_a_signal_to_one_rank_ends_both_alike_after_the_checkpoint_is_written(tmp_path: Path) -> None:
    on_two_ranks(RANK, tmp_path)
    main, other = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert main == other
    assert main["code"] == 128 + signal.SIGUSR1
    assert 5 <= main["step"] <= 6
    assert main["saved"] == [f"step-{main['step']}"]
    assert main["line"] == f"stopped by SIGUSR1 at step {main['step']}"
