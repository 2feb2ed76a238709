"""Automatic Loss Scaling with models and loops that are not the project's."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from brimful.base.errors import BrimfulError
from brimful.precision.scaler import AutomaticLossScaler
from brimful.precision.watching import watch, watch_modules
from builders.watched import LARGEST, Step, convolutional, histogram


@pytest.fixture(autouse=True)
def _clean(seed):
    torch.manual_seed(seed)
    AutomaticLossScaler()


# The rule


def gradients_of(scaler, *groups):
    """An update in which those values were gradients."""
    x = torch.zeros(sum(count for count, _ in groups), requires_grad=True)
    watch(x).backward(torch.cat([torch.full((count,), float(value)) for count, value in groups]))
    scaler.update()


def scales_of(scaler, numbers_above, size=10, value=1e4):
    """The scales after updates of `size` gradients, so many of which are large."""
    scales = []
    for above in numbers_above:
        gradients_of(scaler, (size - above, 1.0), (above, value))
        scales.append(scaler.get_scale())
    return scales


def test_the_scale_doubles_until_the_upper_bin_has_its_share():
    scaler = AutomaticLossScaler()
    assert scales_of(scaler, (0, 0, 0, 2, 50, 0), 100) == [2, 4, 8, 4, 2, 4]
    since_the_start = {"loss_scale": 4.0, "upper_share": 52 / 600, "clipped": 0.0, "nan": 0.0}
    assert scaler.metrics() == pytest.approx(since_the_start, rel=1e-6)
    gradients_of(scaler, (100, 1.0))
    assert scaler.metrics() == {"loss_scale": 8.0, "upper_share": 0.0, "clipped": 0.0, "nan": 0.0}


def test_nan_and_infinity_halve_and_are_counted():
    scaler = AutomaticLossScaler(init_scale=8.0)
    gradients_of(scaler, (5, 1.0), (2, torch.inf), (3, torch.nan))
    assert scaler.metrics() == {"loss_scale": 4.0, "upper_share": 0.5, "clipped": 2.0, "nan": 3.0}


def test_scales_at_the_bounds_and_over_periods():
    assert scales_of(AutomaticLossScaler(2.0**39), [0, 0, 0]) == [2.0**40] * 3
    assert scales_of(AutomaticLossScaler(2.0**-15), [9, 9, 9]) == [2.0**-16] * 3
    slow = AutomaticLossScaler(init_scale=16.0, period=3)
    assert scales_of(slow, [0, 0, 0, 2, 2, 0, 0, 0, 0]) == [16, 16, 32, 32, 32, 16, 16, 16, 32]


def test_ranks_agree_on_a_scale_that_one_of_them_needs(monkeypatch):
    """The counts of another rank, which sees large gradients, come in 8 bytes an update."""
    sent = []

    def all_reduce(counts):
        sent.append(counts.nbytes)
        counts += torch.tensor([100.0, 5.0])

    monkeypatch.setattr("brimful.precision.scaler._has_ranks", lambda: True)
    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    scaler = AutomaticLossScaler()
    assert scales_of(scaler, (0, 0, 0)) == [0.5, 0.25, 0.125]
    assert sent == [8, 8, 8]
    assert scaler.metrics()["upper_share"] == pytest.approx(5 / 115)


def test_impossible_settings():
    for name, value in {"init_scale": 0.0, "period": 0}.items():
        with pytest.raises(BrimfulError, match=name):
            AutomaticLossScaler(**{name: value})


# In loops


def half_loop(model, optimizer, scaler, batches):
    """A plain loop with float16 autocast; returns the scales, and the losses."""
    scales, losses = [], []
    for x, y in batches:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        losses.append(loss.item())
    return scales, losses


def image_batches(count):
    means = torch.randn(4, 3, 8, 8)
    labels = torch.randint(4, (count, 16))
    return [(means[y] + 0.3 * torch.randn(16, 3, 8, 8), y) for y in labels]


def watched_net():
    model = convolutional()
    watch_modules(model)
    return model, torch.optim.RMSprop(model.parameters(), lr=1e-3)


@pytest.mark.parametrize("start", [0, 36])
def test_a_convolutional_net_learns_and_no_step_is_skipped(start):
    model, optimizer = watched_net()
    steps = []
    optimizer.register_step_post_hook(lambda *_: steps.append(0))
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)
    scaler = AutomaticLossScaler(init_scale=2.0**start)
    scales, losses = half_loop(model, optimizer, scaler, image_batches(60))
    schedule.step()  # warns where no step was made
    assert len(steps) == 60
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])
    assert all(scales[-1] / 16 <= scale <= scales[-1] * 16 for scale in scales[-15:])


@pytest.mark.parametrize("period", [1, 4])
def test_a_resumed_run_has_the_same_scales(period):
    model, optimizer = watched_net()
    batches = image_batches(26)
    scaler = AutomaticLossScaler(init_scale=2.0**13, period=period)
    half_loop(model, optimizer, scaler, batches[:10])
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict(), scaler.state_dict()))
    expected = half_loop(model, optimizer, scaler, batches[10:])
    model, optimizer = watched_net()
    model(batches[0][0]).sum().mul(1e5).backward()  # of what is not of the run nothing is counted
    scaler = AutomaticLossScaler(period=period)
    for each, state in zip((model, optimizer, scaler), saved, strict=True):
        each.load_state_dict(state)
    assert half_loop(model, optimizer, scaler, batches[10:]) == expected
    assert all(isinstance(value, float | int) for value in saved[2].values())


@pytest.mark.parametrize(("clips", "fused"), [("unscaled", False), ("scaled", False), ("scaled", True)])
def test_a_step_is_that_of_the_unscaled_and_clipped_gradient(clips, fused):
    """Against the same loop without a scaler. The fused optimizer takes scaled gradients, the other does not.

    After `unscale_`, in float64, a scale that is a power of two changes nothing.
    """
    model, max_norm = Step().to(torch.float64 if clips == "unscaled" else torch.float32), 0.05
    twin = copy.deepcopy(model)
    watch_modules(model)
    ours, theirs = (torch.optim.AdamW(each.parameters(), lr=0.01, fused=fused) for each in (model, twin))
    scaler = AutomaticLossScaler(init_scale=2.0**7)
    for _ in range(4):
        tokens, labels = torch.randint(20, (6,)), torch.randint(5, (6,))
        model.zero_grad()
        twin.zero_grad()
        scaler.scale(F.cross_entropy(model(tokens), labels)).backward()
        F.cross_entropy(twin(tokens), labels).backward()
        if clips == "unscaled":
            scaler.unscale_(ours)
        clip = nn.utils.clip_grad_norm_ if clips == "unscaled" else scaler.clip_grad_norm_
        norm = clip(model.parameters(), max_norm)
        torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(twin.parameters(), max_norm))
        scaler.step(ours)
        theirs.step()
        scaler.update()
        assert not hasattr(ours, "grad_scale")
    # torch adds 1e-6 to the norm before it clips; Adam's first steps magnify nothing else.
    tolerance = 0 if clips == "unscaled" else 1e-4
    for parameter, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(parameter, other, rtol=0, atol=tolerance)


class ScaledSGD(torch.optim.Optimizer):
    """SGD that takes scaled float16 gradients, and keeps to the contract in the scaler's first lines."""

    _step_supports_amp_scaling = True

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad.float() / self.grad_scale
                parameter.data.copy_(parameter.data.float() - group["lr"] * gradient)


def linear(dtype=torch.float32):
    """A model with its optimizer, a scaler, and a scaled backward pass of it."""
    model, scaler = nn.Linear(2, 2).to(dtype), AutomaticLossScaler()

    def backward():
        model.zero_grad()
        scaler.scale(model(torch.ones(1, 2, dtype=dtype)).float().sum()).backward()

    backward()
    return model, torch.optim.SGD(model.parameters(), lr=0.1), scaler, backward


def test_unscaling_float16_gradients_says_why_not():
    _, optimizer, scaler, _ = linear(torch.float16)
    for unscale in (scaler.unscale_, scaler.step):
        with pytest.raises(BrimfulError, match="become 0 again; use an optimizer that takes scaled"):
            unscale(optimizer)


def test_unscaling_and_clipping_twice_or_too_late_and_closures_are_refused():
    model, optimizer, scaler, backward = linear()
    scaler.clip_grad_norm_(model.parameters(), 1.0)
    with pytest.raises(BrimfulError, match="once for each update"):
        scaler.clip_grad_norm_(model.parameters(), 1.0)
    scaler.update()
    with pytest.raises(BrimfulError, match="no closure"):
        scaler.step(optimizer, closure=lambda: 0.0)
    for _ in range(2):
        backward()
        scaler.unscale_(optimizer)
        with pytest.raises(BrimfulError, match="twice"):
            scaler.unscale_(optimizer)
        with pytest.raises(BrimfulError, match="before unscale_"):
            scaler.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize("watched", [True, False])
def test_no_parameter_is_beyond_the_scalers_reach(watched):
    """Unwatched, gradients are counted and saturated when the optimizer reads them, once."""
    model = Step()
    if watched:
        watch_modules(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    scaler = AutomaticLossScaler(init_scale=2.0**30)
    scaler.scale(model(torch.randint(20, (4, 7))).square().sum()).backward()
    before = histogram([p.grad for p in model.parameters()])
    scaler.unscale_(optimizer)
    assert max((p.grad * 2.0**30).abs().max() for p in model.parameters()) == LARGEST
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**29
    if not watched:
        assert scaler.metrics()["upper_share"] == before[1] / sum(before)


def test_sums_that_overflow_are_seen():
    """Each micro-batch is within the range, their float16 sum is not."""
    weight = nn.Linear(1, 1, bias=False).half()
    watch_modules(weight)
    optimizer = ScaledSGD(weight.parameters())
    scaler = AutomaticLossScaler(init_scale=2.0**10)
    for _ in range(20):
        scaler.scale(weight(torch.full((1, 1), 8.0).half()).float().sum()).backward()
    assert weight.weight.grad.isinf()
    scaler.step(optimizer)
    scaler.update()
    assert torch.isfinite(weight.weight).all()
    assert scaler.get_scale() == 2.0**9
    assert scaler.metrics()["clipped"] == 1


def test_a_float16_loss_bounds_the_scale():
    model = nn.Linear(2, 2).half()
    watch_modules(model)
    scaler = AutomaticLossScaler(init_scale=2.0**20)
    loss = model(torch.full((1, 2), 1e-3).half()).mean()
    scaled = scaler.scale(loss)
    assert scaled.dtype == torch.float32
    assert scaler.get_scale() == 2.0**15
    scaled.backward()
    # 2^15 / 2, rounded to float16 with the input
    assert model.bias.grad.tolist() == [2.0**14] * 2


def test_sparse_gradients_are_refused():
    table = nn.Embedding(10, 4, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=1.0)
    scaler, refused = AutomaticLossScaler(), r"take dense, real tensors.*embeddings with sparse=False"
    scaler.scale(table(torch.tensor([1, 3])).sum()).backward()
    with pytest.raises(BrimfulError, match=refused):
        scaler.step(optimizer)
    watch_modules(table)
    with pytest.raises(BrimfulError, match=refused):
        table(torch.tensor([1, 3])).sum().backward()


def test_the_state_of_another_scaler_is_refused():
    scaler = AutomaticLossScaler(init_scale=8.0)
    with pytest.raises(BrimfulError, match="it lacks above, lower, updates"):
        scaler.load_state_dict(torch.amp.GradScaler("cpu").state_dict() | {"scale": 4.0})
    assert scaler.get_scale() == 8.0
