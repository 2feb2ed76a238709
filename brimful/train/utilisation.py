"""How much a device can compute at most: the denominator of the model flops utilisation (MFU)."""

import torch

from brimful.precision.policy import Precision
from brimful.train.data_sheets import sheet_of
from brimful.train.objective import Objective, Runtime


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
    sheet = sheet_of(name)
    return None if sheet is None else sheet.peak(precision)
