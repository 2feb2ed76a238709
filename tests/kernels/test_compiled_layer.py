"""The form of a layer for compiled steps on a GPU equals the plain one."""

import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bench.common.recorder import device
from brimful.kernels import compiled_layer
from brimful.kernels.rotation import rotate_compiled
from brimful.model.layer import Rotary, rotate
from builders.encoders import ARCHITECTURES, random_row, small


def parts(bias: bool) -> tuple[nn.LayerNorm, nn.Linear, Tensor]:
    norm = nn.LayerNorm(6, bias=bias, dtype=torch.float64)
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    return norm, nn.Linear(6, 4, bias=bias, dtype=torch.float64), torch.randn(5, 6, dtype=torch.float64)


def assert_same(found: Tensor, expected: Tensor, inputs: list[Tensor]) -> None:
    """To the rounding of float64, as are the gradients."""
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    aim = torch.randn_like(found)
    ours, theirs = (torch.autograd.grad(out, inputs, aim) for out in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("bias", [False, True])
def test_the_product_of_a_norm(bias):
    """With a weight of 0 too, whose gradient does not vanish."""
    norm, linear, x = parts(bias)
    with torch.no_grad():
        norm.weight[2] = 0
    inputs = [x.requires_grad_(), *norm.parameters(), *linear.parameters()]
    assert_same(compiled_layer.product_of_norm(x, norm, linear), linear(norm(x)), inputs)


@pytest.mark.parametrize("drop", [0.0, 1.0])
@pytest.mark.parametrize("bias", [False, True])
def test_a_product_is_added(bias, drop):
    """A dropout of 1 leaves x alone."""
    _, linear, x = parts(bias)
    total = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    before, dropout = total.clone(), nn.Dropout(drop) if drop else nn.Identity()
    inputs = [total, x.requires_grad_(), *linear.parameters()]
    found = compiled_layer.plus_product(total, x, linear, dropout)
    assert torch.equal(total, before)
    assert_same(found, total + dropout(linear(x)), inputs)


@pytest.mark.parametrize(("total", "factor"), [(torch.float32, torch.bfloat16), (torch.bfloat16,) * 2])
def test_the_operator_is_registered_as_compilers_want_it(total, factor):
    given = torch.randn(5, 4).to(total), torch.randn(5, 8).to(factor), torch.randn(4, 8).to(factor)
    torch.library.opcheck(torch.ops.brimful.add_product.default, given)


def gradients(encoder: nn.Module, batch: Any, forward: Any = None) -> tuple[Tensor, Tensor]:
    """The hidden states, and the gradient of their inner product with fixed numbers."""
    encoder.zero_grad()
    out = (encoder if forward is None else forward)(batch, encoder.prepare(batch))
    aim = torch.randn(out.shape, generator=torch.Generator().manual_seed(7)).to(out.dtype)
    (out * aim).mean().backward()
    named = sorted(encoder.named_parameters())
    return out.detach(), torch.cat([p.grad.flatten().double() for _, p in named if p.grad is not None])


@pytest.mark.parametrize(
    ("architecture", "compiled"),
    [
        *((name, False) for name in ARCHITECTURES),
        (ARCHITECTURES[0], True),
        *(pytest.param(name, True, marks=pytest.mark.slow) for name in ARCHITECTURES[1:]),
    ],
)
def test_an_encoder_is_the_same_in_float64(architecture, compiled, monkeypatch):
    """Compiled too: torch 2.11 loses gradients where a conversion changes nothing."""
    torch.compiler.reset()
    encoder, batch = small(architecture, dropout=0.0).double(), random_row([20, 7, 33], 4)
    expected = gradients(encoder, batch)
    call = torch.compile(encoder, fullgraph=True, backend="aot_eager") if compiled else encoder
    monkeypatch.setattr(compiled_layer, "applies", lambda x: True)
    torch.testing.assert_close(gradients(encoder, batch, call), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.cases(2)
@pytest.mark.parametrize("residual", [None, torch.bfloat16])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_in_bf16_it_is_as_near_to_float64_as_the_plain_form(architecture, residual, monkeypatch):
    """Compiled, with the in-place sums that compiling makes of it: at most 1.25 times its error."""
    torch.compiler.reset()
    encoder, batch = small(architecture, initializer_range=0.05, dropout=0.0), random_row([20, 7, 33], 4)
    for name, parameter in encoder.named_parameters():
        if "norm" in name:  # unit norms would hide what the weights are multiplied into
            nn.init.uniform_(parameter, 0.5, 1.5)
    encoder.set_residual(residual)
    compiled = torch.compile(encoder, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", torch.bfloat16):
        plain = gradients(encoder, batch)
        monkeypatch.setattr(compiled_layer, "applies", lambda x: True)
        found = gradients(encoder, batch, compiled)
    assert found[0].dtype == plain[0].dtype
    monkeypatch.undo()
    encoder.set_residual(None)
    exact = gradients(encoder.double(), batch)
    for ours, theirs, true in zip(found, plain, exact, strict=True):
        error, usual = (float((x.double() - true).norm() / true.norm()) for x in (ours, theirs))
        assert error < 1.25 * usual


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_rotation_in_place(dtype):
    """The plain rotation; the argument is as before, where it is not given up."""
    qkv = torch.randn(12, 3, 2, 6, dtype=dtype, requires_grad=True)
    before = qkv.detach().clone()
    rotation = Rotary(6, 32, 10_000.0)(torch.randint(32, (12,), dtype=torch.int32))
    expected = rotate(qkv, rotation)
    found = rotate_compiled(qkv, *rotation)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    aims = [torch.randn(12, 2, 6, dtype=dtype) for _ in range(3)]
    assert torch.equal(*(torch.autograd.grad(out, qkv, aims)[0] for out in (found, expected)))
    assert torch.equal(qkv, before)


KERNEL = """
import torch
from brimful.model.layer import Rotary, rotate
from brimful.kernels.rotary_kernel import rotate as in_place

for heads, head_dim in (2, 6), (3, 64), (2, 52):
    for dtype in torch.float32, torch.float16, torch.bfloat16:
        qkv = torch.randn(12, 3, heads, head_dim, dtype=dtype)
        rotation = Rotary(head_dim, 32, 10_000.0)(torch.randint(32, (12,), dtype=torch.int32))
        expected = torch.stack(rotate(qkv, rotation), 1)
        in_place(qkv[:, :2], *rotation)
        # Triton's interpreter cuts bfloat16 off where a GPU rounds.
        eps = torch.finfo(dtype).eps if dtype == torch.bfloat16 else 0.0
        torch.testing.assert_close(qkv, expected, rtol=eps, atol=0.0)
"""


@pytest.mark.slow
def test_the_kernel_of_rotations():
    """In Triton's interpreter, which needs no GPU; in a process of its own, since it is chosen on import."""
    if find_spec("triton") is None and device.lacks():
        pytest.skip(f"no Triton, and no {device.python()}")
    python = sys.executable if find_spec("triton") else str(device.python())
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(device.ROOT)}
    done = subprocess.run([python, "-c", KERNEL], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
