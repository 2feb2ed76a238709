"""The peak of a device's flops per second: the denominator of the model flops utilisation (MFU)."""

import re
from typing import NamedTuple

import torch

from brimful.base.types import Precision

BF16_CAPABILITY = 80
"""The capability from which on bfloat16 is computed as fast as float16."""
SMALLER_DEVICES = {"Laptop", "D", "Ti", "MIG"}
"""Words that tell a smaller device from a larger one of the same name."""


class _Peak(NamedTuple):
    """A GPU's data sheet.

    Attributes:
        words: all of them are in the device's name in CUDA.
        capability: 10 * major + minor.
        flops: a second, dense, of 16-bit products with float32 sums.
        flops_32: a second, in float32 without TF32; None: not known.
    """

    words: set[str]
    capability: int
    flops: float
    flops_32: float | None


PEAKS = (
    _Peak({"GB200"}, 100, 2500e12, None),
    _Peak({"B200"}, 100, 2250e12, None),
    _Peak({"H200"}, 90, 989e12, 67e12),
    _Peak({"H100", "PCIe"}, 90, 756e12, 51e12),
    _Peak({"H100", "NVL"}, 90, 835e12, 60e12),
    _Peak({"H100"}, 90, 989e12, 67e12),
    _Peak({"A100"}, 80, 312e12, 19.5e12),
    _Peak({"A40"}, 86, 149.7e12, 37.4e12),
    _Peak({"A30"}, 80, 165e12, 10.3e12),
    _Peak({"A10"}, 86, 125e12, 31.2e12),
    _Peak({"L40S"}, 89, 362e12, 91.6e12),
    _Peak({"L40"}, 89, 181e12, 90.5e12),
    _Peak({"L4"}, 89, 121e12, 30.3e12),
    _Peak({"RTX", "4090"}, 89, 165.2e12, 82.6e12),
    _Peak({"RTX", "3090"}, 86, 71e12, 35.6e12),
    _Peak({"V100S"}, 70, 130e12, 16.4e12),
    _Peak({"V100", "SXM2"}, 70, 125e12, 15.7e12),
    _Peak({"V100", "SXM3"}, 70, 125e12, 15.7e12),
    _Peak({"V100", "PCIE"}, 70, 112e12, 14e12),
    _Peak({"T4"}, 75, 65e12, 8.1e12),
)
"""The first whose words are all in a device's name counts."""


def find_peak_flops(device: torch.device, precision: Precision, ranks: int) -> float | None:
    """Find the flops per second of all ranks together, with devices of one kind; None: unknown, as on
    CPUs."""
    if device.type != "cuda":
        return None
    # TF32 products are faster than the data sheet's float32, by a factor that is not in the table.
    if precision == "fp32" and torch.get_float32_matmul_precision() != "highest":
        return None
    peak = find_peak(torch.cuda.get_device_name(device), precision)
    return peak and ranks * peak


def find_peak(name: str, precision: Precision) -> float | None:
    """Find a device's flops per second in a resolved precision, by its name in CUDA; None: it lacks this
    format, or the rate is not known."""
    words = set(re.split(r"[\s_-]+", name))
    peak = next((each for each in PEAKS if each.words <= words), None)
    if peak is None or words & SMALLER_DEVICES or (precision == "bf16" and peak.capability < BF16_CAPABILITY):
        return None
    return peak.flops_32 if precision == "fp32" else peak.flops
