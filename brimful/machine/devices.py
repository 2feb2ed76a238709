"""What a device is, and what training chooses on it when nothing is asked for."""

import os
from typing import Any

import torch

from brimful.errors import BrimfulError
from brimful.machine.host import processor
from brimful.machine.topology import nvidia_smi
from brimful.nn.attention import BACKENDS, choose_backend
from brimful.nn.torch_compile import lacks
from brimful.precision.policy import DTYPES, resolve


def device_facts(device: torch.device) -> dict[str, Any]:
    """JSON values: the name, and the choices of `auto`; of a GPU also memory (bytes) and capability.

    `compile_lacks` is what torch.compile lacks here, or None. `visible` names a GPU in CUDA_VISIBLE_DEVICES.
    """
    precision = resolve("auto", device)
    backend = choose_backend(device, DTYPES[precision])
    facts: dict[str, Any] = {
        "device": str(device),
        "name": processor(),
        "threads": torch.get_num_threads(),
        "precision": precision,
        "attention": next(name for name, kind in BACKENDS.items() if kind is backend),
        "compile_lacks": lacks(device),
    }
    if device.type == "cuda":
        about = torch.cuda.get_device_properties(device)
        free, total = torch.cuda.mem_get_info(device)
        facts |= {
            "name": about.name,
            "capability": f"{about.major}.{about.minor}",
            "memory": {"total": total, "free": free},
            "uuid": str(getattr(about, "uuid", "")),
            "visible": _visible(device.index),
        }
    return facts


def _visible(index: int) -> str:
    given = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return given[index] if index < len(given) and given[0] else str(index)


def driver_facts() -> dict[str, Any]:
    """The driver's version, and the GPUs' numbers in `nvidia-smi` by their UUIDs.

    Raises:
        BrimfulError: nvidia-smi is not installed, or fails.
    """
    said = nvidia_smi("--query-gpu=index,uuid,driver_version", "--format=csv,noheader")
    rows = [[cell.strip() for cell in line.split(",")] for line in said.splitlines() if line.strip()]
    if not rows or any(len(row) != 3 for row in rows):
        raise BrimfulError(f"nvidia-smi names no GPU: {' '.join(said.split())[:200]}")
    return {
        "version": rows[0][2],
        "numbers": {uuid.removeprefix("GPU-"): int(index) for index, uuid, _ in rows},
    }
