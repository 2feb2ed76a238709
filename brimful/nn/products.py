"""Matrix products of inference on a CPU: oneDNN's, with weights that are laid out for them once.

torch's `linear` calls MKL, which leaves a part of an AMD processor idle: on one core of an EPYC (Zen 4), it
computes 89 to 92 Gflops a second where oneDNN computes 104 to 107 (fp32, products of 384 x 1536 and the like
with 4,096 tokens).
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

FEWEST = 4096
"""Tokens in a run below which products are left to torch: laying out the weights would cost what it gains."""

FEWEST_ROWS = 1024
"""Rows of a product below which it is left to torch. A head has a row for each text, so another number in
each batch, and oneDNN keeps what it compiles for every new shape: some 100 kB."""

_OPERATIONS = ("_reorder_linear_weight", "_linear_pointwise")


def products_of_run(device: torch.device, tokens: int) -> AbstractContextManager[Any]:
    """What the forward passes of a run of inference happen in, each anew. Weights must not change meanwhile.

    Args:
        tokens: of the whole run.
    """
    return OneDnn() if device.type == "cpu" and tokens >= FEWEST and _is_faster() else nullcontext()


@cache
def _is_faster() -> bool:
    """Whether this is an AMD processor with AVX-512, where it was measured, and torch has the operations."""
    info = Path("/proc/cpuinfo")
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not info.is_file():
        return False
    amd = "AuthenticAMD" in info.read_text(errors="replace")
    return amd and all(hasattr(torch.ops.mkldnn, name) for name in _OPERATIONS)


class OneDnn(TorchFunctionMode):
    """Inside, `linear` of float32 parameters is oneDNN's, in inference mode without autocast.

    It holds a copy of each of these parameters.
    """

    def __init__(self) -> None:
        super().__init__()
        self.copies: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is not F.linear or kwargs or not _is_served(*args):
            return func(*args, **(kwargs or {}))
        x, weight, bias = args
        if id(weight) not in self.copies:
            copy = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), len(x))
            self.copies[id(weight)] = weight, copy  # the weight too, so that no other one gets its id
        return torch.ops.mkldnn._linear_pointwise(x, self.copies[id(weight)][1], bias, "none", [], "")


def _is_served(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    return (
        isinstance(weight, nn.Parameter)
        and x.ndim == 2
        and len(x) >= FEWEST_ROWS
        and x.dtype == weight.dtype == torch.float32
        and x.is_cpu
        and torch.is_inference_mode_enabled()
        and not torch.is_autocast_enabled("cpu")
    )
