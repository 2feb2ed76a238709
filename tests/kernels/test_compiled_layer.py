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
from builders.encoders import ARCHITECTURES, random_row, small


def test_dropout_acts_on_the_product_and_not_on_the_sum():
    total, x, linear = torch.randn(5, 4), torch.randn(5, 6), nn.Linear(6, 4, bias=False)
    assert torch.equal(compiled_layer.plus_product(total, x, linear, nn.Dropout(1.0)), total)


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
    """Compiled too: torch 2.11 loses gradients where a conversion changes nothing. A norm's weight that is 0
    has a gradient too."""
    torch.compiler.reset()
    encoder, batch = small(architecture, dropout=0.0).double(), random_row([20, 7, 33], 4)
    nn.init.zeros_(encoder.layers[1].mlp_norm.weight[:1])
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


KERNEL = """
import torch
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
