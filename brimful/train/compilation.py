"""A step's forward and backward pass as one graph (torch.compile), which CUDA graphs replay on a GPU.

What a graph may not hold happens before it: attention's layout, which reads lengths on the host, is prepared
once for each batch. What is left reads tensors of fixed shapes, so that one compilation serves a whole run
(and the next one, of a model of the same shape); attention and the linear cross-entropy are opaque operators
in it, FlexAttention is a part of it.

With CUDA graphs the results of a pass lie in memory that the next pass writes again. So losses are read
before that, and gradients are added up in buffers that were there before: autograd would otherwise take over
those of the first micro-batch as they lie, and the second would overwrite them
(https://github.com/pytorch/pytorch/issues/169545).
"""

import os
import shutil
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any, Literal

import torch
from torch import Tensor, nn

from brimful.console import warn
from brimful.data.batch import PackedBatch
from brimful.errors import BrimfulError
from brimful.nn.attention import Layout
from brimful.nn.encoder import Encoder

Compile = Literal["auto"] | bool
"""Whether a step is compiled; auto: on CUDA, where Triton and a C compiler are at hand."""

Loss = Callable[[Encoder, PackedBatch, Layout], dict[str, Tensor]]


def lacks(device: torch.device) -> str | None:
    """What compiling for `device` needs and this machine does not have; None if nothing."""
    variable, usual = ("CC", "gcc") if device.type == "cuda" else ("CXX", "g++")
    compiler = os.environ.get(variable) or usual
    if shutil.which(compiler.split()[0]) is None:
        return f"a compiler: there is no {compiler} ({variable} names another one)"
    if device.type == "cuda" and find_spec("triton") is None:
        return "Triton"
    return None


def resolve_compile(setting: Compile, device: torch.device, *, possible: bool = True) -> bool:
    """Whether a step on `device` is to be compiled.

    Args:
        possible: whether the objective can be.

    Raises:
        BrimfulError: it must be and cannot be.
    """
    if setting == "auto":
        if not possible or device.type != "cuda":
            return False
        if missing := lacks(device):
            warn(f"steps are not compiled, which needs {missing}")
        return not missing
    if setting and not possible:
        raise BrimfulError(
            "trainer.compile: this objective's shapes change with each batch; leave it at auto"
        )
    if setting and (missing := lacks(device)):
        raise BrimfulError(f"trainer.compile needs {missing}; install it, or leave compile at auto")
    return setting


def loss_function(
    loss: Loss, encoder: Encoder, device: torch.device, *, compiled: bool
) -> Callable[[PackedBatch], dict[str, Tensor]]:
    """`loss` of a batch on `device`, its layout prepared beforehand; where `compiled`, as one graph with its
    backward pass, which needs batches of fixed shapes.

    With CUDA graphs, what it returned last must not be read any more when it is called again, and gradients
    must be accumulated in `gradient_buffers`. Under `sdpa` attention, whose lengths are on the host, there
    are no CUDA graphs.
    """
    if not compiled:
        return lambda batch: loss(encoder, batch, encoder.prepare(batch))
    on_cuda = device.type == "cuda"
    mode = "reduce-overhead" if on_cuda else None
    # The closure keeps modules out of the arguments, and so their weights at fixed addresses for CUDA graphs.
    graph: Any = torch.compile(
        lambda batch, layout: loss(encoder, batch, layout), fullgraph=True, dynamic=False, mode=mode
    )

    def run(batch: PackedBatch) -> dict[str, Tensor]:
        layout = encoder.prepare(batch)
        if on_cuda:
            torch.compiler.cudagraph_mark_step_begin()
        return graph(batch, layout)

    return run


def gradient_buffers(parameters: Iterable[nn.Parameter]) -> None:
    """Give every parameter a gradient of zeros, which stays: zero it with `set_to_none=False`."""
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
