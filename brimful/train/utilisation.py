"""How much a device can compute at most: the denominator of the model flops utilisation (MFU)."""

import re

import torch

from brimful.precision.policy import Precision
from brimful.train.objective import Objective, Runtime


def _half(flops: float) -> dict[Precision, float]:
    """From Ampere on, bf16 and fp16 are equally fast."""
    return {"bf16": flops, "fp16": flops}


PEAKS: dict[tuple[str, ...], dict[Precision, float]] = {
    ("B200",): _half(2250e12),
    ("H200",): _half(989e12) | {"fp32": 67e12},
    ("H100", "PCIe"): _half(756e12) | {"fp32": 51e12},
    ("H100", "NVL"): _half(835e12) | {"fp32": 60e12},
    ("H100",): _half(989e12) | {"fp32": 67e12},
    ("A100",): _half(312e12) | {"fp32": 19.5e12},
    ("A40",): _half(149.7e12) | {"fp32": 37.4e12},
    ("A30",): _half(165e12) | {"fp32": 10.3e12},
    ("A10",): _half(125e12) | {"fp32": 31.2e12},
    ("L40S",): _half(362e12) | {"fp32": 91.6e12},
    ("L40",): _half(181e12) | {"fp32": 90.5e12},
    ("L4",): _half(121e12) | {"fp32": 30.3e12},
    ("RTX", "4090"): _half(165.2e12) | {"fp32": 82.6e12},
    ("RTX", "3090"): _half(71e12) | {"fp32": 35.6e12},
    ("V100S",): {"fp16": 130e12, "fp32": 16.4e12},
    ("V100", "PCIE"): {"fp16": 112e12, "fp32": 14e12},
    ("V100", "SXM2"): {"fp16": 125e12, "fp32": 15.7e12},
    ("V100", "SXM3"): {"fp16": 125e12, "fp32": 15.7e12},
    ("T4",): {"fp16": 65e12, "fp32": 8.1e12},
}
"""Flops per second of dense products with float32 sums, from the vendor's data sheets; fp32 without TF32. The
first entry whose words are all in the device's name counts."""

OTHERS = {"Laptop", "D", "Ti", "MIG"}
"""Words that tell a smaller device from a larger one of the same name."""


def peak_flops(runtime: Runtime, objective: Objective) -> float | None:
    """Flops per second that the devices of all ranks can reach together, if all are of one kind.

    None where the peak is unknown, as on CPUs, and with a teacher, whose flops are not counted.
    """
    if runtime.device.type != "cuda" or objective.frozen():
        return None
    if runtime.precision == "fp32" and torch.get_float32_matmul_precision() != "highest":
        return None
    peak = peak_of(torch.cuda.get_device_name(runtime.device), runtime.precision)
    return peak and runtime.world.size * peak


def peak_of(name: str, precision: Precision) -> float | None:
    """Flops per second of a device, by its name in CUDA, or None if unknown."""
    words = set(re.split(r"[\s-]+", name))
    if words & OTHERS:
        return None
    return next((peaks.get(precision) for key, peaks in PEAKS.items() if words.issuperset(key)), None)
