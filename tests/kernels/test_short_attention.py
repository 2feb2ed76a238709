"""Attention in groups (bfloat16 on a CPU): against float64, and what a sequence has from its neighbours."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from brimful.kernels.blockwise import MAX_GROUPED_TOKENS, blockwise_attention


def results(qkv: Tensor, lengths: list[int], upstream: Tensor, scale: float = 0.125) -> tuple[Tensor, Tensor]:
    """Output and gradient of (T, 3, heads, head_dim)."""
    qkv = qkv.detach().requires_grad_()
    out, _ = blockwise_attention(*qkv.unbind(1), torch.tensor(lengths), None, scale, -1, 0.0)
    return out.detach(), torch.autograd.grad(out, qkv, upstream)[0]


def exact(qkv: Tensor, lengths: list[int], upstream: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """The same in float64, by the formula."""
    qkv = qkv.detach().double().requires_grad_()
    outputs = []
    for part in qkv.split(lengths):
        q, k, v = (tensor.transpose(0, 1) for tensor in part.unbind(1))
        outputs.append(((q @ k.transpose(1, 2) * scale).softmax(-1) @ v).transpose(0, 1))
    out = torch.cat(outputs)
    return out.detach(), torch.autograd.grad(out, qkv, upstream.double())[0]


def error(found: Tensor, expected: Tensor) -> float:
    """Root mean square of the difference, relative to the expected values."""
    return float((found.double() - expected).norm() / expected.norm())


@settings(max_examples=15)
@given(
    lengths=st.lists(st.integers(0, MAX_GROUPED_TOKENS + 20), min_size=1, max_size=8).filter(sum),
    heads=st.integers(1, 5),
    head_dim=st.sampled_from([26, 32, 64]),
    shift=st.sampled_from([0.0, 2.0, -2.0]),
    seed=st.integers(0, 2**31),
)
def test_outputs_and_gradients_are_the_formulas(lengths, heads, head_dim, shift, seed):
    """Within 1.2 %, where bfloat16 rounds to 0.4 %. A common part of all keys shifts all scores."""
    torch.manual_seed(seed)
    qkv = torch.randn(sum(lengths), 3, heads, head_dim)
    qkv[:, 0, :, 0], qkv[:, 1, :, 0] = 4, shift
    qkv = qkv.bfloat16()
    upstream = torch.randn(sum(lengths), heads, head_dim).bfloat16()
    scale = head_dim**-0.5
    out, gradient = results(qkv, lengths, upstream, scale)
    expected, expected_gradient = exact(qkv, lengths, upstream, scale)
    assert error(out, expected) < 0.012
    assert error(gradient, expected_gradient) < 0.012


@pytest.mark.parametrize("sign", [1, -1])
def test_all_scores_far_below_zero_or_above_give_probabilities(sign):
    """Padding has scores of 0; it must not count beside scores of -1,000."""
    qkv = torch.randn(70 + 110, 3, 2, 32)
    qkv[:, 0, :, 0], qkv[:, 1, :, 0] = 64, sign * 16
    qkv[:, :2, :, 1:] = 0
    out, gradient = results(qkv.bfloat16(), [70, 110], torch.ones(180, 2, 32).bfloat16(), 1.0)
    means = [part[:, 2].bfloat16().double().mean(0).expand_as(part[:, 2]) for part in qkv.split([70, 110])]
    torch.testing.assert_close(out.double(), torch.cat(means), atol=4e-3, rtol=1e-2)
    torch.testing.assert_close(gradient[:, 2].float(), torch.ones(180, 2, 32), atol=2e-2, rtol=0)


def test_huge_scores_give_finite_gradients():
    """Of 100,000 and more, whose rounding is a matter of hundreds."""
    row = torch.randn(200, 4, 2, 64).bfloat16()
    row[:, :2] *= 150
    out, gradient = results(row[:, :3], [80, 120], row[:, 3], 1.0)
    assert out.isfinite().all()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("nan", [float("nan"), -float("nan")])
def test_nan_stays_in_its_sequence(part, nan):
    """In q, k and v it reaches the output, in the output's gradient the gradients; other sequences never."""
    lengths = [100, 120, 0, 40]
    row = torch.randn(260, 4, 2, 32).bfloat16()
    clean = results(row[:, :3], lengths, row[:, 3])
    row[130, part, 1, 3] = nan
    out, gradient = results(row[:, :3], lengths, row[:, 3])
    own = torch.zeros(260, dtype=torch.bool)
    own[100:220] = True
    assert torch.equal(out[~own], clean[0][~own])
    assert torch.equal(gradient[~own], clean[1][~own])
    assert out[own].isnan().any() == (part < 3)
    reached = [out[130, 1], out[own, 1], out[own, 1, 3], gradient[130, 2, 1, 3]]
    assert reached[part].isnan().all()
    assert gradient[own].isnan().any()
