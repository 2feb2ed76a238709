"""The device that this process computes on."""

import re
import warnings
from collections.abc import Iterable

import torch

from brimful.base.environment import number_of
from brimful.base.errors import BrimfulError

_ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")


def default_device() -> torch.device:
    """The CUDA device of this process, or the CPU where there is none.

    Raises:
        BrimfulError: this machine has fewer CUDA devices than processes; or torch's build has no code for the
            device. The wheels for CUDA 13 begin at compute capability 7.5 (T4). Those for CUDA 12.6 also
            serve 5.0 to 7.0 (github.com/pytorch/pytorch, issue 172352); 2.14 is the last torch that has them
            (issue 190385).
    """
    if not torch.cuda.is_available():
        return torch.device("cpu")
    index, count = number_of("LOCAL_RANK", 0), torch.cuda.device_count()
    if index >= count:
        raise BrimfulError(
            f"local rank {index} has no GPU, since this machine shows {count}: start at most {count}"
            " processes (torchrun --nproc-per-node)"
        )
    device = torch.device("cuda", index)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says the same in many lines
        capability = torch.cuda.get_device_capability(device)
    if torch.version.hip is None and not _has_code(capability, torch.cuda.get_arch_list()):
        version = torch.__version__.partition("+")[0]
        other = f"torch=={version} --index-url https://download.pytorch.org/whl/cu126"
        if capability >= (7, 5):
            other = "--upgrade torch"
        raise BrimfulError(
            f"torch {torch.__version__} has no code for {torch.cuda.get_device_name(device)} (compute"
            f" capability {capability[0]}.{capability[1]}): pip install {other}; or use the CPU, with"
            " CUDA_VISIBLE_DEVICES= (empty)"
        )
    return device


def _has_code(capability: tuple[int, int], architectures: Iterable[str]) -> bool:
    """Whether a build for these architectures runs on a device: sm_75, sm_90a, sm_120f, compute_90 ...

    Binary code runs on devices of its own major version with at least its minor one, PTX (compute) on all
    later devices, and code with the suffix a on no other device than its own.
    """
    for found in filter(None, map(_ARCHITECTURE.fullmatch, architectures)):
        kind, suffix, own = found[1], found[4], (int(found[2]), int(found[3]))
        later = capability >= own if kind == "compute" else capability[0] == own[0] and capability >= own
        if capability == own or (later and suffix != "a"):
            return True
    return False
