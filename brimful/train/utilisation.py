"""The peak of a device's flops per second: the denominator of the model flops utilisation (MFU)."""

import re

import torch

from brimful.base.types import Precision

BF16_CAPABILITY = 80
"""The lowest capability that computes bfloat16 as fast as float16."""
SMALLER_DEVICES = {"Laptop", "D", "Ti", "MIG"}
"""Words that distinguish a smaller device from a larger one of the same name."""


PEAKS: dict[str, tuple[int, float, float | None]] = {
    "GB200": (100, 2500e12, None),
    "B200": (100, 2250e12, None),
    "H200": (90, 989e12, 67e12),
    "H100 PCIe": (90, 756e12, 51e12),
    "H100 NVL": (90, 835e12, 60e12),
    "H100": (90, 989e12, 67e12),
    "A100": (80, 312e12, 19.5e12),
    "A40": (86, 149.7e12, 37.4e12),
    "A30": (80, 165e12, 10.3e12),
    "A10": (86, 125e12, 31.2e12),
    "L40S": (89, 362e12, 91.6e12),
    "L40": (89, 181e12, 90.5e12),
    "L4": (89, 121e12, 30.3e12),
    "RTX 4090": (89, 165.2e12, 82.6e12),
    "RTX 3090": (86, 71e12, 35.6e12),
    "V100S": (70, 130e12, 16.4e12),
    "V100 SXM2": (70, 125e12, 15.7e12),
    "V100 SXM3": (70, 125e12, 15.7e12),
    "V100 PCIE": (70, 112e12, 14e12),
    "T4": (75, 65e12, 8.1e12),
}
"""Data sheets of GPUs. The first entry whose words are all in a device's name in CUDA counts.

The numbers are the capability (10 * major + minor), the dense flops per second of 16-bit products with
float32 sums, and the flops per second in float32 without TF32; None: not known.
"""


def find_peak_flops(device: torch.device, precision: Precision, ranks: int) -> float | None:
    """Find the flops per second of all ranks together, whose devices are of one kind; None where they are
    unknown, as on CPUs."""
    if device.type != "cuda":
        return None
    # TF32 products are faster than the data sheet's float32, by a factor that is not in the table.
    if precision == "fp32" and torch.get_float32_matmul_precision() != "highest":
        return None
    peak = find_peak(torch.cuda.get_device_name(device), precision)
    return peak and ranks * peak


def find_peak(name: str, precision: Precision) -> float | None:
    """Find a device's flops per second in a resolved precision, by the device's name in CUDA.

    Returns:
        None if the device lacks this format, or its flops per second are not known.
    """
    words = set(re.split(r"[\s_-]+", name))
    for device, (capability, flops, flops_32) in PEAKS.items():
        if words >= set(device.split()):
            if words & SMALLER_DEVICES or (precision == "bf16" and capability < BF16_CAPABILITY):
                return None
            return flops_32 if precision == "fp32" else flops
    return None
