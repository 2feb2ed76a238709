"""Bytes that one rank holds: parameters, gradients, optimizer states, and what a pass needs beside them.

A pass is traced, not calculated: the run's own modules make a forward and a backward pass on fake tensors,
which have shapes and storages but no memory, and every storage is counted from its making to its end. So any
architecture, precision, dropout or recomputation is right by construction, for the uncompiled kernels of the
CPU. What an operator takes and gives back within itself (blocks of scores) is not seen.
"""

import gc
import weakref
from collections.abc import Mapping
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
from brimful.train.buckets import ALIGNMENT, round_up
from brimful.train.config import TrainerConfig
from brimful.train.sharding import owners


@dataclass(frozen=True)
class Trained:
    """The parameters that a run trains, without their values.

    Attributes:
        shapes: by name.
        matrices: those inside the layers, which Muon updates: the number of logical matrices in each.
        in_layers: the names of parameters of layers, norms excepted, which FSDP2 gathers layer by layer.
        encoder: parameters of the encoder alone.
        layers: of the encoder.
    """

    shapes: dict[str, torch.Size]
    matrices: dict[str, int]
    in_layers: frozenset[str]
    encoder: int
    layers: int

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
    norms = {
        f"{name}.{own}"
        for name, module in modules.named_modules()
        if isinstance(module, nn.LayerNorm)
        for own, _ in module.named_parameters(recurse=False)
    }
    shapes = {name: parameter.shape for name, parameter in modules.named_parameters()}
    return Trained(
        shapes,
        {f"encoder.{name}": blocks for name, blocks in encoder.fused_blocks().items()},
        frozenset(name for name in shapes if name.startswith("encoder.layers.") and name not in norms),
        sum(parameter.numel() for parameter in encoder.parameters()),
        config.layers,
    )


@dataclass(frozen=True)
class Held:
    """Bytes of a rank that do not depend on its micro-batch; of the rank that holds most.

    Attributes:
        states: of the optimizers.
        other: the moving average; and what FSDP2 gathers for a pass, or the mean of earlier micro-batches.
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
    ranks: int,
    *,
    micro_batches: int = 1,
) -> Held:
    """What a rank of `ranks` holds when the optimizers step, and what stays through a pass.

    Args:
        precision: resolved.
        micro_batches: of a rank in an update.
    """
    sizes = {name: shape.numel() for name, shape in model.shapes.items()}
    all_ = sum(sizes.values())
    own = 4 if trainer.weights == "fp32" else 2
    shard = trainer.shard if ranks > 1 else "none"
    whole = _on_owners(model, optimizer, ranks) if shard != "none" else {}
    rounding = {"master": 4, "kahan": 2}.get(trainer.rounding, 0) if own == 2 else 0
    each = {name: _state_bytes(name, model, optimizer) + rounding for name in sizes}
    states = sum(each[name] * size for name, size in sizes.items())
    if shard == "none":
        weights = gradients = own * all_
        average = own * all_
    elif shard == "optimizer":
        even = sum(round_up(size, ALIGNMENT) for name, size in sizes.items() if name not in whole)
        weights = 4 * (round_up(even, ranks * ALIGNMENT) + sum(round_up(sizes[n], ALIGNMENT) for n in whole))
        gradients = average = 4 * all_
        share = round_up(even, ranks * ALIGNMENT) // ranks
        states = max(
            _share_of_states(sizes, each, whole, share, rank) for rank in range(min(ranks, 1 + len(whole)))
        )
    else:
        rows = {name: -(-shape[0] // ranks) * shape[1:].numel() for name, shape in model.shapes.items()}
        weights = gradients = average = 4 * sum(rows.values())
        even = sum(each[name] * rows[name] for name in sizes if name not in whole)
        owned = [0] * ranks
        for name, rank in whole.items():
            owned[rank] += each[name] * sizes[name]
        states = even + max(owned)
    other = average if optimizer.ema else 0
    if shard == "model":
        other += _gathered(model, precision, micro_batches)
    elif micro_batches > 1 and (own == 2 or precision == "fp16"):
        other += own * all_  # the mean of the micro-batches before the present one
    return Held(weights, gradients, states, other)


def _state_bytes(name: str, model: Trained, optimizer: OptimizerConfig) -> int:
    """Bytes of the optimizer's states for each number of a parameter."""
    moments = 1 if optimizer.name == "muon" and name in model.matrices else 2
    return 4 * (moments + bool(optimizer.pull))


def _on_owners(model: Trained, optimizer: OptimizerConfig, ranks: int) -> dict[str, int]:
    """The rank of each parameter that an optimizer must see whole."""
    work = {}
    for name, shape in model.shapes.items():
        if optimizer.name == "lamb":
            work[name] = float(shape.numel())
        elif optimizer.name == "muon" and name in model.matrices:
            work[name] = float(shape.numel() * min(shape[0] // model.matrices[name], shape[1]))
    return owners(work, ranks)


def _share_of_states(
    sizes: Mapping[str, int], each: Mapping[str, int], whole: Mapping[str, int], share: int, rank: int
) -> int:
    """State bytes of one rank with trainer.shard=optimizer."""
    total, at = 0, 0
    for name, size in sizes.items():
        if name in whole:
            total += each[name] * size * (whole[name] == rank)
            continue
        inside = max(0, min(at + size, (rank + 1) * share) - max(at, rank * share))
        total += each[name] * inside
        at += round_up(size, ALIGNMENT)
    return total


def _gathered(model: Trained, precision: Precision, micro_batches: int) -> int:
    """What FSDP2 has whole at the same time: two layers, what is outside of layers, and their gradients;
    with several micro-batches, all gradients until the last."""
    sizes = {name: shape.numel() for name, shape in model.shapes.items()}
    layers = sum(size for name, size in sizes.items() if name in model.in_layers)
    outside = sum(sizes.values()) - layers
    layer = layers // model.layers
    gathered = 2 * layer * DTYPES[precision].itemsize + 4 * outside
    gradients = 4 * (layer + outside)
    if micro_batches > 1:
        gradients = 4 * (layers + outside)
    return gathered + gradients


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
