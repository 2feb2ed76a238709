"""Several ranks, on real processes: the losses of one rank, however the state is divided among them.

Optimizer states and the model are sharded, gradients are sent in 16 bits, and checkpoints of one layout are
resumed in others. One launch of two ranks makes all runs of the default suite.
"""

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from brimful.commands.distil_config import DistilConfig
from brimful.commands.pretrain import _resolve
from brimful.commands.pretrain_config import PretrainConfig
from brimful.distributed import ALONE
from brimful.errors import BrimfulError
from brimful.optim.build import OptimizerConfig, build_optimizers
from brimful.runs.lock import FolderLock
from brimful.train.config import TrainerConfig
from brimful.train.objective import Runtime
from brimful.train.sharding import owners, work_on_whole
from brimful.train.trainer import _say_once
from builders.ranks import ROOT, on_ranks
from builders.uneven import NotANumberOnce, curve, uneven_trainer

OPTIMIZERS: dict[str, dict[str, float | str]] = {
    "adamw": {"name": "adamw", "ema": 0.8, "pull": 0.1},
    "lamb": {"name": "lamb"},
    "muon": {"name": "muon", "pull": 0.1},
}
SETTINGS: dict[str, float | str] = {"checkpoint_every": 10, "evaluate_every": 10, "clip": 0.5}
"""Every update is clipped: the norms are above 0.5."""
SPIKE: dict[str, float | str] = {"steps": 10, "checkpoint_every": 4, "evaluate_every": 4, "keep": "best"}

RANK = f"""
import json, shutil, sys
from pathlib import Path
sys.path.insert(0, {str(ROOT / "tests")!r})
import torch, torch.distributed as dist
from brimful.distributed import world
from brimful.optim.build import OptimizerConfig
from brimful.train import compression
from brimful.train.compression import CompressedSum
from brimful.train.state import TrainState
from builders.uneven import NotANumberOnce, uneven_trainer

UNIT = {{"bf16": 2.0**-8, "fp16": 2.0**-11}}
FLOOR = {{"bf16": 0.0, "fp16": 2.0**-39}}
directory, jobs, seed = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()), int(sys.argv[3])


def run(ranks, job):
    folder = directory / job["name"]
    if "resumes" in job and ranks.is_main:
        at = directory / job["resumes"] / "checkpoints" / "step-10"
        shutil.copytree(at, folder / "checkpoints" / "step-10")
    ranks.barrier()
    trainer = uneven_trainer(folder, seed, ranks, **job["settings"])
    if "resumes" in job:
        assert trainer.resume()
        assert trainer.step == 10
    if "spike" in job:
        trainer.loss = NotANumberOnce(trainer, job["spike"])
    trainer.run("test")
    tensors = list(trainer.state.trained.parameters())
    for p in tensors:  # whole, plain, and with memory of its own
        assert type(p) is torch.nn.Parameter
        assert p.untyped_storage().nbytes() == p.nbytes
    sums = [float(p.detach().double().sum()) for p in tensors]
    (folder / f"sums-{{ranks.rank}}.json").write_text(json.dumps(sums))
    ranks.barrier()
    return trainer


def check_again(trainer):
    "The same modules are sharded and made whole again, by the next training of a command."
    before = [p.detach().clone() for p in trainer.state.trained.parameters()]
    arguments = (trainer.encoder, trainer.objective, trainer.runtime, trainer.config, OptimizerConfig(), 0)
    TrainState(*arguments).finish()
    assert all(torch.equal(*pair) for pair in zip(before, trainer.state.trained.parameters(), strict=True))


def spread(seed, size, largest):
    "Numbers over ten decades."
    draw = torch.Generator().manual_seed(seed)
    decades = torch.randint(-9, 1, (size,), generator=draw)
    return torch.randn(size, generator=draw) * largest * 10.0**decades


def check_bound(ranks, format):
    size = ranks.size * 64 * 40
    for largest in (1e-30, 1.0, 1e30):
        parts = [spread(seed + rank, size, largest) for rank in range(ranks.size)]
        exact = sum(part.double() for part in parts)
        terms = sum(part.double().abs() for part in parts) + exact.abs()
        found = parts[ranks.rank].clone()
        CompressedSum(found, ranks, format).wait()
        u, most = UNIT[format], max(float(part.abs().max()) for part in (*parts, exact))
        bound = u * (1 + u) * terms + (ranks.size + 1) * FLOOR[format] * most
        error = (found.double() - exact).abs()
        assert (error <= bound * (1 + 1e-5)).all(), (error / bound).max()
        assert error.any()
        theirs = [torch.empty_like(found) for _ in range(ranks.size)]
        dist.all_gather(theirs, found)
        assert all(torch.equal(found, their) for their in theirs)


def check_exact(ranks, format):
    "Small whole numbers arrive as they are, and what is not a number does not become one."
    small = torch.arange(ranks.size * 64) % 100.0
    found = small.clone()
    CompressedSum(found, ranks, format).wait()
    assert torch.equal(found, ranks.size * small)
    for bad in (torch.nan, torch.inf):
        found = torch.ones(ranks.size * 64)
        if ranks.rank:
            found[3] = bad
        CompressedSum(found, ranks, format).wait()
        assert not torch.isfinite(found[3])


def check_bytes(ranks, job):
    "Half of what a ring all-reduce sends in float32, and a little for the powers of two."
    sent = []
    send, gather = compression.all_to_all, compression.all_gather

    def spy(call, times):
        def spied(out, own, **named):
            sent.append(own.nbytes * times)
            return call(out, own, **named)
        return spied

    others = ranks.size - 1
    compression.all_to_all, compression.all_gather = spy(send, others / ranks.size), spy(gather, others)
    trainer = run(ranks, job)
    compression.all_to_all, compression.all_gather = send, gather
    share = sum(sent) / (20 * 4 * job["numbers"] * others / ranks.size)
    assert 1 < share < 1.05, share


with world() as ranks:
    for job in jobs:
        trainer = check_bytes(ranks, job) if "numbers" in job else run(ranks, job)
        if job["name"] == "adamw-model":
            check_again(trainer)
    for format in UNIT:
        check_bound(ranks, format)
        check_exact(ranks, format)
"""


def job(optimizer: str, shard: str, name: str = "", resumes: str = "", **settings: float | str) -> dict:
    """A run, perhaps one that goes on from step 10 of another."""
    chosen = SETTINGS | {"shard": shard, "optimizer": OPTIMIZERS[optimizer]} | settings
    found = {"name": name or f"{optimizer}-{shard}", "settings": chosen}
    return found | {"resumes": resumes} if resumes else found


def first_jobs() -> list[dict]:
    """Every optimizer with each way of sharding."""
    shards = ("optimizer", "model")
    return [job("adamw", "none"), *(job(name, shard) for name in OPTIMIZERS for shard in shards)]


def run_on_ranks(count: int, directory: Path, jobs: list[dict], seed: int) -> str:
    """Run jobs one after the other on so many ranks, which end with the same parameters."""
    (directory / f"jobs-{count}.json").write_text(json.dumps(jobs))
    said = on_ranks(count, RANK, directory, directory / f"jobs-{count}.json", seed)
    for each in jobs:
        first, *others = ((directory / each["name"] / f"sums-{r}.json").read_text() for r in range(count))
        assert all(other == first for other in others)
    return said


def alone(directory: Path, seed: int, name: str, **config: Any) -> list[float]:
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


class Runs:
    """All runs of two ranks, and those of one rank that they are compared with."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory, self.seed = directory, seed
        parameters = uneven_trainer(directory / "unused", seed).state.parameters.values()
        numbers = sum(-(-p.numel() // 64) * 64 for p in parameters)
        small = {"bucket_mb": 0.01}
        self.jobs = [
            *first_jobs(),
            job("adamw", "none", "adamw-model-none", "adamw-model"),
            job("muon", "model", "muon-optimizer-model", "muon-optimizer"),
            job("lamb", "optimizer", "lamb-model-optimizer", "lamb-model"),
            job("adamw", "none", "sent-fp16", compression="fp16", **small) | {"numbers": numbers},
            job("adamw", "optimizer", "sent-bf16", compression="bf16", **small) | {"numbers": numbers},
            job("adamw", "none", "bf16-none", precision="bf16", steps=6),
            job("adamw", "model", "bf16-model", precision="bf16", steps=6),
            job("lamb", "none", "fp16-none", precision="fp16", steps=6),
            job("lamb", "optimizer", "fp16-optimizer", precision="fp16", steps=6),
            job("adamw", "model", "spike-model", on_spike="skip", **SPIKE) | {"spike": 6},
        ]
        self.said = run_on_ranks(2, directory, self.jobs, seed)
        self.expected = {name: alone(directory, seed, name) for name in OPTIMIZERS}

    def curve(self, name: str) -> list[float]:
        return curve(self.directory / name)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    seed = random.Random(f"{os.environ['BRIMFUL_TEST_SEED']} ranks").randrange(2**31)
    return Runs(tmp_path_factory.mktemp("ranks"), seed)


@pytest.mark.distributed
def test_two_ranks_have_the_losses_of_one_however_they_share(runs: Runs) -> None:
    """Losses, gradient norms and evaluations of 20 updates, within 1e-5. A rank may have no micro-batch, or a
    tenth of the other's predictions; every optimizer meets matrices that do not divide evenly, and fused
    ones. AdamW has an average, and a pull to the start."""
    for each in first_jobs():
        whole, found = runs.expected[each["name"].partition("-")[0]], runs.curve(each["name"])
        assert len(found) == 42
        assert found == pytest.approx(whole, rel=1e-5), each["name"]
    assert "2 ranks divide each update and the model, which is not compiled: an update" in runs.said


@pytest.mark.distributed
def test_another_layout_goes_on_from_a_checkpoint(runs: Runs) -> None:
    for each in runs.jobs:
        if "resumes" in each:
            whole, found = runs.expected[each["name"].partition("-")[0]], runs.curve(each["name"])
            assert len(found) == 21
            assert found == pytest.approx(whole[-21:], rel=1e-5), each["name"]


@pytest.mark.distributed
@pytest.mark.parametrize("source", ["adamw-model", "adamw-optimizer", "muon-model"])
def test_one_rank_goes_on_from_a_checkpoint_of_two(runs: Runs, source: str) -> None:
    name = source.partition("-")[0]
    found = resumed(runs.directory, runs.seed, name, source)
    assert len(found) == 21
    assert found == pytest.approx(runs.expected[name][-21:], rel=1e-5)


@pytest.mark.distributed
@pytest.mark.parametrize(("name", "tolerance"), [("sent-fp16", 5e-4), ("sent-bf16", 5e-3)])
def test_losses_of_compressed_gradients_are_within_a_tolerance(
    runs: Runs, name: str, tolerance: float
) -> None:
    """And differ. The script checks the bound of each number, and the bytes that are sent."""
    assert runs.curve(name) == pytest.approx(runs.expected["adamw"], rel=tolerance)
    assert runs.curve(name) != pytest.approx(runs.expected["adamw"], rel=1e-7)


@pytest.mark.distributed
def test_other_precisions_are_the_same_sharded(runs: Runs) -> None:
    """In bf16 FSDP2 gathers 16 bits of what autocast would round anyway; a sum in another order may still
    round an activation to the next number: 2e-3."""
    assert runs.curve("bf16-model") == pytest.approx(runs.curve("bf16-none"), rel=2e-3)
    assert runs.curve("bf16-none") != pytest.approx(runs.expected["adamw"], rel=1e-5)
    assert runs.curve("fp16-optimizer") == pytest.approx(runs.curve("fp16-none"), rel=1e-5)


@pytest.mark.distributed
def test_a_sharded_model_skips_and_ends_with_its_best_weights(runs: Runs) -> None:
    """As one rank that leaves out the same update."""
    trainer = uneven_trainer(
        runs.directory / "spike", runs.seed, optimizer=OPTIMIZERS["adamw"], on_spike="skip", clip=0.5, **SPIKE
    )
    trainer.loss = NotANumberOnce(trainer, 6)
    trainer.run("test")
    assert trainer.guard.left_out == [6]
    sums = json.loads((runs.directory / "spike-model" / "sums-0.json").read_text())
    expected = [float(p.detach().double().sum()) for p in trainer.state.trained.parameters()]
    assert sums == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.slow
@pytest.mark.distributed
def test_four_ranks_go_on_where_two_or_one_stopped(seed: int, tmp_path: Path) -> None:
    """And one where four stopped; most updates leave some of the four without a micro-batch."""
    run_on_ranks(2, tmp_path, first_jobs(), seed)
    expected = {name: alone(tmp_path, seed, name) for name in OPTIMIZERS}
    jobs = []
    for name in OPTIMIZERS:
        jobs += [
            job(name, "model", f"{name}-2-model", f"{name}-model"),
            job(name, "none", f"{name}-2-none", f"{name}-optimizer"),
            job(name, "optimizer", f"{name}-1-optimizer", name),
            job(name, "model", f"{name}-1-model", name),
            job(name, "optimizer", f"{name}-4-optimizer"),
            job(name, "model", f"{name}-4-model"),
        ]
    said = run_on_ranks(4, tmp_path, jobs, seed)
    assert "2 ranks before, 4 now: updates hold the same sequences, and the learning rate stays" in said
    for each in jobs:
        found, whole = curve(tmp_path / each["name"]), expected[each["name"].partition("-")[0]]
        assert found == pytest.approx(whole[-len(found) :], rel=1e-5), each["name"]
    for name in OPTIMIZERS:
        found = resumed(tmp_path, seed, name, f"{name}-4-model")
        assert found == pytest.approx(expected[name][-len(found) :], rel=1e-5)


def test_whole_matrices_are_dealt_by_their_work() -> None:
    """Muon's by the products, LAMB's by their size, AdamW's not at all."""
    shapes = {"wide": (30, 10), "square": (20, 20), "tall": (10, 40), "vector": (7,)}
    parameters = {name: torch.nn.Parameter(torch.zeros(shape)) for name, shape in shapes.items()}
    names = {parameter: name for name, parameter in parameters.items()}
    matrices = {"wide": 3, "square": 1, "tall": 1}
    found = {
        kind: work_on_whole(build_optimizers(OptimizerConfig(name=kind), parameters, matrices), names)
        for kind in ("adamw", "lamb", "muon")
    }
    assert found["adamw"] == {}
    assert found["lamb"] == {"wide": 300, "square": 400, "tall": 400, "vector": 7}
    assert found["muon"] == {"wide": 3000, "square": 8000, "tall": 4000}
    assert owners(found["muon"], 2) == {"square": 0, "tall": 1, "wide": 1}
    assert owners({"a": 1.0}, 4) == {"a": 0}


def test_what_does_not_go_with_ranks_that_share_is_refused() -> None:
    for shard in ("optimizer", "model"):
        with pytest.raises(BrimfulError, match=rf"trainer\.shard is {shard}, which needs float32 weights"):
            TrainerConfig(shard=shard, weights="bf16")
    with pytest.raises(BrimfulError, match=r"trainer\.compression does nothing with trainer\.shard=model"):
        TrainerConfig(shard="model", compression="fp16")
    with pytest.raises(BrimfulError, match=r"trainer\.compile does not go with trainer\.shard=model"):
        TrainerConfig(shard="model", compile=True)
    with pytest.raises(BrimfulError, match=r"trainer\.compression is fp16, .*bf16 .*leave out"):
        TrainerConfig(compression="fp16", weights="bf16")
    for size in (0.0, -1.0, 1e6):
        with pytest.raises(BrimfulError, match=r"trainer\.bucket_mb"):
            TrainerConfig(bucket_mb=size)
    with pytest.raises(BrimfulError, match=r"trainer\.shard=model does not scale losses"):
        Runtime.of(ALONE, "fp16", TrainerConfig(shard="model"))
    with pytest.raises(BrimfulError, match=r"trainer\.shard=model .*distillation"):
        DistilConfig(trainer=TrainerConfig(shard="model"))


def test_a_sharded_model_needs_rows_as_a_number(tmp_path: Path) -> None:
    config = PretrainConfig(
        data="data",
        out=str(tmp_path / "run"),
        rows_per_micro_batch="auto",
        trainer=TrainerConfig(shard="model"),
    )
    with pytest.raises(BrimfulError, match=r"trainer\.shard=model needs rows_per_micro_batch as a number"):
        _resolve(config, ALONE, FolderLock())


def test_one_rank_says_that_it_shares_nothing(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _say_once.cache_clear()  # another test of this process may have said it
    uneven_trainer(tmp_path, seed, shard="optimizer", steps=1).run("test")
    assert "trainer.shard=optimizer does nothing here: there is one rank" in capsys.readouterr().err
