"""Stochastic rounding, and weights in 16 bits under optimizers of torch and of the project."""

import io
from itertools import combinations

import numpy as np
import pytest
import torch
from torch import nn

from brimful.base.errors import BrimfulError
from brimful.base.randomness import hash_words
from brimful.optim.lamb import Lamb
from brimful.optim.muon import Muon
from brimful.precision import narrow
from brimful.precision.narrow import NarrowWeights
from brimful.precision.rounding import round_stochastically

DTYPES = [torch.bfloat16, torch.float16]
BLOCK = 4 << 15  # numbers under one key


def step_of(x, dtype, away):
    """The next number of the format, as float64, away from zero or towards it; x is of the format, not 0."""
    return (x.to(dtype).view(torch.int16) + (1 if away else -1)).view(dtype).double()


def neighbours(x, dtype):
    """The numbers of the format around each of x (one number twice where it has x): float64, by size."""
    size = x.abs()
    near = size.to(dtype)
    below = torch.where(near.double() > size.double(), step_of(near, dtype, away=False), near.double())
    above = torch.where(near.double() < size.double(), step_of(near, dtype, away=True), near.double())
    return below * x.sign().double(), above * x.sign().double()


def of_all_exponents(dtype, count, seed):
    """`count` numbers of both signs for each exponent that float32 has below the format's largest number."""
    generator = np.random.default_rng(seed)
    fields = np.repeat(np.arange(143 if dtype == torch.float16 else 255), 2 * count)
    bits = (fields << 23) | generator.integers(0, 1 << 23, len(fields))
    signs = torch.tensor([1.0, -1.0]).repeat(len(fields) // 2)
    x = torch.from_numpy(bits.astype(np.int32)).view(torch.float32) * signs
    return x[x.abs() <= torch.finfo(dtype).max]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_neighbour_and_the_nearer_the_likelier_at_all_exponents(dtype, seed):
    draws = 2048
    x = of_all_exponents(dtype, 3, seed)
    rounded = round_stochastically(x.repeat(draws), dtype, seed).view(draws, -1)
    below, above = neighbours(x, dtype)
    up = rounded.double() == above
    assert (up | (rounded.double() == below)).all()
    inexact = below != above
    chance = ((x.double() - below) / (above - below))[inexact]
    surplus = up.double().sum(0)[inexact] - draws * chance
    variance = draws * chance * (1 - chance)
    # Of a binomial: 7 standard errors, and what a chance near 0 needs beside (Bernstein). 1,500 numbers.
    assert (surplus.abs() <= 7 * variance.sqrt() + 20).all()
    assert surplus.sum().abs() <= 6 * variance.sum().sqrt()
    for part in (chance < 0.25, chance > 0.75):
        assert surplus[part].sum().abs() <= 6 * variance[part].sum().sqrt()


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_the_format_has_stays(dtype, seed):
    bits = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)  # all, -0 and NaNs too
    x = bits.view(dtype)
    rounded = round_stochastically(x.float(), dtype, seed)
    nan = x.isnan()
    assert torch.equal(rounded[~nan].view(torch.int16), bits[~nan])
    assert rounded[nan].isnan().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_beyond_the_range(dtype, seed):
    largest = torch.finfo(dtype).max
    beyond = torch.nextafter(torch.tensor(largest), torch.tensor(torch.inf)).item()
    x = torch.tensor([beyond, torch.finfo(torch.float32).max, torch.inf, torch.nan]).repeat(500, 1)
    for sign in (1, -1):
        rounded = round_stochastically(sign * x, dtype, seed).float()
        assert (rounded[:, :2] == sign * largest).all()
        assert (rounded[:, 2] == sign * torch.inf).all()
        assert rounded[:, 3].isnan().all()


def test_the_bits_are_those_of_the_hash(seed):
    """Against numpy's words, two numbers in each half of a word, half of the numbers apart."""
    count = BLOCK + 4 * 1000
    x = torch.rand(count, generator=torch.Generator().manual_seed(seed))
    noise = []
    for block, size in enumerate((BLOCK, count - BLOCK)):
        words = hash_words(hash_words(np.uint64(seed), np.array([block]))[0], np.arange(size // 4))
        halves = words.view(np.uint32)
        noise += [halves & 0xFFFF, halves >> 16]
    bits = x.view(torch.int32).numpy() + np.concatenate(noise).astype(np.int64)
    expected = torch.from_numpy((bits >> 16).astype(np.int16)).view(torch.bfloat16)
    before = torch.get_rng_state()
    assert torch.equal(round_stochastically(x, torch.bfloat16, seed), expected)
    turned = x.view(-1, 8).T.contiguous().T  # other strides
    assert torch.equal(round_stochastically(turned, torch.bfloat16, seed).flatten(), expected)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gpu_has_the_same_bits(dtype, seed):
    x = torch.randn(70 * BLOCK + 1001, generator=torch.Generator().manual_seed(seed))
    x[::1000] = torch.inf
    found = round_stochastically(x.cuda(), dtype, seed).cpu()
    assert torch.equal(found, round_stochastically(x, dtype, seed))


# Weights in 16 bits

OPTIMIZERS = {
    "adamw, fused": lambda ps: torch.optim.AdamW(ps, lr=0.01, weight_decay=0.1, fused=True),
    "lamb": lambda ps: Lamb(ps, lr=0.01, weight_decay=0.1),
    "muon": lambda ps: Muon([{"params": [p]} for p in ps if p.ndim == 2], lr=0.02, weight_decay=0.1),
    "sgd": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, weight_decay=0.1),
}
SHAPES = [(8, 6), (12,), (8, 6), (30, 10), (5,)]


def parameters(dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in SHAPES]


def set_gradients(ps, number, seed, factor=1.0):
    """Gradients of a step, which float16 and bfloat16 have alike."""
    generator = torch.Generator().manual_seed(seed * 1000 + number)
    for p in ps:
        # Below 2^-16, float16 has fewer bits than bfloat16.
        gradient = torch.randn(p.shape, generator=generator).to(torch.bfloat16).to(torch.float16).float()
        p.grad = (gradient * factor).to(p.dtype)


def train(optimizer, ps, seed, numbers=range(6)):
    for number in numbers:
        set_gradients(ps, number, seed)
        optimizer.step()
        optimizer.zero_grad()


def bits(ps):
    return torch.cat([p.detach().float().flatten() for p in ps])


@pytest.mark.parametrize("chunk", [60, 1 << 20])
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_master_gives_the_optimizers_own_steps(name, dtype, chunk, seed, monkeypatch):
    """Rounded; with a parameter in float32 among the others, and once a chunk for almost each of them.

    Equal, but for Muon: it multiplies matrices of a shape together, and the sums of a product depend on how
    many there are (1e-5 is 80 units in the last place, over 6 steps).
    """
    monkeypatch.setattr(narrow, "CHUNK_ELEMENTS", chunk)
    tolerance = 1e-5 if name == "muon" else 0.0
    mixed = parameters(dtype, seed)
    mixed[2] = nn.Parameter(mixed[2].detach().float())
    wide = [nn.Parameter(p.detach().float().clone()) for p in mixed]
    optimizer, plain = NarrowWeights(OPTIMIZERS[name](mixed), "master"), OPTIMIZERS[name](wide)
    train(optimizer, mixed, seed)
    train(plain, wide, seed)
    stepped = set(plain.state)
    for p, other in zip(mixed, wide, strict=True):
        if other not in stepped:
            assert torch.equal(p, other.to(p.dtype))
            continue
        state = dict(optimizer.state[p])
        master = p if p is mixed[2] else state.pop("master")
        assert torch.equal(p, master.to(p.dtype))
        torch.testing.assert_close(master.data, other.data, rtol=tolerance, atol=tolerance)
        for key, value in plain.state[other].items():
            assert state[key].dtype == torch.float32
            torch.testing.assert_close(state.pop(key), value, rtol=tolerance, atol=tolerance)
        assert not state
    assert not torch.equal(bits(mixed), bits(parameters(dtype, seed)))


def test_bits_depend_on_the_seed_alone(seed, monkeypatch):
    def run(rounding_seed):
        ps = parameters(torch.bfloat16, seed)
        train(NarrowWeights(torch.optim.SGD(ps, lr=1e-3), seed=rounding_seed), ps, seed, range(3))
        return bits(ps)

    expected = run(1)
    torch.manual_seed(seed + 1)
    before = torch.get_rng_state()
    monkeypatch.setattr(narrow, "CHUNK_ELEMENTS", 1)
    assert torch.equal(run(1), expected)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(run(2), expected)


def test_steps_and_parameters_have_noise_of_their_own(seed):
    ps = [nn.Parameter(torch.ones(2000, dtype=torch.bfloat16)) for _ in range(2)]
    optimizer = NarrowWeights(torch.optim.SGD(ps, lr=1.0), seed=seed)
    seen = []
    for _ in range(2):
        for p in ps:
            p.data.fill_(1.0)
            p.grad = torch.full_like(p, -(2.0**-8))
        optimizer.step()
        seen += [p.detach().clone() for p in ps]
    for one, other in combinations(seen, 2):
        assert (one > 1).double().mean() == pytest.approx(0.5, abs=0.08)
        assert (one != other).double().mean() == pytest.approx(0.5, abs=0.08)


@pytest.mark.parametrize("way", ["state_dict", "state"])
@pytest.mark.parametrize("rounding", ["stochastic", "kahan", "master"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_resumed_run_has_the_same_bits(name, rounding, way, seed):
    """By state_dict, and by the tensors of each parameter's state, as the trainer saves them."""
    ps, file = parameters(torch.bfloat16, seed), io.BytesIO()
    optimizer = NarrowWeights(OPTIMIZERS[name](ps), rounding, seed=seed)
    train(optimizer, ps, seed, range(3))
    states = [dict(optimizer.state.get(p, {})) for p in ps]
    assert all(isinstance(value, torch.Tensor) for state in states for value in state.values())
    torch.save({"weights": ps, "whole": optimizer.state_dict(), "states": states}, file)
    train(optimizer, ps, seed, range(3, 6))
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    others = [nn.Parameter(p.detach().clone()) for p in saved["weights"]]
    again = NarrowWeights(OPTIMIZERS[name](others), rounding, seed=seed)
    if way == "state_dict":
        again.load_state_dict(saved["whole"])
    else:
        again.state.update(zip(others, saved["states"], strict=True))
    train(again, others, seed, range(3, 6))
    assert torch.equal(bits(others), bits(ps))
    for p, other in zip(ps, others, strict=True):
        for key, value in optimizer.state[p].items():
            assert torch.equal(again.state[other][key], value)
            assert again.state[other][key].dtype == value.dtype


@pytest.mark.parametrize("rounding", ["stochastic", "kahan", "master", "nearest"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_scaled_gradients(name, rounding, seed):
    """A power of two in, the same out, whether or not the optimizer itself takes them."""
    results = []
    for scale in (None, 2.0**6):
        ps = parameters(torch.bfloat16, seed)
        ps[1] = nn.Parameter(ps[1].detach().float())
        optimizer = NarrowWeights(OPTIMIZERS[name](ps), rounding, seed=seed)
        for number in range(3):
            set_gradients(ps, number, seed, scale or 1.0)
            before = [p.grad.clone() for p in ps]
            if scale:
                optimizer.grad_scale, optimizer.found_inf = torch.tensor(scale), torch.tensor(0.0)
            optimizer.step()
            for p, gradient in zip(ps, before, strict=True):
                assert p.dtype == torch.float32 or torch.equal(p.grad, gradient)
            optimizer.zero_grad()
        results.append(bits(ps))
    assert torch.equal(*results)


@pytest.mark.parametrize(
    ("name", "rounding"), [("adamw, fused", "stochastic"), ("sgd", "master"), ("lamb", None), ("muon", None)]
)
def test_found_inf_leaves_the_weights(name, rounding, seed):
    """Also where the project's own optimizers stand alone."""
    ps = parameters(torch.float16, seed)
    optimizer = OPTIMIZERS[name](ps)
    if rounding:
        optimizer = NarrowWeights(optimizer, rounding, seed=seed)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for number, infinite in enumerate((False, True, False)):
        scaler.scale(torch.zeros(()))
        set_gradients(ps, number, seed, 4.0)
        if infinite:
            ps[3].grad[0, 0] = torch.inf
        before = bits(ps)
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(bits(ps), before) == infinite
        assert not hasattr(optimizer, "found_inf")
        assert not hasattr(getattr(optimizer, "optimizer", None), "found_inf")
    assert bits(ps).isfinite().all()


def test_hooks_of_the_wrapped_optimizer_see_float32_before_it_is_rounded(seed):
    ps = parameters(torch.bfloat16, seed)
    inner = torch.optim.SGD(ps, lr=0.0)

    def add(optimizer, *_):
        for group in optimizer.param_groups:
            for p in group["params"]:
                assert p.dtype == torch.float32
                p.add_(1e-3)

    inner.register_step_post_hook(add)
    optimizer = NarrowWeights(inner, "kahan")
    set_gradients(ps, 0, seed)
    optimizer.step()
    for p, start in zip(ps, parameters(torch.bfloat16, seed), strict=True):
        sums = p.double() + optimizer.state[p]["compensation"].double()
        # The compensation, at most half a spacing of 2^-6 (weights below 4), has 8 bits.
        torch.testing.assert_close(sums, start.double() + 1e-3, rtol=0, atol=2.0**-15)


def test_closures_absent_gradients_and_groups_added_later():
    one, other, late = (nn.Parameter(torch.ones(3, dtype=torch.float16)) for _ in range(3))
    optimizer = NarrowWeights(torch.optim.SGD([one, other], lr=0.5))
    optimizer.add_param_group({"params": [late], "lr": 0.25})

    def closure():
        optimizer.zero_grad()
        loss = (one + late).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 6
    assert [one.tolist(), other.tolist(), late.tolist()] == [[0.5] * 3, [1.0] * 3, [0.75] * 3]
    assert other not in optimizer.state


def test_what_can_be_wrong():
    p = nn.Parameter(torch.ones(3, dtype=torch.float16))
    used = torch.optim.SGD([p], lr=0.1, momentum=0.9)
    with pytest.raises(BrimfulError, match="rounding is one of stochastic, kahan, master, nearest, not 'up'"):
        NarrowWeights(used, "up")
    p.grad = torch.ones_like(p)
    used.step()
    with pytest.raises(BrimfulError, match="no state yet"):
        NarrowWeights(used)
    for source, dtype in ((torch.float64, torch.float16), (torch.float32, torch.int8)):
        with pytest.raises(BrimfulError, match=f"{source} to {dtype}"):
            round_stochastically(torch.zeros(3, dtype=source), dtype, 0)
