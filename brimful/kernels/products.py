"""Matrix products of inference on a CPU, and of a frozen model: oneDNN's.

torch's `linear` calls MKL, which leaves a part of an AMD processor idle: on one core of an EPYC (Zen 4), it
computes 89 to 92 Gflops a second where oneDNN computes 104 to 107 (fp32, products of 384 x 1536 and the like
with 4,096 tokens). A run of inference lays out the weights for these products once, in a copy. A teacher's
weights stay in memory while its student trains, so they are not copied: then a layer's products of width 768
took 0.87 to 0.92 of MKL's time (1,024 to 1,536 rows), but no less with 1,475 rows, no multiple of `EVEN`.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from brimful.base.system import kernel_file
from brimful.precision.formats import Precision

FEWEST = 4096
"""Tokens in a run below which products are left to torch: laying out the weights would cost what it gains."""

FEWEST_ROWS = 1024
"""Rows of a product below which it is left to torch. A head has a row for each text, so another number in
each batch, and oneDNN keeps what it compiles for every new shape: some 100 kB."""

EVEN = 16
"""Rows of a product without a copy of the weights are a multiple of this; else it is left to torch."""

_OPERATIONS = ("_reorder_linear_weight", "_linear_pointwise")


def run_applies(device: torch.device, tokens: int, precision: Precision) -> bool:
    """Whether `OneDnn` is faster for a run of inference over this many tokens."""
    return precision == "fp32" and device.type == "cpu" and tokens >= FEWEST and onednn_is_faster()


def teacher_applies(device: torch.device) -> bool:
    """Whether it is for a frozen model while another one trains."""
    return device.type == "cpu" and onednn_is_faster()


@cache
def onednn_is_faster() -> bool:
    """Whether large products are faster: on an AMD processor with AVX-512, where it was measured."""
    return torch.backends.cpu.get_cpu_capability() == "AVX512" and has_onednn_on_amd()


@cache
def has_onednn_on_amd() -> bool:
    """Whether this is an AMD processor, and torch has the operations."""
    amd = "AuthenticAMD" in (kernel_file("proc/cpuinfo") or "")
    return amd and all(hasattr(torch.ops.mkldnn, name) for name in _OPERATIONS)


class OneDnn(TorchFunctionMode):
    """Inside, `linear` of float32 parameters is oneDNN's, where nothing has a gradient, without autocast.

    Attributes:
        copying: whether it holds a copy of each of these parameters, which must not change meanwhile.
        copies: the parameter and its copy, by identity.
    """

    def __init__(self, copying: bool = True) -> None:
        super().__init__()
        self.copying = copying
        self.copies: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is not F.linear or kwargs or not _is_served(*args):
            return func(*args, **(kwargs or {}))
        x, weight, bias = args
        if not self.copying:
            if len(x) % EVEN:
                return func(*args)
            return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
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
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
    )
