"""The device that this process computes on."""

import torch

from brimful.base.environment import read_number
from brimful.base.errors import BrimfulError


def default_device() -> torch.device:
    """Return the CUDA device of this process, or the CPU of a machine without CUDA.

    Raises:
        BrimfulError: this machine has fewer CUDA devices than processes; or torch's build has no code for the
            device. The wheels for CUDA 13 begin at compute capability 7.5 (T4). Those for CUDA 12.6 also
            serve 5.0 to 7.0 (github.com/pytorch/pytorch, issue 172352); 2.14 is the last torch that has them
            (issue 190385).
    """
    if not torch.cuda.is_available():
        return torch.device("cpu")
    index, count = read_number("LOCAL_RANK", 0), torch.cuda.device_count()
    # The ranks of a machine take its GPUs in order.
    if index >= count:
        raise BrimfulError(
            f"local rank {index} has no GPU, since this machine shows {count}: start at most {count}"
            " processes (torchrun --nproc-per-node)"
        )
    device = torch.device("cuda", index)
    try:
        torch.zeros(1, device=device).add_(1)  # the first kernel fails where torch has no code for the GPU
    except RuntimeError as error:
        if "no kernel image" not in str(error):
            raise
        version = torch.__version__.partition("+")[0]
        raise BrimfulError(
            f"torch {torch.__version__} has no code for {torch.cuda.get_device_name(device)}: for an older"
            f" GPU pip install torch=={version} --index-url https://download.pytorch.org/whl/cu126, for a"
            " newer one pip install --upgrade torch; or use the CPU, with CUDA_VISIBLE_DEVICES= (empty)"
        ) from error
    return device
