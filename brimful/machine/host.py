"""This host: the library that sums between ranks, and its GPUs."""

import subprocess

import torch
import torch.distributed as dist

from brimful.base.errors import BrimfulError


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
