"""Where the time of a step goes: matrix products, attention, everything else, and gaps between kernels."""

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

STEPS = 3
ATTENTION = ("flash", "fmha", "flex_attention", "blockwise_attention", "attn")
MATRIX = ("gemm", "nvjet", "cutlass", "cublas", "xmma", "triton_tem", "aten::mm", "aten::addmm", "aten::bmm")


def kind_of(kernel: str) -> str:
    """matrix, attention or other, by a kernel's name (of an operation on the CPU)."""
    name = kernel.lower()
    if any(part in name for part in ATTENTION):
        return "attention"
    return "matrix" if any(part in name for part in MATRIX) else "other"


def shares(step: Callable[[], object], seconds: float, device: torch.device) -> dict[str, float]:
    """The share of each kind of kernel in a step that takes `seconds`, and of the gaps that they leave.

    Measured over a few steps under the profiler, which slows launches but not kernels: so the gaps are what
    kernels leave of the time without it.
    """
    cuda = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]) as profiled:
        for _ in range(STEPS):
            step()
        if cuda:
            torch.cuda.synchronize()
    found = dict.fromkeys(("matrix", "attention", "other"), 0.0)
    for event in profiled.key_averages():
        microseconds = event.self_device_time_total if cuda else event.self_cpu_time_total
        found[kind_of(event.key)] += microseconds / 1e6 / STEPS / seconds
    return found | {"gaps": max(0.0, 1 - sum(found.values()))}
