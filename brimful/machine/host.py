"""This host: its processor, the library that sums between ranks, its GPUs, and what other processes take."""

import os
import platform
import subprocess
import time
from pathlib import Path

import torch
import torch.distributed as dist

from brimful import system
from brimful.control_groups import read_groups
from brimful.errors import BrimfulError


def usable_cores(root: Path = Path("/")) -> float:
    """Cores that this process may use: by its affinity, and by the quotas of its control groups."""
    cores = float(system.usable_cores())
    files = ["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
    limits = [" ".join(values).split() for _, values in read_groups("cpu", *files, root)]
    quotas = [limit for limit in limits if len(limit) == 2 and limit[0] not in ("max", "-1")]
    return min([cores, *(int(quota) / int(period) for quota, period in quotas)])


def busy_cores(seconds: float = 0.5, root: Path = Path("/")) -> float | None:
    """Cores that all processes keep busy while this one sleeps; None: the system does not say."""

    def ticks() -> int | None:
        """What the processors have done, but for being idle or waiting for a disk."""
        known = system.kernel_file("proc/stat", root)
        fields = [int(field) for field in known.split()[1:9]] if known else []
        return sum(fields) - fields[3] - fields[4] if fields else None

    before = ticks()
    if before is None:
        return None
    time.sleep(seconds)
    after = ticks()
    return None if after is None else (after - before) / os.sysconf("SC_CLK_TCK") / seconds


def processor() -> str:
    """The name of the processor's model, as far as the system knows it."""
    lines = (line.partition(":") for line in (system.kernel_file("proc/cpuinfo") or "").splitlines())
    names = {name.strip(): value.strip() for name, _, value in lines}
    return names.get("model name") or names.get("Model") or platform.processor() or platform.machine()


def collectives() -> str:
    """The library that sums between ranks, as linked: NCCL (on ROCm RCCL) or gloo, and the version."""
    if torch.cuda.is_available() and dist.is_nccl_available():
        version = ".".join(map(str, torch.cuda.nccl.version()))
        return f"{'RCCL' if torch.version.hip else 'NCCL'} {version}"
    return f"gloo of torch {torch.__version__}"


def gpus() -> dict[str, tuple[int, int]]:
    """The number in nvidia-smi of each GPU, and how busy it is in percent, by its UUID.

    Raises:
        BrimfulError: see `nvidia_smi`.
    """
    answer = nvidia_smi("--query-gpu=uuid,index,utilization.gpu", "--format=csv,noheader,nounits")
    rows = [line.replace(" ", "").split(",") for line in answer.splitlines() if line.count(",") == 2]
    return {
        row[0].removeprefix("GPU-"): (int(row[1]), int(row[2]) if row[2].isdigit() else 0) for row in rows
    }


def nvidia_smi(*arguments: str) -> str:
    """What nvidia-smi prints.

    Raises:
        BrimfulError: it is not installed, fails, or does not end: on a host with a broken GPU it may not.
    """
    line = ["nvidia-smi", *arguments]
    try:
        return subprocess.run(line, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise BrimfulError(f"{error} (nvidia-smi)") from error
