"""The loops over bfloat16 numbers, against float64 and ATen."""

import numpy as np
import pytest
import torch
from scipy import special

from brimful.base.compiled import compiled
from brimful.kernels.bfloat16 import as_int16
from brimful.kernels.bfloat16_loops import gelu_and_slope, narrow
from brimful.kernels.linear_cross_entropy import score_gradients

ROUNDING = 2.0**-8
"""The largest relative error of a rounding to bfloat16, with a margin of two."""


@compiled
def each_narrow(x, out):
    for i in range(len(x)):
        out[i] = narrow(x[i])


def test_rounding_is_atens():
    """Of float32 numbers of all sizes, subnormal and infinite ones among them, without NaN."""
    numbers = torch.randint(-(2**31), 2**31, (100_000,)).to(torch.int32).view(torch.float32)
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, 1.00390625, 1.01171875, 3.4028235e38])
    x = torch.cat([numbers[~numbers.isnan()], special])
    rounded = torch.empty(len(x), dtype=torch.bfloat16)
    each_narrow(x.numpy(), as_int16(rounded))
    assert torch.equal(rounded.view(torch.int16), x.to(torch.bfloat16).view(torch.int16))


@pytest.mark.parametrize("shape", [(1, 1), (3, 17), (40, 1000)])
@pytest.mark.parametrize("size", [0.1, 5.0, 300.0])
def test_gradients_of_scores(shape, size):
    scores, bias = (torch.randn(shape) * size).to(torch.bfloat16), torch.randn(shape[1])
    labels, scales = torch.randint(shape[1], (shape[0],)), torch.rand(shape[0])
    exact = (scores.float() + bias).double().requires_grad_()
    losses = torch.nn.functional.cross_entropy(exact, labels, reduction="none")
    (losses * scales).sum().backward()
    found, before = scores.clone(), torch.randn(shape[1])
    sums = before.clone()
    found_losses, hits = score_gradients(found, bias, labels, scales, sums, write=True)
    torch.testing.assert_close(found_losses.double(), losses.detach(), rtol=2e-6, atol=1e-6 * max(1, size))
    # The loss of a row with one column is 0; expm1 of a loss of 1e-6 is no better than the loss.
    torch.testing.assert_close(found.double(), exact.grad, rtol=ROUNDING, atol=1e-6 * max(1, size))
    torch.testing.assert_close(sums, before + found.float().sum(0), rtol=1e-5, atol=1e-5)
    highest_scores = exact.detach().amax(1)
    assert torch.equal(hits == 1, exact.detach().gather(1, labels[:, None])[:, 0] == highest_scores)
    untouched = scores.clone()
    again, _ = score_gradients(untouched, bias, labels, scales, sums, write=False)
    assert torch.equal(untouched, scores)
    assert torch.equal(again, found_losses)


def test_a_row_without_a_label_has_no_loss_and_no_gradient():
    scores, bias = torch.randn(3, 50).to(torch.bfloat16), torch.randn(50)
    labels, sums = torch.tensor([4, -100, 7]), torch.zeros(50)
    losses, hits = score_gradients(scores, bias, labels, torch.ones(3), sums, write=True)
    assert losses[1] == hits[1] == 0
    assert scores.any(1).tolist() == [True, False, True]
    torch.testing.assert_close(sums, scores.float().sum(0))


@pytest.mark.parametrize("bits", [0x7FC0, -0x40, 0x7F81, 0x7F80])  # NaN: quiet, negative, signalling; inf
def test_scores_that_are_not_finite_spoil_their_row_alone(bits):
    scores, zeros, labels = torch.randn(3, 50).to(torch.bfloat16), torch.zeros(50), torch.tensor([0, 1, 2])
    scores.view(torch.int16)[1, 20] = bits
    losses, _ = score_gradients(scores, zeros, labels, torch.ones(3), zeros.clone(), write=True)
    assert losses.isnan().tolist() == scores.isnan().any(1).tolist() == [False, True, False]


@compiled
def each_gelu(x, gelu, slope):
    for i in range(len(x)):
        gelu[i], slope[i] = gelu_and_slope(x[i])


def test_gelu_of_every_number():
    every = torch.arange(1 << 16).to(torch.int16).view(torch.bfloat16).float()
    x = every[every.isfinite()].numpy()
    gelu, slope = np.empty_like(x), np.empty_like(x)
    each_gelu(x, gelu, slope)
    exact = x.astype(np.float64)
    below, density = special.ndtr(exact), np.exp(-(exact**2) / 2) / np.sqrt(2 * np.pi)
    near = np.abs(x) < 10
    np.testing.assert_allclose(gelu[near], (exact * below)[near], rtol=1e-5)
    np.testing.assert_allclose(gelu, exact * below, rtol=1e-5, atol=1e-20)
    np.testing.assert_allclose(slope, below + exact * density, rtol=0, atol=3e-6)
    each_gelu(np.full(1, np.nan, np.float32), gelu, slope)
    assert np.isnan([gelu[0], slope[0]]).all()
