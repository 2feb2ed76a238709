"""Attention's backends on a GPU."""

import numpy as np
import pytest
import torch

from brimful.data.batch import pack
from brimful.model.attention import attend, backends, choose_backend
from builders.attention import formula
from on_gpu import NEEDS_GPU, find_backend

pytestmark = NEEDS_GPU


@pytest.mark.parametrize("name", ["varlen", "flex", "sdpa"])
@pytest.mark.parametrize("window", [None, 7, 128])
@pytest.mark.parametrize("head_dim", [26, 64])
def test_every_backend_of_a_gpu_equals_the_formula(name, window, head_dim):
    """bf16 on the GPU against float64 on the CPU; 4e-2 is five bits at values of about 1."""
    backend = find_backend(name)
    lengths = [1, 5, 300, 64, 33, 2]
    batch = pack([np.ones(n) for n in lengths], max_length=300, pad=0, slots=512, sequence_slots=12)
    qkv = torch.randn(512, 3, 2, head_dim, dtype=torch.bfloat16)
    exact = qkv.double().requires_grad_()
    reference = formula(exact, batch, window)
    upstream = torch.randn(512, 2, head_dim, dtype=torch.bfloat16)
    (expected,) = torch.autograd.grad(reference, exact, upstream.double())

    device = qkv.cuda().requires_grad_()
    out = attend(*device.unbind(1), backend.prepare(batch.to("cuda")), window=window)
    (gradient,) = torch.autograd.grad(out, device, upstream.cuda())
    assert (out.cpu().double() - reference).abs().max() < 4e-2
    assert (gradient.cpu().double() - expected).abs().max() < 4e-2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_fastest_backend_is_chosen_and_runs_flash_attention(dtype):
    """A version of torch that prefers another kernel costs most of the speed, and no other test sees it."""
    if torch.version.hip is not None or torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("varlen needs a CUDA device of compute capability 8.0 or newer")
    backend = choose_backend("cuda", dtype)
    assert backend is backends()["varlen"]
    batch = pack([np.ones(n) for n in (100, 156)], max_length=156, pad=0, slots=256, sequence_slots=4)
    qkv = torch.randn(256, 3, 2, 64, dtype=dtype, device="cuda", requires_grad=True)
    layout = backend.prepare(batch.to("cuda"))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as trace:
        attend(*qkv.unbind(1), layout).sum().backward()
        torch.cuda.synchronize()
    kernels = [event.key.lower() for event in trace.key_averages()]
    assert sum("flash" in kernel for kernel in kernels) >= 2, kernels  # forward and backward
    assert not [kernel for kernel in kernels if "cudnn" in kernel], kernels
