"""Gradients in flat tensors: the same gradient as without, and what ranks send while backward goes on."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from brimful.base.distributed import World
from brimful.precision import watching
from brimful.precision.scaler import AutomaticLossScaler
from brimful.train.gradients import ALIGNMENT, Gradients, flatten
from builders.ranks import on_two_ranks

ALONE = World(0, 1, torch.device("cpu"))
SHAPES = [(7, 3), (5,), (64, 2), (1,), (130,)]


def parameters_of(seed: int, dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    torch.manual_seed(seed)
    return [nn.Parameter(torch.randn(shape).to(dtype)) for shape in SHAPES]


def losses(parameters: list[nn.Parameter], seed: int, count: int) -> list[Tensor]:
    torch.manual_seed(seed + 1)
    return [
        torch.stack([(p.float() * torch.randn(p.shape)).pow(2).sum() for p in parameters]).sum() / count
        for _ in range(count)
    ]


def gradient(gradients: Gradients, seed: int, count: int) -> list[Tensor]:
    """Of an update of so many micro-batches."""
    gradients.begin(range(count), count)
    for loss in losses(list(gradients.parameters), seed, count):
        gradients.backward(loss)
    gradients.gather()
    return [p.grad.clone() for p in gradients.parameters if p.grad is not None]


def plain_gradient(
    parameters: list[nn.Parameter], seed: int, count: int, mean: bool, scaler: AutomaticLossScaler | None
) -> list[Tensor]:
    """The same without flat tensors: added up by autograd, or by a running mean."""
    means: list[Tensor | None] = [None] * len(parameters)
    for number, loss in enumerate(losses(parameters, seed, count), 1):
        scaled = scaler.scale(loss) if scaler else loss
        (scaled * count if mean else scaled).backward()
        for place, parameter in enumerate(parameters if mean else []):
            part, before = parameter.grad, means[place]
            if part is not None:
                means[place] = part * (1 / number) if before is None else before.lerp_(part, 1 / number)
            elif before is not None:
                before.mul_(1 - 1 / number)
            parameter.grad = None
    if mean:
        for parameter, total in zip(parameters, means, strict=True):
            parameter.grad = total
    return [p.grad for p in parameters if p.grad is not None]


@pytest.mark.parametrize(
    ("how", "dtype"),
    [("sum", torch.float32), ("mean", torch.bfloat16), ("scaled", torch.float32), ("scaled", torch.float16)],
)
def test_flat_tensors_hold_the_gradient_bit_for_bit(seed, dtype, how):
    """Of several updates, so that nothing of one is left in the next; with 1 and more micro-batches."""
    ours, theirs = parameters_of(seed, dtype), parameters_of(seed, dtype)
    scaled, mean = how == "scaled", how != "sum"
    watching.forget_counts()  # of other tests
    if scaled:
        watching.watch_modules(nn.ParameterList(ours), parameters=False)
        watching.watch_modules(nn.ParameterList(theirs))
    scalers = [AutomaticLossScaler(2.0**10) if scaled else None for _ in range(2)]
    gradients = Gradients(nn.ParameterList(ours), ALONE, mean=mean, scaler=scalers[0])
    gradients.flats = gradients.flats or flatten(ours)  # else a CPU has none for a sum
    for count in (4, 1, 3):
        found = gradient(gradients, seed + count, count)
        gradients.clip(0.0)
        counts = watching.take_counts(torch.device("cpu"))
        assert counts.sum() == scaled * count * sum(p.numel() for p in ours)
        gradients.clear()
        assert not any(p.grad.any() for p in ours)
        expected = plain_gradient(theirs, seed + count, count, mean, scalers[1])
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
        for p in theirs:
            p.grad = None
        watching.forget_counts()


def test_views_begin_at_multiples_and_stay_where_they_are(seed):
    parameters = parameters_of(seed)
    (flat,) = flatten(parameters)
    addresses = [p.grad.data_ptr() for p in parameters]
    assert all((p.grad.storage_offset() % ALIGNMENT) == 0 for p in parameters)
    losses(parameters, seed, 1)[0].backward()
    assert [p.grad.data_ptr() for p in parameters] == addresses
    assert flat.padding == flat.numbers.numel() - sum(p.numel() for p in parameters)
    assert flat.numbers.count_nonzero() <= flat.numbers.numel() - flat.padding


RANKS = """
import os
import sys, torch, torch.distributed as dist
from pathlib import Path
from torch import nn
from brimful.base.distributed import join_ranks
from brimful.train import data_parallel
from brimful.train.gradients import Gradients

send = dist.all_reduce
data_parallel.BUCKET_MB = 4096 / 2**20

def check(ranks, other, mean):
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(30, 30) for _ in range(6)]).double()
    unreached = nn.Linear(3, 3).double()
    gradients = Gradients(nn.ModuleList([model, unreached]), ranks, mean=mean)
    addresses = [p.grad.data_ptr() for p in gradients.parameters]
    starts = [p.grad.storage_offset() for p in reversed(gradients.parameters)]
    assert starts.count(0) == len(gradients.flats)
    assert all(a < b for a, b in zip(starts, starts[1:]) if b), "from the last to the first"
    order = []
    def sent(*arguments, **named):
        order.append("send")
        return send(*arguments, **named)
    model[0].register_full_backward_hook(lambda *_: order.append("first layer"))
    own = 2 if ranks.rank == 0 else other
    total = 2 + other
    for update in range(3):
        order.clear()
        dist.all_reduce = sent
        xs = torch.randn(4, 5, 30, dtype=torch.float64)
        gradients.begin(range(own), total)
        for index in range(own):
            x = xs[2 * ranks.rank + index].requires_grad_()
            gradients.backward(gradients.forward(lambda x: model(x).pow(2).sum(), x))
        gradients.gather()
        dist.all_reduce = send
        events = list(order)  # the pass of autograd.grad calls the hook too
        rows = [*xs[:2], *xs[2:total]]
        expected = torch.autograd.grad(sum(model(x).pow(2).sum() for x in rows), list(model.parameters()))
        for p, theirs in zip(model.parameters(), expected):
            torch.testing.assert_close(p.grad, theirs, rtol=1e-12, atol=1e-12)
        assert all(not p.grad.any() for p in unreached.parameters())
        assert [p.grad.data_ptr() for p in gradients.parameters] == addresses
        if own:
            last = len(events) - 1 - events[::-1].index("first layer")
            assert events[:last].count("send") >= 3, events
            early = events[: events.index("first layer")].count("send")
            assert early == (0 if own > 1 else events[:last].count("send"))
        assert len(gradients.flats) == events.count("send") > 4
        gradients.clear()
    gradients.close()
    assert all(p.grad is None for p in gradients.parameters)

with join_ranks() as ranks:
    for other in (0, 1, 2):
        for mean in (False, True):
            check(ranks, other, mean)
Path(sys.argv[1], f"done{ranks.rank}").touch()
os._exit(0)  # a thread of torch that still ends may abort the interpreter's end
"""


@pytest.mark.distributed
def test_ranks_send_buckets_while_backward_goes_on(tmp_path: Path) -> None:
    """Also where a rank has fewer micro-batches, or none: it sends zeros. Only in the last micro-batch. Rank
    0 has two, rank 1 has none, one and two; a parameter that no loss reaches has a gradient of zeros."""
    on_two_ranks(RANKS, tmp_path)
    assert {path.name for path in tmp_path.glob("done*")} == {"done0", "done1"}
