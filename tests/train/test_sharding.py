"""Sharded optimizer states and FSDP2, on real ranks: the losses of one rank, and checkpoints in both
directions."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from builders.ranks import ROOT, on_ranks
from builders.uneven import curve, uneven_trainer

CPU = torch.device("cpu")
OPTIMIZERS: dict[str, dict[str, float | str]] = {
    "adamw": {"name": "adamw", "ema": 0.8, "pull": 0.1},
    "lamb": {"name": "lamb"},
    "muon": {"name": "muon", "pull": 0.1},
}
SETTINGS: dict[str, float | str] = {"checkpoint_every": 10, "evaluate_every": 10, "clip": 0.5}
"""The gradient norms of these runs are between 0.5 and 5, so every update is clipped."""

RANK = f"""
import json, os, shutil, sys
from pathlib import Path
sys.path.insert(0, {str(ROOT / "tests")!r})
import torch
from brimful.distributed import world
from builders.uneven import uneven_trainer

directory, jobs = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())

def run(ranks, job):
    folder = directory / job["name"]
    ranks.barrier()
    if "resumes" in job and ranks.is_main:
        at = directory / job["resumes"] / "checkpoints" / "step-10"
        shutil.copytree(at, folder / "checkpoints" / "step-10")
    ranks.barrier()
    trainer = uneven_trainer(folder, job["seed"], ranks, **job["settings"])
    if "resumes" in job:
        assert trainer.resume()
        assert trainer.step == 10
    trainer.run("test")
    tensors = list(trainer.state.trained.parameters())
    for p in tensors:  # whole, plain, and with memory of its own
        assert type(p) is torch.nn.Parameter
        assert p.untyped_storage().nbytes() == p.nbytes
    sums = [float(p.double().sum()) for p in tensors]
    (folder / f"sums-{{ranks.rank}}.json").write_text(json.dumps(sums))
    return trainer

with world() as ranks:
    for job in jobs:
        run(ranks, job)
"""


def run_on_ranks(count: int, directory: Path, jobs: list[dict]) -> str:
    """Run jobs one after the other on so many ranks. Both ranks end with the same parameters."""
    (directory / f"jobs-{count}.json").write_text(json.dumps(jobs))
    said = on_ranks(count, RANK, directory, directory / f"jobs-{count}.json")
    for each in jobs:
        first, *others = ((directory / each["name"] / f"sums-{r}.json").read_text() for r in range(count))
        assert all(other == first for other in others)
    return said


def job(seed: int, optimizer: str, shard: str, name: str = "", resumes: str = "") -> dict:
    """A run, perhaps one that goes on from step 10 of another."""
    settings = SETTINGS | {"shard": shard, "optimizer": OPTIMIZERS[optimizer]}
    found = {"name": name or f"{optimizer}-{shard}", "seed": seed, "settings": settings}
    return found | {"resumes": resumes} if resumes else found


def first_jobs(seed: int) -> list[dict]:
    """Every optimizer with each way of sharding."""
    shards = ("optimizer", "model")
    return [job(seed, "adamw", "none"), *(job(seed, name, shard) for name in OPTIMIZERS for shard in shards)]


def alone(directory: Path, seed: int, name: str, **config: float | str) -> list[float]:
    uneven_trainer(directory / name, seed, optimizer=OPTIMIZERS[name], **SETTINGS | config).run("test")
    return curve(directory / name)


def resumed(directory: Path, seed: int, name: str, source: str) -> list[float]:
    """What one rank gives from step 10 of another run on."""
    folder = directory / f"{source}-alone"
    shutil.copytree(directory / source / "checkpoints" / "step-10", folder / "checkpoints" / "step-10")
    trainer = uneven_trainer(folder, seed, optimizer=OPTIMIZERS[name], **SETTINGS)
    assert trainer.resume()
    trainer.run("test")
    return curve(folder)


@pytest.mark.distributed
def test_two_ranks_have_the_losses_of_one_however_they_share_and_resume(seed: int, tmp_path: Path) -> None:
    """Losses, gradient norms and evaluations of 20 updates, within 1e-5. One of two ranks may have no
    micro-batch, or hundredths of the other's predictions; every optimizer meets matrices that do not divide
    evenly, and fused ones. AdamW has an average, and a pull to the start.

    From a checkpoint of step 10 the other ten updates are the same, on one rank and in other layouts."""
    jobs = first_jobs(seed)
    for name, before, after in (
        ("adamw", "model", "none"),
        ("muon", "optimizer", "model"),
        ("lamb", "model", "optimizer"),
    ):
        jobs.append(job(seed, name, after, f"{name}-{before}-{after}", f"{name}-{before}"))
    said = run_on_ranks(2, tmp_path, jobs)
    assert "2 ranks divide each update and the model: an update holds the same" in said
    expected = {name: alone(tmp_path, seed, name) for name in OPTIMIZERS}
    for each in jobs:
        whole = expected[each["name"].partition("-")[0]]
        found = curve(tmp_path / each["name"])
        assert found == pytest.approx(whole[-len(found) :], rel=1e-5), each["name"]
        assert len(found) == (21 if "resumes" in each else len(whole)), each["name"]
    for name, source in (("adamw", "adamw-model"), ("adamw", "adamw-optimizer"), ("muon", "muon-model")):
        found = resumed(tmp_path, seed, name, source)
        assert found == pytest.approx(expected[name][-len(found) :], rel=1e-5)


@pytest.mark.slow
@pytest.mark.distributed
def test_four_ranks_go_on_where_two_or_one_stopped(seed: int, tmp_path: Path) -> None:
    """And one where four stopped; most updates leave some of the four without a micro-batch."""
    run_on_ranks(2, tmp_path, first_jobs(seed))
    expected = {name: alone(tmp_path, seed, name) for name in OPTIMIZERS}
    jobs = []
    for name in OPTIMIZERS:
        jobs += [
            job(seed, name, "model", f"{name}-2-model", f"{name}-model"),
            job(seed, name, "none", f"{name}-2-none", f"{name}-optimizer"),
            job(seed, name, "optimizer", f"{name}-1-optimizer", name),
            job(seed, name, "model", f"{name}-1-model", name),
            job(seed, name, "optimizer", f"{name}-4-optimizer"),
            job(seed, name, "model", f"{name}-4-model"),
        ]
    said = run_on_ranks(4, tmp_path, jobs)
    assert "2 ranks before, 4 now: updates hold the same sequences, and the learning rate stays" in said
    for each in jobs:
        found, whole = curve(tmp_path / each["name"]), expected[each["name"].partition("-")[0]]
        assert found == pytest.approx(whole[-len(found) :], rel=1e-5), each["name"]
    for name in OPTIMIZERS:
        found = resumed(tmp_path, seed, name, f"{name}-4-model")
        assert found == pytest.approx(expected[name][-len(found) :], rel=1e-5)
