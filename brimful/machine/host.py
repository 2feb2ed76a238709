"""This host: its processor, the cores and the memory that this process may use, and settings that matter."""

import os
import platform
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from brimful.control_groups import read_groups
from brimful.train.memory import available_memory

PREFIXES = ("NCCL_", "GLOO_", "TORCH_NCCL_", "UCX_", "FI_")
NAMES = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "OMP_PROC_BIND",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TORCH_DISTRIBUTED_DEBUG",
)
"""Environment variables that change how fast training is, or which ranks find each other."""

BY_TORCHRUN = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
"""torchrun sets it for every rank."""

SLOWING = {
    "NCCL_P2P_DISABLE": "GPUs of a host do not copy to each other directly",
    "NCCL_SHM_DISABLE": "GPUs of a host talk through the network",
    "NCCL_IB_DISABLE": "InfiniBand and RoCE are not used",
    "CUDA_LAUNCH_BLOCKING": "the host waits for every kernel",
}
"""Variables that somebody once set to find an error, and what they cost."""


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that matter here, by name."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if (name.startswith(PREFIXES) or name in NAMES) and (name, value) != BY_TORCHRUN
    }


def slowing(environment: Mapping[str, str]) -> list[str]:
    """One line for each variable that makes training slower."""
    lines = [
        f"{name}={environment[name]}: {cost}; unset it unless it is needed"
        for name, cost in SLOWING.items()
        if environment.get(name, "0").lower() not in ("", "0", "false")
    ]
    if environment.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL":
        lines.append("TORCH_DISTRIBUTED_DEBUG=DETAIL: every collective is checked among all ranks; unset it")
    return lines


def usable_cores(root: Path = Path("/")) -> float:
    """Cores that this process may use: by its affinity, and by the quotas of its control groups.

    Args:
        root: of the file system with `proc` and `sys`.
    """
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    return min([cores, *_quotas(root)])


def _quotas(root: Path) -> list[float]:
    """Cores of each limit on processor time (control groups v2 or v1) that this process is under."""
    files = ["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
    limits = [" ".join(values).split() for _, values in read_groups("cpu", *files, root)]
    return [
        int(limit[0]) / int(limit[1]) for limit in limits if len(limit) == 2 and limit[0] not in ("max", "-1")
    ]


def processor(root: Path = Path("/")) -> str:
    """The name of the processor's model, as far as the system knows it."""
    try:
        lines = (root / "proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for key in ("model name", "Model", "cpu model"):  # x86, some ARM, MIPS
        for line in lines:
            name, _, value = line.partition(":")
            if name.strip() == key and value.strip():
                return value.strip()
    return platform.processor() or platform.machine()


def host_facts() -> dict[str, Any]:
    """What a host is: JSON values, memory in bytes."""
    memory: dict[str, int | None] = {
        "total": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "available": available_memory(),
        "shared": None,
    }
    if os.path.isdir("/dev/shm"):
        memory["shared"] = shutil.disk_usage("/dev/shm").free
    return {
        "name": socket.gethostname(),
        "processor": processor(),
        "cores": usable_cores(),
        "instructions": _instructions(),
        "memory": memory,
    }


def _instructions() -> list[str]:
    """The processor's instructions for products in 16 bits."""
    known = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    names = {"avx512_bf16": "AVX-512-BF16", "amx_bf16": "AMX-BF16", "amx_fp16": "AMX-FP16", "bf16": "BF16"}
    return [name for key, name in names.items() if known.get(key)]


def software() -> dict[str, Any]:
    """torch and what it was built with: JSON values; None: not there."""
    import torch.distributed as dist

    nccl = dist.is_available() and dist.is_nccl_available() and torch.cuda.is_available()
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cuda": torch.version.cuda,
        "rocm": torch.version.hip,
        "gloo": dist.is_available() and dist.is_gloo_available(),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if nccl else None,
    }
