"""Products of 8-bit floats on the tensor cores, against their emulation. Runs from a checkout that has torch,
numpy, safetensors, tokenizers and pytest:

python -m pytest -c /dev/null --rootdir . --noconftest tests/gpu
"""

import copy
import os
import random

import pytest
import torch
from torch import nn

from brimful.precision.fp8 import (
    BACKWARD,
    FORWARD,
    fp8_linear_layers,
    linear_fp8,
    product,
    supports_fp8,
    to_fp8,
)

DEVICE = torch.device("cuda")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or not supports_fp8(DEVICE), reason="needs a CUDA device with fp8"
    ),
    # What torch's own modules do when Inductor imports them.
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning"),
]

FAST = 2.0**-10
"""What Hopper may lose of the sum of |a| |b| where it adds up fast: its tensor cores keep 14 bits or so of a
sum (DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 3.3.2). Chosen before it was first run."""


@pytest.fixture(autouse=True)
def _seed() -> None:
    value = int(os.environ.get("BRIMFUL_TEST_SEED") or random.SystemRandom().randrange(2**31))
    print(f"BRIMFUL_TEST_SEED={value}")
    torch.manual_seed(value)


def draw(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device=DEVICE, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize(("first", "second"), [(FORWARD, FORWARD), (BACKWARD, FORWARD)])
@pytest.mark.parametrize("size", [(16, 16, 16), (48, 272, 1040), (4096, 768, 2304)])
def test_products_are_those_of_the_emulation(size, first, second, fast, dtype):
    """Within the bits of its sums and of the result's dtype."""
    M, N, K = size
    a, b = to_fp8(draw(M, K), first), to_fp8(draw(N, K), second)
    found = product(a, b, dtype, emulate=False, fast=fast)
    assert found.dtype == dtype
    left, right = a.values.double() * a.unit, b.values.double() * b.unit
    expected, terms = left @ right.t(), left.abs() @ right.t().abs()
    torch.testing.assert_close(product(a, b, dtype, emulate=True).double(), expected, rtol=2.0**-7, atol=1e-3)
    bound = FAST * terms + torch.finfo(dtype).eps * expected.abs()
    assert ((found.double() - expected).abs() <= bound).all()


def test_rounding_is_that_of_the_cpu():
    """Bit for bit, compiled too: normal numbers, subnormal ones, and what becomes 0."""
    x = draw(256, 64, dtype=torch.float32) * torch.exp2(draw(256, 1, dtype=torch.float32) * 10)
    for dtype in (FORWARD, BACKWARD):
        expected = to_fp8(x.cpu(), dtype)
        for function in (to_fp8, torch.compile(to_fp8, fullgraph=True)):
            found = function(x, dtype)
            assert torch.equal(found.values.cpu().view(torch.uint8), expected.values.view(torch.uint8))
            assert torch.equal(found.unit.cpu(), expected.unit)


@pytest.mark.parametrize("sizes", [(1e-30, 1e30), (1e15, 1e15), (0.0, 1.0)])
def test_sizes_of_operands_meet_in_the_result(sizes):
    x, weight = draw(32, 64, dtype=torch.float32) * sizes[0], draw(48, 64, dtype=torch.float32) * sizes[1]
    found, expected = linear_fp8(x, weight), linear_fp8(x, weight, emulate=True)
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2 * float(expected.abs().max()))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_is_seen(bad):
    x = draw(32, 64)
    x[3, 5] = bad
    assert linear_fp8(x, draw(48, 64)).isnan().all()


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_a_compiled_model_trains_as_an_emulated_one(mode):
    """Gradients within 10 % of the emulation's in norm: the two differ by roundings of bf16 and by fast sums,
    and what then falls on the other side of a tie is rounded to another number of two or three bits."""
    torch.compiler.reset()
    models = [
        nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)).to(DEVICE)
    ]
    models.append(copy.deepcopy(models[0]))
    for model, emulate in zip(models, (False, True), strict=True):
        assert fp8_linear_layers(model, min_features=1, emulate=emulate) == ["1", "3"]
    x = draw(1024, 256, dtype=torch.float32)
    losses = []
    for model, call in zip(
        models, (torch.compile(models[0], fullgraph=True, mode=mode), models[1]), strict=True
    ):
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)  # not in memory that the next replay writes
        for _ in range(4):  # warm-up, recording, replays
            torch.compiler.cudagraph_mark_step_begin()
            model.zero_grad(set_to_none=False)
            with torch.autocast("cuda", torch.bfloat16):
                loss = (call(x) - x).float().square().mean()
            loss.backward()
        losses.append(float(loss.detach()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)
    for found, expected in zip(*(model.parameters() for model in models), strict=True):
        assert float((found.grad - expected.grad).norm()) <= 0.1 * float(expected.grad.norm())
