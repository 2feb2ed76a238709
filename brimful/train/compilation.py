"""A step's forward and backward pass as one graph (torch.compile), which CUDA graphs replay on a GPU.

Attention's layout reads lengths on the host, so it is prepared once per batch, before the graph. The rest
reads tensors of fixed shapes: one compilation serves the whole run, and the next run of a model of the same
shape. Attention and the linear cross-entropy are opaque operators in the graph; FlexAttention is part of it.

With CUDA graphs, each pass overwrites the memory that holds the results of the pass before. So losses are
read before the next pass, and gradients are added to buffers that exist from the start. Otherwise autograd
would adopt the gradients of the first micro-batch where they lie, and the second micro-batch would overwrite
them (https://github.com/pytorch/pytorch/issues/169545).
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
"""Whether a step is compiled. auto: on CUDA, if Triton and a C compiler are installed."""

Loss = Callable[[Encoder, PackedBatch, Layout], dict[str, Tensor]]


def lacks(device: torch.device) -> str | None:
    """What this machine lacks to compile for `device`; None if it lacks nothing."""
    variable, usual = ("CC", "gcc") if device.type == "cuda" else ("CXX", "g++")
    compiler = os.environ.get(variable) or usual
    if shutil.which(compiler.split()[0]) is None:
        return f"a compiler, and {compiler} was not found ({variable} can name another one)"
    if device.type == "cuda" and find_spec("triton") is None:
        return "Triton"
    return None


def resolve_compile(setting: Compile, device: torch.device, *, possible: bool = True) -> bool:
    """Whether to compile a step on `device`.

    Args:
        possible: whether the objective can be compiled.

    Raises:
        BrimfulError: `setting` asks for it, and it is not possible.
    """
    if setting == "auto":
        if not possible or device.type != "cuda":
            return False
        if missing := lacks(device):
            warn(f"steps are not compiled: compiling needs {missing}")
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
    """`loss` as a function of a batch on `device`, which prepares the batch's layout.

    If `compiled`, it is one graph with its backward pass, and batches must have fixed shapes. With CUDA
    graphs, the caller must not read an earlier result after the next call, and must accumulate gradients in
    `gradient_buffers`. `sdpa` attention has its lengths on the host, so there are no CUDA graphs with it.
    """
    if not compiled:
        return lambda batch: loss(encoder, batch, encoder.prepare(batch))
    on_cuda = device.type == "cuda"
    mode = "reduce-overhead" if on_cuda else None
    # The closure keeps modules out of the arguments, so parameters have fixed addresses for CUDA graphs.
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
    """Give every parameter a gradient of zeros. Keep these tensors: zero them with `set_to_none=False`."""
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
