"""How many rows a micro-batch should have.

On a GPU: the most that fit. The memory of a pass is traced (train/step_memory.py), beside what the run will
yet hold and a tenth of the free memory. What is chosen then runs: the trainer's own step, with its hooks,
formats and compiled graphs, beside memory as large as what else must stay free. If it does not fit after all,
the next smaller size runs. So the run finds its step compiled and recorded.

On a CPU more rows stop being faster long before memory is full, and may even be slower when they exceed the
caches. There a number of hidden states decides, and nothing is tried.
"""

import math
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import le

import torch

from brimful.base.console import say
from brimful.base.environment import number_of
from brimful.base.errors import BrimfulError, is_out_of_memory
from brimful.base.resources import available_memory
from brimful.data.batch import PackedBatch
from brimful.data.rows import RowStream
from brimful.model.encoder import Encoder
from brimful.train.determinism import deterministic
from brimful.train.micro_batch import valid_sizes
from brimful.train.objective import Objective
from brimful.train.step_memory import Held, room_of_a_pass, traced_pass
from brimful.train.trainer import Trainer

HIDDEN = 1 << 20
"""On a CPU, by default: the most numbers of a micro-batch's hidden states. More were not measured."""
SURPLUS = 1.125
"""On a CPU, by default: how many times an update's rows may be computed, as micro-batches are filled up and
divided among ranks."""
PASSES = 3
"""Passes that must run. A compiled step is recorded in its second pass, and replayed in the third."""


def rows_on_cpu(stream: RowStream, width: int) -> int:
    """The rows of a micro-batch on a CPU by default: of the valid sizes the largest within HIDDEN, with which
    each rank computes hardly more rows than with micro-batches of one.

    Nothing is tried, so the same command makes the same sums.

    Args:
        stream: of the run. Its `rows_per_micro_batch` is set.
        width: of the hidden states.
    """
    capacity = max(phase.packing.capacity for phase in stream.phases)
    updates = _rows_of_updates(stream, _beginnings(stream))

    def computed(size: int) -> list[int]:
        """The rows that the rank with most micro-batches computes in each update; the last is filled up."""
        return [math.ceil(math.ceil(rows / size) / stream.world) * size for rows in updates]

    sizes = valid_sizes(stream.phases, max(1, min(HIDDEN // (capacity * width), *updates)))
    most = [rows * SURPLUS for rows in computed(1)]
    chosen = max(size for size in sizes if all(map(le, computed(size), most)))
    stream.rows_per_micro_batch = chosen
    return chosen


def _rows_of_updates(stream: RowStream, cursors: Sequence[dict]) -> list[int]:
    """The rows of the updates at these cursors, one of each phase. Leaves `rows_per_micro_batch` 1."""
    stream.rows_per_micro_batch = 1
    if stream.phases[0].counted == "rows":
        return [phase.size for phase in stream.phases]
    return [len(stream.micro_batches(cursor)[0]) for cursor in cursors]


def sizes_of(stream: RowStream) -> list[int]:
    """The rows that a micro-batch of each rank may have, ascending. Leaves `rows_per_micro_batch` 1."""
    most = min(_rows_of_updates(stream, _beginnings(stream))) // stream.world
    return valid_sizes(stream.phases, max(1, most))


def longest_batch(stream: RowStream, rows: int) -> PackedBatch:
    """A micro-batch of the phase with the longest sequences. Its rows are the stream's from then on."""
    stream.rows_per_micro_batch = rows
    phases = zip(stream.phases, _beginnings(stream), strict=True)
    _, cursor = max(phases, key=lambda phase: phase[0].packing.max_length)
    (first, *_), _ = stream.micro_batches(cursor, slice(1))
    return stream.batch(first, cursor["update"])


def auto_rows(trainer: Trainer, stream: RowStream, make: Callable[[], tuple[Encoder, Objective]]) -> int:
    """Choose the rows of a run's micro-batches, the same on every rank, and print the choice.

    Parameters, random numbers and the state of loss scaling stay as they are, and the gradients are cleared.

    Args:
        trainer: of the run, before its first update.
        stream: the trainer's. Its `rows_per_micro_batch` is set.
        make: see `traced_pass`.

    Raises:
        BrimfulError: not even the smallest micro-batch fits.
    """
    training, runtime = trainer.training, trainer.runtime
    device, on_cuda = runtime.device, runtime.device.type == "cuda"
    held = Held.of(trainer.state.trained.values(), training.optimizer, training.config, runtime.precision)
    parameters = list(trainer.state.parameters.values())
    missing = sum(parameter.nbytes for parameter in parameters if parameter.grad is None)
    free = _free(device) - missing
    room = room_of_a_pass(free, held.later)

    def traced(rows: int) -> int:
        return traced_pass(make, training.config, runtime.precision, longest_batch(stream, rows))

    sizes = sizes_of(stream)
    fitting = sizes[: bisect(sizes, room, key=traced)]
    trainer.state.trained.train()
    rows = 0
    with (
        torch.random.fork_rng(devices=[device] if on_cuda else []),
        deterministic(training.config.deterministic),
    ):
        for size in reversed(fitting):
            if runs(trainer, longest_batch(stream, size), beside=free - room):
                rows = size
                break
            torch.compiler.reset()  # its graphs hold memory
    trainer.gradients.clear()
    chosen = runtime.world.least(rows)
    if chosen != rows:
        torch.compiler.reset()
    torch.cuda.empty_cache()
    if on_cuda:
        torch.cuda.reset_peak_memory_stats(device)  # from here on the peak is that of training
    if not chosen:
        raise BrimfulError(
            "not even micro-batches of one row fit: lower packing.capacity, or choose a smaller model"
        )
    if runtime.world.is_main:
        say(f"rows_per_micro_batch {chosen}: the most that fit in {room / 1e9:.3g} GB for activations")
    stream.rows_per_micro_batch = chosen
    return chosen


def runs(trainer: Trainer, batch: PackedBatch, beside: int) -> bool:
    """Whether the trainer's forward and backward pass over a batch fits in memory, several times.

    Args:
        beside: bytes on a GPU that must stay free of it.
    """
    runtime, coefficients = trainer.runtime, trainer.objective.coefficients
    device, on_cuda = runtime.device, runtime.device.type == "cuda"
    torch.cuda.empty_cache()
    with _out_of_memory() as failed:
        kept_free = torch.empty(beside if on_cuda else 0, dtype=torch.uint8, device=device)
        batch = batch.to(device)
        for _ in range(PASSES):
            with runtime.autocast():
                sums = trainer.gradients.forward(trainer.loss, batch)
            terms = [c * sums[term] / batch.real_tokens for term, c in coefficients.items()]
            torch.stack(terms).sum().backward()
        if on_cuda:
            torch.cuda.synchronize(device)
        del kept_free
    return not failed


@contextmanager
def _out_of_memory() -> Iterator[list[str]]:
    """A context that ends when memory runs out; then the list holds the message."""
    failed: list[str] = []
    try:
        yield failed
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        failed.append(str(error))


def _beginnings(stream: RowStream) -> list[dict]:
    """The cursor of each phase if the data began with it."""
    begins, update = [], 0
    for phase in stream.phases:
        begins.append(stream.start() | {"update": update})
        update += phase.steps
    return begins


def _free(device: torch.device) -> int:
    """Bytes that this process can still allocate on the device."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return available_memory() // max(1, number_of("LOCAL_WORLD_SIZE", 1))
