"""Bytes of a training step, and how many rows a micro-batch should have.

A pass is traced, not calculated: its own modules make a forward and a backward pass on fake tensors, which
have shapes and storages but no memory, and every storage is counted from its making to its end. So any
architecture, precision, dropout or recomputation is right by construction, for the uncompiled kernels of the
CPU. The memory that an operator takes and frees within itself (blocks of scores) is not counted.

On a GPU a micro-batch has the most rows whose pass fits into memory; room stays for later allocations of the
run and for a tenth of the free memory. On a CPU more rows stop being faster long before memory is full, and
are slower when they exceed the caches. There the number of hidden states decides.
"""

import gc
import math
import weakref
from bisect import bisect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from brimful.base.console import say
from brimful.base.environment import read_number
from brimful.base.errors import BrimfulError
from brimful.base.resources import available_memory
from brimful.base.types import Precision, Values
from brimful.data.batch import PackedBatch
from brimful.data.rows import RowStream, list_sizes
from brimful.model.encoder import Encoder
from brimful.model.initial_weights import skip_initial_weights
from brimful.optim.config import OptimizerConfig
from brimful.precision.policy import DTYPES, autocast
from brimful.train.config import TrainerConfig
from brimful.train.objective import Objective, Runtime
from brimful.train.state import TrainState
from brimful.train.training import Training

MakeModules = Callable[[], tuple[Encoder, Objective]]
FREE_FRACTION = 0.1
"""The fraction of free memory that stays free."""


@dataclass(frozen=True)
class HeldBytes:
    """The most bytes that a rank holds besides a pass.

    Attributes:
        states: bytes of the optimizers' states, and of the bits that rounding keeps.
        passing: bytes of the running mean of the micro-batches' gradients.
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
    ) -> "HeldBytes":
        """Add up what a run holds that trains these modules in a resolved precision."""
        trained = nn.ModuleList(modules)
        numbers = sum(p.numel() for p in trained.parameters() if p.requires_grad)
        moments = 2 * numbers
        if optimizer.name == "muon":  # which has one moment for its matrices, and AdamW's two for all else
            for module in trained:
                if isinstance(module, Encoder):
                    matrices = [module.get_parameter(name) for name in module.fused_blocks()]
                    moments -= sum(p.numel() for p in matrices if p.requires_grad)
        own, is_narrow = DTYPES[trainer.weights].itemsize * numbers, trainer.weights != "fp32"
        rounding = 0
        if is_narrow:
            rounding = {"master": 4, "kahan": 2}.get(trainer.rounding, 0)
        passing = own if is_narrow or precision == "fp16" else 0
        return cls(weights=own, gradients=own, states=4 * moments + rounding * numbers, passing=passing)

    @property
    def later(self) -> int:
        """The bytes that the first update allocates."""
        return self.states + self.passing

    @property
    def total(self) -> int:
        """The sum."""
        return self.weights + self.gradients + self.later


def compute_budget(free: int, later: int) -> int:
    """Compute the bytes that a pass may take.

    Args:
        free: bytes of memory besides weights and gradients.
        later: bytes that the run will allocate after this pass.
    """
    return free - int(free * FREE_FRACTION) - later


class _StorageCounter(TorchDispatchMode):
    """Counts the bytes of the storages that operators make, until they are freed."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.now = self.peak = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Values | None = None
    ) -> Any:
        results = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(results):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return results

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata  # the same for all views of a storage
        if key not in self.sizes:
            self.sizes[key] = storage.nbytes()
            self.now += self.sizes[key]
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._drop, key)

    def _drop(self, key: int) -> None:
        self.now -= self.sizes.pop(key)


def trace_pass(
    make: MakeModules,
    trainer: TrainerConfig,
    precision: Precision,
    batch: PackedBatch,
) -> int:
    """Trace a forward and backward pass over a micro-batch: the most bytes that it has at any moment, beside
    parameters and gradients, which are there before it.

    Args:
        make: makes the modules; their weights take no memory and are not drawn.
        trainer: its `residual` is resolved.
        precision: resolved.
        batch: its values do not matter.
    """
    gc.collect()  # what a cycle still holds would be counted as if it stayed
    with FakeTensorMode(allow_non_fake_inputs=True):
        with skip_initial_weights():
            encoder, objective = make()
        encoder.recomputes = trainer.recompute == "layers"
        encoder.set_residual(torch.bfloat16 if trainer.residual == "bf16" else None)
        trained = nn.ModuleList([encoder, *objective.modules().values()]).train()
        for parameter in trained.parameters():
            parameter.data = parameter.data.to(DTYPES[trainer.weights])
            parameter.grad = torch.empty_like(parameter)
        layout = encoder.prepare(batch)
        with _StorageCounter() as storages:
            with autocast(precision, torch.device("cpu")):
                sums = objective.loss(encoder, batch, layout)
            terms = [sums[term] for term in objective.coefficients]
            del sums  # as in a step, which reads only the terms
            torch.stack(terms).sum().backward()
    config, peak = encoder.config, storages.peak
    if trainer.compile and config.gated and trainer.residual == "bf16" and not encoder.recomputes:
        # A compiled pass on a GPU keeps the products of gates, which an uncompiled one computes again
        # (docs/results/performance.md, "Bytes between products").
        peak += 2 * config.intermediate_size * config.layers * len(batch.tokens)
    return peak


MAX_HIDDEN_NUMBERS = 1 << 20
"""The most numbers in a micro-batch's hidden states on a CPU, by default. Larger ones were not measured."""
MAX_SURPLUS = 1.125
"""The largest ratio of computed rows to the rows of an update on a CPU, by default. It exceeds 1 where
micro-batches are filled up and divided among ranks."""


def choose_rows_on_cpu(stream: RowStream, width: int) -> int:
    """Choose the rows of a micro-batch on a CPU: of the valid sizes the largest within MAX_HIDDEN_NUMBERS,
    with which each rank computes hardly more rows than with micro-batches of one.

    So the same command makes the same sums.

    Args:
        stream: the run's stream, whose `rows_per_micro_batch` is set.
        width: the width of the hidden states.
    """
    capacity = max(phase.packing.capacity for phase in stream.phases)
    updates = _count_rows_of_updates(stream)
    most = max(1, min(MAX_HIDDEN_NUMBERS // (capacity * width), *updates))
    chosen = 1
    for size in list_sizes(stream.phases, most):
        is_small_surplus = True
        for rows in updates:
            # The rank with most micro-batches computes these; its last micro-batch is filled up.
            computed = math.ceil(math.ceil(rows / size) / stream.world) * size
            is_small_surplus &= computed <= math.ceil(rows / stream.world) * MAX_SURPLUS
        if is_small_surplus:
            chosen = size
    stream.rows_per_micro_batch = chosen
    return chosen


def _count_rows_of_updates(stream: RowStream) -> list[int]:
    """Count the rows of an update of each phase. Leaves `rows_per_micro_batch` 1."""
    stream.rows_per_micro_batch = 1
    if stream.phases[0].unit == "rows":
        return [phase.size for phase in stream.phases]
    return [len(stream.micro_batches(cursor)) for cursor in _list_beginnings(stream)]


def list_row_counts(stream: RowStream) -> list[int]:
    """List the rows that a micro-batch of each rank may have, ascending. Leaves `rows_per_micro_batch` 1."""
    return list_sizes(stream.phases, max(1, min(_count_rows_of_updates(stream)) // stream.world))


def make_longest_batch(stream: RowStream, rows: int) -> PackedBatch:
    """Make a micro-batch of the phase with the longest sequences. Its rows are the stream's from then on."""
    stream.rows_per_micro_batch = rows
    lengths = [phase.packing.max_length for phase in stream.phases]
    cursor = _list_beginnings(stream)[lengths.index(max(lengths))]
    first, *_ = stream.micro_batches(cursor, slice(1))
    return stream.batch(first, cursor["update"])


def choose_rows(
    state: TrainState,
    training: Training,
    runtime: Runtime,
    stream: RowStream,
    make: MakeModules,
) -> int:
    """Choose the rows of a run's micro-batches, the same on every rank, and print the choice.

    Args:
        state: the state before the first update.
        stream: the run's stream, whose `rows_per_micro_batch` is set.
        make: see `trace_pass`.

    Raises:
        BrimfulError: not even the smallest micro-batch fits.
    """
    held = HeldBytes.of(state.trained.values(), training.optimizer, training.config, runtime.precision)
    # Gradients that exist are no longer in the free memory; the others will be.
    missing = sum(p.nbytes for p in state.parameters.values() if p.grad is None)
    budget = compute_budget(_count_free(runtime.device) - missing, held.later)

    def trace(rows: int) -> int:
        return trace_pass(make, training.config, runtime.precision, make_longest_batch(stream, rows))

    sizes = list_row_counts(stream)
    fitting = bisect(sizes, budget, key=trace)  # traces few sizes: more rows take more memory
    chosen = runtime.world.least(sizes[fitting - 1] if fitting else 0)
    if not chosen:
        raise BrimfulError(
            "not even micro-batches of one row fit: lower packing.capacity, or choose a smaller model"
        )
    if runtime.world.is_main:
        say(f"rows_per_micro_batch {chosen}: the most that fit in {budget / 1e9:.3g} GB for activations")
    stream.rows_per_micro_batch = chosen
    return chosen


def _list_beginnings(stream: RowStream) -> list[dict]:
    """List a cursor for each phase, at which the data would begin with that phase."""
    begins, update = [], 0
    for phase in stream.phases:
        begins.append(stream.start() | {"update": update})
        update += phase.steps
    return begins


def _count_free(device: torch.device) -> int:
    """Count the bytes that this process can still allocate on the device."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # What torch has reserved and not given out is free for it.
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return available_memory() // max(1, read_number("LOCAL_WORLD_SIZE", 1))
