"""Gradients in flat tensors: the same gradient as without, and what ranks send while backward goes on."""

from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from brimful.base.distributed import World
from brimful.precision import watching
from brimful.precision.scaler import AutomaticLossScaler
from brimful.train import data_parallel
from brimful.train.gradients import ALIGNMENT, Gradients, flatten

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
    means: dict[nn.Parameter, Tensor] = {}
    for number, loss in enumerate(losses(parameters, seed, count), 1):
        scaled = scaler.scale(loss) if scaler else loss
        (scaled * count if mean else scaled).backward()
        for p in parameters if mean else []:
            means[p] = means[p].lerp_(p.grad, 1 / number) if p in means else p.grad
            p.grad = None
    gradients = [means[p] if mean else p.grad for p in parameters]
    for p in parameters:
        p.grad = None
    return gradients


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
    assert all(p.grad.storage_offset() % ALIGNMENT == 0 for p in ours)
    for count in (4, 1, 3):
        found = gradient(gradients, seed + count, count)
        gradients.clip(0.0)
        counts = watching.take_counts(torch.device("cpu"))
        assert counts.sum() == scaled * count * sum(p.numel() for p in ours)
        gradients.clear()
        assert not any(p.grad.any() for p in ours)
        expected = plain_gradient(theirs, seed + count, count, mean, scalers[1])
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
        watching.forget_counts()


def check_buckets(ranks: World) -> None:
    """Ranks send buckets while the last micro-batch's backward goes on; tests/train/test_ranks.py calls this.

    A rank with fewer micro-batches, or none, sends zeros: rank 0 has two, rank 1 has none, one and two. A
    parameter that no loss reaches has a gradient of zeros.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_parallel, "BUCKET_MB", 4096 / 2**20)
        for other in (0, 1, 2):
            for mean in (False, True):
                _check_buckets(ranks, other, mean)


def _check_buckets(ranks: World, other: int, mean: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(30, 30) for _ in range(6)]).double()
    unreached = nn.Linear(3, 3).double()
    gradients = Gradients(nn.ModuleList([model, unreached]), ranks, mean=mean)
    addresses = [p.grad.data_ptr() for p in gradients.parameters]
    starts = [p.grad.storage_offset() for p in reversed(gradients.parameters)]
    assert starts.count(0) == len(gradients.flats)
    assert all(a < b for a, b in pairwise(starts) if b), "from the last to the first"
    send, order = dist.all_reduce, []

    def sent(*arguments, **named):
        order.append("send")
        return send(*arguments, **named)

    model[0].register_full_backward_hook(lambda *_: order.append("first layer"))
    own, total = 2 if ranks.rank == 0 else other, 2 + other
    for _ in range(3):
        order.clear()
        xs = torch.randn(4, 5, 30, dtype=torch.float64)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dist, "all_reduce", sent)
            gradients.begin(range(own), total)
            for index in range(own):
                x = xs[2 * ranks.rank + index].requires_grad_()
                gradients.backward(gradients.forward(lambda x: model(x).pow(2).sum(), x))
            gradients.gather()
        events = list(order)  # the pass of autograd.grad calls the hook too
        expected = torch.autograd.grad(
            sum(model(x).pow(2).sum() for x in xs[:total]), list(model.parameters())
        )
        for p, theirs in zip(model.parameters(), expected, strict=True):
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
