"""Bytes of a training step: what a rank holds, and what a pass allocates.

A pass is traced, not calculated: its own modules make a forward and a backward pass on fake tensors, which
have shapes and storages but no memory, and every storage is counted from its making to its end. So any
architecture, precision, dropout or recomputation is right by construction, for the uncompiled kernels of the
CPU. What an operator takes and gives back within itself (blocks of scores) is not seen.
"""

import gc
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from brimful.data.batch import PackedBatch
from brimful.model.drawing import undrawn
from brimful.model.encoder import Encoder
from brimful.model.shape import EncoderConfig
from brimful.optim.config import OptimizerConfig
from brimful.precision.formats import Precision
from brimful.precision.policy import DTYPES, autocast
from brimful.train.config import TrainerConfig
from brimful.train.objective import Objective

HEAD_ROOM = 0.1
"""The proportion of free memory that stays free."""


@dataclass(frozen=True)
class Held:
    """The most bytes that a rank holds beside a pass.

    Attributes:
        states: of the optimizers, and what rounding keeps.
        passing: the running mean of micro-batches' gradients.
    """

    weights: int
    gradients: int
    states: int
    passing: int

    @classmethod
    def of(
        cls,
        modules: Iterable[nn.Module],
        optimizer: OptimizerConfig,
        trainer: TrainerConfig,
        precision: Precision,
    ) -> "Held":
        """What a run holds that trains these modules in a resolved precision."""
        trained = nn.ModuleList(modules)
        numbers = sum(p.numel() for p in trained.parameters() if p.requires_grad)
        with_one_moment = 0
        if optimizer.name == "muon":
            encoders = [module for module in trained if isinstance(module, Encoder)]
            matrices = [
                encoder.get_parameter(name) for encoder in encoders for name in encoder.fused_blocks()
            ]
            with_one_moment = sum(p.numel() for p in matrices if p.requires_grad)
        own, narrow = DTYPES[trainer.weights].itemsize * numbers, trainer.weights != "fp32"
        rounding = {"master": 4, "kahan": 2}.get(trainer.rounding, 0) if narrow else 0
        return cls(
            weights=own,
            gradients=own,
            states=4 * (2 * numbers - with_one_moment) + rounding * numbers,
            passing=own if narrow or precision == "fp16" else 0,
        )

    @property
    def later(self) -> int:
        """What is not there before the first update."""
        return self.states + self.passing

    @property
    def total(self) -> int:
        """The sum."""
        return self.weights + self.gradients + self.later


def room_of_a_pass(free: int, later: int) -> int:
    """Bytes that a pass may take.

    Args:
        free: beside weights and gradients.
        later: what the run will yet hold.
    """
    return free - int(free * HEAD_ROOM) - later


class _Living(TorchDispatchMode):
    """Counts the bytes of the storages that operators make, until they are freed."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.now = self.peak = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return made

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self.sizes:
            self.sizes[key] = storage.nbytes()
            self.now += self.sizes[key]
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._drop, key)

    def _drop(self, key: int) -> None:
        self.now -= self.sizes.pop(key)


def traced_pass(
    make: Callable[[], tuple[Encoder, Objective]],
    trainer: TrainerConfig,
    precision: Precision,
    batch: PackedBatch,
) -> int:
    """The most bytes that a forward and backward pass over a micro-batch has at any moment, beside parameters
    and gradients, which are there before it.

    Args:
        make: makes the modules; their weights take no memory and are not drawn.
        trainer: its `residual` is resolved.
        precision: resolved.
        batch: its values do not matter.
    """
    gc.collect()  # what a cycle still holds would be counted as if it stayed
    with FakeTensorMode(allow_non_fake_inputs=True):
        with undrawn():
            encoder, objective = make()
        encoder.recomputes = trainer.recompute == "layers"
        encoder.set_residual(torch.bfloat16 if trainer.residual == "bf16" else None)
        trained = nn.ModuleList([encoder, *objective.modules().values()]).train()
        for parameter in trained.parameters():
            parameter.data = parameter.data.to(DTYPES[trainer.weights])
            parameter.grad = torch.empty_like(parameter)
        layout = encoder.prepare(batch)
        with _Living() as living:
            with autocast(precision, torch.device("cpu")):
                sums = objective.loss(encoder, batch, layout)
            terms = [sums[term] for term in objective.coefficients]
            del sums
            torch.stack(terms).sum().backward()
            kept = _kept_products(encoder.config, trainer, len(batch.tokens)) if trainer.compile else 0
            return living.peak + kept


def _kept_products(config: EncoderConfig, trainer: TrainerConfig, slots: int) -> int:
    """Bytes that a compiled pass on a GPU keeps and an uncompiled one computes again: the products of gates,
    where the residual stream is in bf16 (docs/performance.md, "Bytes between products").

    Args:
        slots: of the micro-batch.
    """
    if not config.gated or trainer.residual != "bf16" or trainer.recompute == "layers":
        return 0
    return 2 * config.intermediate_size * config.layers * slots
