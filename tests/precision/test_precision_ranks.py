"""Loss scaling, running means and stochastic rounding on two real ranks (gloo), with DDP."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import brimful
from brimful.base.errors import BrimfulError
from brimful.precision.narrow import NarrowWeights
from brimful.precision.running_mean import RunningMean
from brimful.precision.watching import watch_modules

SCRIPT = Path(__file__).with_name("precision_rank.py")


def on_two_ranks(case, seed, tmp_path):
    """What each of two ranks wrote."""
    environment = os.environ | {"PYTHONPATH": str(Path(brimful.__file__).parents[1])}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), case, str(seed), str(rank), str(tmp_path)], env=environment
        )
        for rank in range(2)
    ]
    assert [rank.wait(timeout=300) for rank in ranks] == [0, 0]
    return [json.loads((tmp_path / f"{rank}").read_text()) for rank in range(2)]


@pytest.mark.slow
@pytest.mark.cases(1)
@pytest.mark.distributed
@pytest.mark.parametrize("kind", ["ddp", "compressed"])
def test_ranks_agree_on_scales_that_one_of_them_needs(kind, seed, tmp_path):
    """Rank 1 alone sees large gradients; in a period of one update, each of two micro-batches."""
    results = on_two_ranks(f"scaling-{kind}", seed, tmp_path)
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
    results = on_two_ranks(f"narrow-{kind}", seed, tmp_path)
    assert results[0] == results[1]
    assert any(results[0]["changed"])


def test_sharded_parameters_are_refused(seed):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        module = fully_shard(torch.nn.Linear(4, 4))
        with pytest.raises(BrimfulError, match="whole on each rank: use DDP in place of FSDP2"):
            NarrowWeights(torch.optim.SGD(module.parameters(), lr=0.1))
        with pytest.raises(BrimfulError, match="whole on each rank: use DDP in place of FSDP2"):
            watch_modules(module)
    finally:
        dist.destroy_process_group()


@pytest.mark.cases(1)
@pytest.mark.distributed
def test_the_running_mean_is_the_global_mean_on_two_ranks(seed, tmp_path):
    for result in on_two_ranks("mean-ddp", seed, tmp_path):
        assert result["weight"] == pytest.approx(result["expected_weight"], rel=1e-15)
        assert result["error"] <= 1e-12
        assert result["largest"] > 1e-3


@pytest.mark.parametrize("weights", [[1, 1, 1], [3, 0, 117.5, 1e-3, 40], [0, 0, 5, 2]])
def test_the_running_mean_is_the_mean(weights, seed):
    torch.manual_seed(seed)
    parameters = [torch.nn.Parameter(torch.zeros(5, 3, dtype=torch.float64)) for _ in range(3)]
    gradients = torch.randn(len(weights), 3, 5, 3, dtype=torch.float64)
    mean = RunningMean(parameters)
    for _ in range(2):  # the second begins anew
        for weight, parts in zip(weights, gradients, strict=True):
            for parameter, part in zip(parameters, parts, strict=True):
                parameter.grad = part.clone()
            mean.add(weight)
            assert all(parameter.grad is None for parameter in parameters)
        assert mean.finish() == pytest.approx(sum(weights), rel=1e-15)
        expected = torch.tensordot(torch.tensor(weights, dtype=torch.float64), gradients, 1) / sum(weights)
        for parameter, part in zip(parameters, expected, strict=True):
            torch.testing.assert_close(parameter.grad, part, rtol=0, atol=1e-12)
        gradients *= -2


def test_a_parameter_that_some_micro_batches_do_not_use():
    late, early, never = (torch.nn.Parameter(torch.zeros((), dtype=torch.float64)) for _ in range(3))
    mean = RunningMean([late, early, never])
    early.grad = torch.tensor(8.0, dtype=torch.float64)
    mean.add(1)
    late.grad = torch.tensor(12.0, dtype=torch.float64)
    mean.add(3)
    mean.finish()
    assert (late.grad.item(), early.grad.item(), never.grad) == (9.0, 2.0, None)


def test_float16_holds_the_mean_of_any_number_of_micro_batches(seed):
    """A sum of these would be infinite after the second."""
    torch.manual_seed(seed)
    parameter = torch.nn.Parameter(torch.zeros(50, dtype=torch.float16))
    parts = (60_000 + 4_000 * torch.rand(200, 50)).half()
    mean = RunningMean([parameter])
    for part in parts:
        parameter.grad = part.clone()
        mean.add(7.0)
    mean.finish()
    assert parameter.grad.dtype == torch.float16
    # each step rounds to 32, half of a spacing of 32 at most, and later steps forget it again
    assert (parameter.grad.double() - parts.double().mean(0)).abs().max() <= parts.double().std(0).max()


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_impossible_weights(weight):
    with pytest.raises(BrimfulError, match="0 or more"):
        RunningMean([torch.nn.Parameter(torch.zeros(1))]).add(weight)


def test_a_mean_is_not_changed_by_what_comes_after(seed):
    """As with DDP's buckets, in which the next gradient overwrites the last one."""
    torch.manual_seed(seed)
    parameter = torch.nn.Parameter(torch.zeros(4))
    bucket = torch.ones(4)
    mean = RunningMean([parameter])
    parameter.grad = bucket
    mean.add(1)
    expected = copy.deepcopy(bucket)
    bucket.zero_()
    mean.finish()
    assert torch.equal(parameter.grad, expected)
