"""Rotary positions."""

import pytest
import torch
from torch import Tensor

from brimful.model.layer import Rotary, rotate


def by_autograd(qkv: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """The definition (Su et al. 2021, section 3.4.2), with the gradient that autograd finds."""
    cosine, sine = (table[:, None] for table in rotation)
    a, b = qkv[:, :2].chunk(2, dim=-1)
    turned = torch.cat((a * cosine - b * sine, b * cosine + a * sine), dim=-1)
    return torch.cat((turned.to(qkv.dtype), qkv[:, 2:]), dim=1).unbind(1)


def case(dtype: torch.dtype, T: int = 12, heads: int = 2, head_dim: int = 6):
    """qkv, the rotation at random positions, and gradients of q, k and v."""
    rotation = Rotary(head_dim, 32, 10_000.0)(torch.randint(32, (T,), dtype=torch.int32))
    if dtype == torch.float64:
        rotation = (rotation[0].double(), rotation[1].double())
    qkv = torch.randn(T, 3, heads, head_dim, dtype=dtype, requires_grad=True)
    return qkv, rotation, [torch.randn(T, heads, head_dim, dtype=dtype) for _ in range(3)]


def test_gradcheck():
    qkv, rotation, _ = case(torch.float64)
    assert torch.autograd.gradcheck(lambda x: rotate(x, rotation), qkv)
    assert torch.autograd.gradgradcheck(lambda x: rotate(x, rotation), qkv)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_equals_the_definition(dtype):
    """To the bit. Gradients in 16 bits are rounded once, autograd's twice: to a unit in the last place."""
    qkv, rotation, gradients = case(dtype)
    found, expected = rotate(qkv, rotation), by_autograd(qkv, rotation)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    (ours,), (theirs,) = (torch.autograd.grad(out, qkv, gradients) for out in (found, expected))
    assert ours.dtype == dtype
    if dtype == torch.float32:
        assert torch.equal(ours, theirs)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(ours, theirs, rtol=2 * eps, atol=4 * eps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_gradients_have_the_same_bits(dtype):
    """A compiled backward pass has a formula of its own."""
    torch.compiler.reset()
    qkv, rotation, gradients = case(dtype)
    compiled = torch.compile(rotate, fullgraph=True, backend="aot_eager")
    found, expected = compiled(qkv, rotation), rotate(qkv, rotation)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    (ours,), (theirs,) = (torch.autograd.grad(out, qkv, gradients) for out in (found, expected))
    assert torch.equal(ours, theirs)


@pytest.mark.usefixtures("kernels")
def test_results_keep_no_other_memory():
    """What attention saves for backward is q, k and v, and nothing of `qkv`."""
    qkv, rotation, _ = case(torch.float32)
    q, k, v = rotate(qkv, rotation)
    assert v.untyped_storage().data_ptr() != qkv.untyped_storage().data_ptr()
    assert q.untyped_storage().nbytes() == k.untyped_storage().nbytes() == qkv.untyped_storage().nbytes()
