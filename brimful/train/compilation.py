"""A step's forward and backward pass as one graph (torch.compile), which CUDA graphs replay on a GPU.

Attention's layout reads lengths on the host, so it is prepared once per batch, before the graph. The rest
reads tensors of fixed shapes: one compilation serves the whole run, and the next run of a model of the same
shape. Attention and the linear cross-entropy are opaque operators in the graph; FlexAttention is part of it.

With CUDA graphs, each pass overwrites the memory that holds the results of the pass before. So losses are
read before the next pass, and gradients are added to tensors that exist from the start (train/gradients.py).
Otherwise autograd would keep the first micro-batch's gradients where they lie, and the second
micro-batch would overwrite them (https://github.com/pytorch/pytorch/issues/169545).
"""

from collections.abc import Callable

import torch

from brimful.base.errors import BrimfulError
from brimful.base.torch_compile import Compiled, find_missing_compiler, warn_once
from brimful.base.types import Compile
from brimful.data.batch import PackedBatch
from brimful.model.attention import Layout
from brimful.model.encoder import Encoder
from brimful.train.objective import Sums

Loss = Callable[[Encoder, PackedBatch, Layout], Sums]


def resolve_compile(setting: Compile, device: torch.device, *, possible: bool = True) -> bool:
    """Decide whether to compile a step on `device`.

    Args:
        possible: whether the objective can be compiled.

    Raises:
        BrimfulError: `setting` requires compilation, and it is not possible.
    """
    if not setting or (setting == "auto" and (not possible or device.type != "cuda")):
        return False
    if not possible:
        raise BrimfulError(
            "trainer.compile: this objective's shapes change with each batch; leave it at auto"
        )
    missing = find_missing_compiler(device)
    if missing and setting != "auto":
        raise BrimfulError(f"trainer.compile needs {missing}; install it, or leave compile at auto")
    if missing:
        warn_once(f"steps are not compiled: compiling needs {missing}")
    return not missing


def make_loss(loss: Loss, encoder: Encoder, *, compiled: bool) -> Callable[[PackedBatch], Sums]:
    """Return a function of a batch on the device that prepares the batch's layout and computes `loss`.

    If `compiled`, it is one graph with its backward pass, and batches must have fixed shapes. Within DDP's
    forward pass, torch splits the graph where a bucket of gradients ends. A graph yields its gradients only
    at the end of its backward pass; with the split, later layers send theirs while earlier ones still
    compute. Where it cannot be compiled, it runs eagerly, and one line says why. With CUDA graphs, the
    caller must not read an earlier result after the next call, and the gradients must exist before the first
    backward pass and stay where they are. `sdpa` attention has its lengths on the host, so there are no CUDA
    graphs with it.
    """
    if not compiled:
        return lambda batch: loss(encoder, batch, encoder.prepare(batch))
    on_cuda = next(encoder.parameters()).device.type == "cuda"
    options = {"mode": "reduce-overhead"} if on_cuda else {}

    # The closure keeps modules out of the arguments, so parameters have fixed addresses for CUDA graphs.
    def step(batch: PackedBatch, layout: Layout) -> Sums:
        return loss(encoder, batch, layout)

    graph = Compiled(step, "a step", fullgraph=True, dynamic=False, **options)
    layout = None

    def run(batch: PackedBatch) -> Sums:
        nonlocal layout
        # A CUDA graph reads from fixed addresses, so each layout is written over the one before.
        layout = encoder.prepare(batch).moved_to(layout if on_cuda else None)
        if on_cuda:
            torch.compiler.cudagraph_mark_step_begin()
        return graph(batch, layout)

    return run
