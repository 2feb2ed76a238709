"""Gradients over ranks on a GPU: through NCCL in a group of one, and on two processes that share the device.

NCCL refuses two ranks on one device, so the two send their gradients with gloo.
"""

import pytest
import torch
import torch.distributed as dist

from brimful.base.distributed import World
from brimful.train import data_parallel
from brimful.train.gradients import Gradients
from builders.ranks import ROOT, on_ranks
from builders.uneven import curve, uneven_trainer
from on_gpu import DEVICE, NEEDS_GPU, new_seed

pytestmark = NEEDS_GPU


SETTINGS = {"checkpoint_every": 0, "evaluate_every": 10, "clip": 0.5}
BUCKET_MB = 0.01

RANK = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT / "tests")!r})
import torch
import torch.distributed as dist
from brimful.base import distributed
from brimful.train import data_parallel
from builders.uneven import uneven_trainer

join = dist.init_process_group
dist.init_process_group = lambda backend, **named: join("gloo", **named)
distributed.default_device = lambda: torch.device("cuda", 0)
data_parallel.BUCKET_MB = {BUCKET_MB}
directory, seed = Path(sys.argv[1]), int(sys.argv[2])
with distributed.join_ranks() as ranks:
    for compiled in (False, True):
        name = f"compiled-{{compiled}}"
        uneven_trainer(directory / name, seed, ranks, compile=compiled, **{SETTINGS!r}).run("test")
"""


@pytest.fixture(autouse=True)
def _several_buckets(monkeypatch):
    monkeypatch.setattr(data_parallel, "BUCKET_MB", BUCKET_MB)


@pytest.fixture
def nccl():
    """A group of one rank."""
    torch.cuda.set_device(DEVICE)
    dist.init_process_group("cpu:gloo,cuda:nccl", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def gradients_of(seed: int, *, ranks: bool, compiled: bool) -> list[torch.Tensor]:
    """The gradients of five updates of three micro-batches, one after another."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(301, 517), torch.nn.GELU(), torch.nn.Linear(517, 7))
    model.to(DEVICE)
    loss = torch.compile(lambda x: model(x).square().mean(), mode="reduce-overhead", disable=not compiled)
    gradients = Gradients(model, World(0, 1, DEVICE))
    if ranks:
        gradients._connect()  # as with several ranks
    found = []
    for update in range(5):
        draw = torch.Generator(DEVICE).manual_seed(seed + update)
        batches = [torch.randn(64, 301, generator=draw, device=DEVICE) for _ in range(3)]
        gradients.begin(batches, len(batches))
        for batch in batches:
            torch.compiler.cudagraph_mark_step_begin()
            gradients.backward(gradients.forward(loss, batch))
        gradients.gather()
        found.append(torch.cat([p.grad.detach().flatten().clone() for p in model.parameters()]))
        gradients.clear()
    return found


@pytest.mark.parametrize("compiled", [False, True])
def test_a_group_of_one_on_nccl_changes_no_gradient(nccl, compiled):
    seed = new_seed()
    torch.compiler.reset()
    expected = gradients_of(seed, ranks=False, compiled=False)
    found = gradients_of(seed, ranks=True, compiled=compiled)
    u = 2.0**-22 + compiled * 1e-5
    for ours, theirs in zip(found, expected, strict=True):
        assert float((ours - theirs).abs().max()) <= 3 * u * float(theirs.abs().max())
        assert float((ours - theirs).norm()) <= 2 * u * float(theirs.norm())


def test_two_ranks_on_one_gpu_have_the_losses_of_one(tmp_path):
    """20 updates, uncompiled and as CUDA graphs; a rank may have no micro-batch."""
    seed = new_seed()
    on_ranks(2, RANK, tmp_path, seed)
    for compiled in (False, True):
        torch.compiler.reset()
        alone = uneven_trainer(
            tmp_path / f"alone-{compiled}", seed, World(0, 1, DEVICE), compile=compiled, **SETTINGS
        )
        alone.run("test")
        expected = curve(tmp_path / f"alone-{compiled}")
        assert len(expected) == 42
        assert curve(tmp_path / f"compiled-{compiled}") == pytest.approx(expected, rel=1e-4)
