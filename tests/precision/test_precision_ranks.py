"""Loss scaling and stochastic rounding on two real ranks (gloo), with DDP."""

import json
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from brimful.base.errors import BrimfulError
from brimful.precision.narrow import NarrowWeights
from brimful.precision.watching import watch_modules
from builders.ranks import on_two_ranks

SCRIPT = Path(__file__).with_name("precision_rank.py")


def found_on_two_ranks(case, seed, tmp_path):
    """What each of two ranks wrote."""
    on_two_ranks(SCRIPT.read_text(), tmp_path, case, seed)
    return [json.loads((tmp_path / f"{rank}").read_text()) for rank in range(2)]


@pytest.mark.slow
@pytest.mark.cases(1)
@pytest.mark.distributed
@pytest.mark.parametrize("kind", ["ddp", "compressed"])
def test_ranks_agree_on_scales_that_one_of_them_needs(kind, seed, tmp_path):
    """Rank 1 alone sees large gradients; in a period of one update, each of two micro-batches."""
    results = found_on_two_ranks(f"scaling-{kind}", seed, tmp_path)
    assert results[0]["scales"] == results[1]["scales"]
    assert results[0]["counts"] == results[1]["counts"]
    for step, (lower, above) in enumerate(results[0]["counts"]):
        mine = [result["seen"][step] for result in results]
        seen = [sum(each[0] for each in mine), sum(each[1] for each in mine)]
        assert lower + above == sum(seen)
        # The twin multiplies in another order: what lies at an edge may fall on either side of it.
        assert [lower, above] == pytest.approx(seen, abs=4)
        assert mine[0][1] == 0 < mine[1][1]
    assert results[0]["scales"] == [2.0 ** -(step + 1) for step in range(len(results[0]["scales"]))]
    assert results[0]["bytes"] == [8] * len(results[0]["scales"])
    assert results[0]["weights"] == results[1]["weights"]


@pytest.mark.slow
@pytest.mark.cases(1)
@pytest.mark.distributed
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_replicas_round_alike(kind, seed, tmp_path):
    """Each rank has batches, and a state of torch's generator, of its own."""
    results = found_on_two_ranks(f"narrow-{kind}", seed, tmp_path)
    assert results[0] == results[1]
    assert any(results[0]["changed"])


def test_sharded_parameters_are_refused(seed):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        module = fully_shard(torch.nn.Linear(4, 4))
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for refused in (lambda: NarrowWeights(optimizer), lambda: watch_modules(module)):
            with pytest.raises(BrimfulError, match="whole on each rank: use DDP in place of FSDP2"):
                refused()
    finally:
        dist.destroy_process_group()
