"""Bytes that one rank holds: parameters, gradients, optimizer states, and what a pass needs beside them.

A pass is traced, not calculated: the run's own modules make a forward and a backward pass on fake tensors,
which have shapes and storages but no memory, and every storage is counted from its making to its end. So any
architecture, precision, dropout or recomputation is right by construction, for the uncompiled kernels of the
CPU. What an operator takes and gives back within itself (blocks of scores) is not seen.
"""

import gc
import weakref
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from brimful.data.batch import PackedBatch
from brimful.data.sequences import SequencesConfig
from brimful.nn.drawing import undrawn
from brimful.nn.encoder import Encoder
from brimful.nn.initial import head_kind
from brimful.nn.layers import EncoderConfig
from brimful.objectives.masked_lm import MaskedLM, MaskedLMAndPairs
from brimful.optim.build import OptimizerConfig
from brimful.precision.policy import DTYPES, Precision, autocast
from brimful.train.config import TrainerConfig


@dataclass(frozen=True)
class Trained:
    """The parameters that a run trains, without their values.

    Attributes:
        shapes: by name.
        matrices: those inside the layers, which Muon updates: the number of logical matrices in each.
        encoder: parameters of the encoder alone.
    """

    shapes: dict[str, torch.Size]
    matrices: dict[str, int]
    encoder: int

    @property
    def parameters(self) -> int:
        """Their number."""
        return sum(shape.numel() for shape in self.shapes.values())


def trained_modules(config: EncoderConfig, sequences: SequencesConfig) -> nn.ModuleDict:
    """Encoder and head as pretraining makes them, on the meta device, so without memory."""
    with torch.device("meta"), undrawn():
        encoder = Encoder(config)
        return nn.ModuleDict({"encoder": encoder, "head": head_kind(sequences)(encoder)})


def trained(config: EncoderConfig, sequences: SequencesConfig) -> Trained:
    """What a run trains."""
    modules = trained_modules(config, sequences)
    encoder = modules["encoder"]
    assert isinstance(encoder, Encoder)
    shapes = {name: parameter.shape for name, parameter in modules.named_parameters()}
    return Trained(
        shapes,
        {f"encoder.{name}": blocks for name, blocks in encoder.fused_blocks().items()},
        sum(parameter.numel() for parameter in encoder.parameters()),
    )


@dataclass(frozen=True)
class Held:
    """Bytes of a rank that do not depend on its micro-batch.

    Attributes:
        states: of the optimizers.
        other: the moving average, and the mean of earlier micro-batches.
    """

    weights: int
    gradients: int
    states: int
    other: int

    @property
    def total(self) -> int:
        """Their sum."""
        return sum(asdict(self).values())


def held(
    model: Trained,
    optimizer: OptimizerConfig,
    trainer: TrainerConfig,
    precision: Precision,
    *,
    micro_batches: int = 1,
) -> Held:
    """What a rank holds when the optimizers step, and what stays through a pass.

    Args:
        precision: resolved.
        micro_batches: of a rank in an update.
    """
    sizes = {name: shape.numel() for name, shape in model.shapes.items()}
    all_ = sum(sizes.values())
    own = 4 if trainer.weights == "fp32" else 2
    rounding = {"master": 4, "kahan": 2}.get(trainer.rounding, 0) if own == 2 else 0
    each = {name: _state_bytes(name, model, optimizer) + rounding for name in sizes}
    states = sum(each[name] * size for name, size in sizes.items())
    other = own * all_ if optimizer.ema else 0
    if micro_batches > 1 and (own == 2 or precision == "fp16"):
        other += own * all_  # the mean of the micro-batches before the present one
    return Held(own * all_, own * all_, states, other)


def _state_bytes(name: str, model: Trained, optimizer: OptimizerConfig) -> int:
    """Bytes of the optimizer's states for each number of a parameter."""
    moments = 1 if optimizer.name == "muon" and name in model.matrices else 2
    return 4 * (moments + bool(optimizer.pull))


@dataclass(frozen=True)
class Pass:
    """Bytes of a forward and backward pass, without parameters.

    Attributes:
        saved: what forward keeps for backward, each storage once.
        peak: the most at any moment, the gradients that backward makes included.
    """

    saved: int
    peak: int


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
    config: EncoderConfig,
    sequences: SequencesConfig,
    trainer: TrainerConfig,
    precision: Precision,
    batch: PackedBatch,
    *,
    has_gradients: bool,
    loss_mean: str = "tokens",
    sampled_softmax: int | None = None,
) -> Pass:
    """Trace a pass of pretraining over a micro-batch.

    Args:
        trainer: its `residual` is resolved.
        precision: resolved.
        batch: its values do not matter.
        has_gradients: whether each parameter has a gradient before the pass, as in buckets and after an
            update's first micro-batch.
    """
    saved: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage._cdata] = storage.nbytes()
        return tensor

    gc.collect()  # what a cycle still holds would be counted as if it stayed
    with FakeTensorMode(allow_non_fake_inputs=True):
        with undrawn():
            encoder = Encoder(config).train()
            head = head_kind(sequences)(encoder).train()
        encoder.recomputes = trainer.recompute == "layers"
        encoder.set_residual(torch.bfloat16 if trainer.residual == "bf16" else None)
        parameters = [*encoder.parameters(), *head.parameters()]
        for parameter in parameters:
            if trainer.weights != "fp32":
                parameter.data = parameter.data.to(DTYPES[trainer.weights])
            if has_gradients:
                parameter.grad = torch.empty_like(parameter)
        kind = MaskedLMAndPairs if sequences.paired else MaskedLM
        objective = kind(head, {}, loss_mean, sampled_softmax)  # type: ignore[arg-type]
        layout = encoder.prepare(batch)
        with _Living() as living:
            with saved_tensors_hooks(keep, lambda t: t), autocast(precision, torch.device("cpu")):
                sums = objective.loss(encoder, batch, layout)
            terms = [sums[term] for term in objective.coefficients]
            del sums
            torch.stack(terms).sum().backward()
            peak = living.peak
        for parameter in parameters:
            saved.pop(parameter.untyped_storage()._cdata, None)
    given = sum(p.numel() * p.element_size() for p in parameters) if has_gradients else 0
    return Pass(sum(saved.values()), peak + given)


def kept_products(config: EncoderConfig, trainer: TrainerConfig, slots: int) -> int:
    """Bytes that a compiled pass on a GPU keeps and an uncompiled one computes again: the products of gates,
    where the residual stream is in bf16 (docs/performance.md, "Bytes between products")."""
    if not config.gated or trainer.residual != "bf16" or trainer.recompute == "layers":
        return 0
    return 2 * config.intermediate_size * config.layers * slots
