"""Several ranks, on real processes: the losses of one rank, also where another number of ranks resumes. One
launch of two ranks makes all runs.
"""

import json
import os
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from builders.ranks import ROOT, on_ranks
from builders.uneven import NotANumberOnce, curve, uneven_trainer

OPTIMIZERS = ("adamw", "lamb", "muon")
SETTINGS: dict[str, float | str] = {"checkpoint_every": 10, "evaluate_every": 10, "clip": 0.5}
"""Every update is clipped: the norms are above 0.5."""
HALF: dict[str, Any] = {"precision": "fp16", "steps": 8, "optimizer": {"learning_rate": 1e-4}}
SPIKE: dict[str, float | str] = {"steps": 10, "checkpoint_every": 4, "evaluate_every": 4, "keep": "best"}

RANK = f"""
import json, os, shutil, signal, sys, time
from pathlib import Path
sys.path.insert(0, {str(ROOT / "tests")!r})
from brimful.base.distributed import join_ranks
from brimful.runs import checkpoint
from brimful.runs.signals import StoppedError
from brimful.train import data_parallel
from builders.uneven import NotANumberOnce, uneven_trainer
from test_gradients import check_buckets
from test_phases import check_clock

data_parallel.BUCKET_MB = 0.01  # several in this model
directory, jobs, seed = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()), int(sys.argv[3])


def stop_at(step, ranks, trainer):
    "Send a signal to the second rank in an update, and write checkpoints slowly."
    make, write = trainer.train_step, checkpoint.write_tensors

    def signalled(update):
        if trainer.progress.step == step and ranks.rank == 1:
            os.kill(os.getpid(), signal.SIGUSR1)
        return make(update)

    def slowly(*arguments):
        time.sleep(1)
        write(*arguments)

    trainer.train_step, checkpoint.write_tensors = signalled, slowly


def run(ranks, job):
    folder = directory / job["name"]
    if "resumes" in job and ranks.is_main:
        at = directory / job["resumes"] / "checkpoints" / "step-10"
        shutil.copytree(at, folder / "checkpoints" / "step-10")
    ranks.barrier()
    trainer = uneven_trainer(folder, seed, ranks, **job["settings"])
    if "resumes" in job:
        assert trainer.resume()
        assert trainer.progress.step == 10
    if "spike" in job:
        trainer.loss = NotANumberOnce(trainer, job["spike"])
    if "signal" in job:
        stop_at(job["signal"], ranks, trainer)
    try:
        trainer.run("test")
    except StoppedError as error:
        saved = [path.name for path in (folder / "checkpoints").glob("step-*")]
        stop = [trainer.progress.step, error.exit_code, saved]
        (folder / f"stop-{{ranks.rank}}.json").write_text(json.dumps(stop))
    tensors = list(trainer.state.trained.parameters())
    sums = [float(p.detach().double().sum()) for p in tensors]
    (folder / f"sums-{{ranks.rank}}.json").write_text(json.dumps(sums))
    ranks.barrier()


with join_ranks() as ranks:
    for job in jobs:
        run(ranks, job)
    check_buckets(ranks)
    check_clock(ranks, directory / "clock")
    (directory / f"checked-{{ranks.rank}}").touch()
os._exit(0)  # a thread of torch that still ends may abort the interpreter's end
"""


def job(optimizer: str, name: str = "", resumes: str = "", /, **settings: Any) -> dict:
    """A run, perhaps one that goes on from step 10 of another."""
    settings = SETTINGS | {"optimizer": {"name": optimizer}} | settings
    found = {"name": name or optimizer, "settings": settings}
    return found | {"resumes": resumes} if resumes else found


def alone(directory: Path, seed: int, name: str) -> list[float]:
    uneven_trainer(directory / name, seed, optimizer={"name": name}, **SETTINGS).run("test")
    return curve(directory / name)


class Runs:
    """All runs of two ranks, which end with the same parameters, and those of one rank that they are compared
    with."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory, self.seed = directory, seed
        self.expected = {name: alone(directory / "alone", seed, name) for name in OPTIMIZERS}
        jobs = [
            *map(job, OPTIMIZERS),
            job("adamw", "again", "adamw"),
            job("muon", "more ranks", "alone/muon"),
            job("adamw", "half", **HALF),
            job("adamw", "spike", on_spike="skip", **SPIKE) | {"spike": 6},
            job("adamw", "signal", checkpoint_every=100, evaluate_every=0) | {"signal": 4},
        ]
        (directory / "jobs.json").write_text(json.dumps(jobs))
        self.said = on_ranks(2, RANK, directory, directory / "jobs.json", seed)
        for each in jobs:
            first, second = ((directory / each["name"] / f"sums-{r}.json").read_text() for r in range(2))
            assert first == second

    def curve(self, name: str) -> list[float]:
        return curve(self.directory / name)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    seed = random.Random(f"{os.environ['BRIMFUL_TEST_SEED']} ranks").randrange(2**31)
    return Runs(tmp_path_factory.mktemp("ranks"), seed)


@pytest.mark.distributed
def test_two_ranks_have_the_losses_of_one(runs: Runs) -> None:
    """Losses, gradient norms and evaluations of 20 updates, within 1e-5. A rank may have no micro-batch, or a
    tenth of the other's predictions."""
    for name in OPTIMIZERS:
        assert len(runs.curve(name)) == 42
        assert runs.curve(name) == pytest.approx(runs.expected[name], rel=1e-5), name
    assert "2 ranks divide each update: an update holds the same on any number of ranks" in runs.said


@pytest.mark.distributed
def test_two_ranks_scale_the_loss_as_one_does(runs: Runs) -> None:
    """Within 5e-2: activations have 11 bits, and each run has scales of its own."""
    uneven_trainer(runs.directory / "alone-half", runs.seed, **SETTINGS | HALF).run("test")
    assert runs.curve("half") == pytest.approx(curve(runs.directory / "alone-half"), rel=5e-2)


@pytest.mark.distributed
@pytest.mark.parametrize("source", ["adamw", "muon"])
def test_one_rank_goes_on_from_a_checkpoint_of_two(runs: Runs, source: str) -> None:
    folder = runs.directory / f"{source}-alone"
    shutil.copytree(runs.directory / source / "checkpoints" / "step-10", folder / "checkpoints" / "step-10")
    trainer = uneven_trainer(folder, runs.seed, optimizer={"name": source}, **SETTINGS)
    assert trainer.resume()
    trainer.run("test")
    assert curve(folder) == pytest.approx(runs.expected[source][-21:], rel=1e-5)


@pytest.mark.distributed
def test_two_ranks_go_on_from_a_checkpoint_of_one(runs: Runs) -> None:
    assert runs.curve("more ranks") == pytest.approx(runs.expected["muon"][-21:], rel=1e-5)
    assert "1 rank before, 2 now: updates hold the same sequences, and the learning rate stays" in runs.said


@pytest.mark.distributed
def test_two_ranks_go_on_to_the_same_bits(runs: Runs) -> None:
    """The sums depend on where buckets begin and end."""
    assert runs.curve("again") == runs.curve("adamw")[-21:]
    again, straight = (runs.directory / name / "sums-0.json" for name in ("again", "adamw"))
    assert again.read_text() == straight.read_text()


@pytest.mark.distributed
def test_two_ranks_skip_and_end_with_their_best_weights(runs: Runs) -> None:
    """As one rank does; the loss is not a number on the main rank alone."""
    settings = {"optimizer": {"name": "adamw"}, "on_spike": "skip", "clip": 0.5, **SPIKE}
    trainer = uneven_trainer(runs.directory / "alone-spike", runs.seed, **settings)
    trainer.loss = NotANumberOnce(trainer, 6)
    trainer.run("test")
    assert trainer.guard.left_out == [6]
    sums = json.loads((runs.directory / "spike" / "sums-0.json").read_text())
    expected = [float(p.detach().double().sum()) for p in trainer.state.trained.parameters()]
    assert sums == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.distributed
def test_two_ranks_send_gradients_in_buckets_and_go_by_one_clock(runs: Runs) -> None:
    # The ranks themselves check it.
    assert {path.name for path in runs.directory.glob("checked-*")} == {"checked-0", "checked-1"}


@pytest.mark.distributed
def test_a_signal_to_one_rank_ends_both_after_the_checkpoint_is_written(runs: Runs) -> None:
    main, other = (json.loads((runs.directory / "signal" / f"stop-{r}.json").read_text()) for r in range(2))
    assert main == other
    step, code, saved = main
    assert 5 <= step <= 6
    assert (code, saved) == (128 + signal.SIGUSR1, [f"step-{step}"])
