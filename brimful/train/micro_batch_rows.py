"""How many rows a micro-batch should have.

On a GPU: the most that fit. The memory of a pass is traced (train/step_memory.py), beside what the run will
yet hold and a tenth of the free memory. If they do not fit after all, they are halved (train/micro_batch.py).

On a CPU more rows stop being faster long before memory is full, and may even be slower when they exceed the
caches. There a number of hidden states decides.
"""

import math
from bisect import bisect
from collections.abc import Callable, Sequence
from operator import le

import torch

from brimful.base.console import say
from brimful.base.environment import number_of
from brimful.base.errors import BrimfulError
from brimful.base.resources import available_memory
from brimful.data.batch import PackedBatch
from brimful.data.rows import RowStream
from brimful.model.encoder import Encoder
from brimful.train.micro_batch import valid_sizes
from brimful.train.objective import Objective, Runtime
from brimful.train.state import TrainState
from brimful.train.step_memory import Held, room_of_a_pass, traced_pass
from brimful.train.training import Training

HIDDEN = 1 << 20
"""On a CPU, by default: the most numbers of a micro-batch's hidden states. More were not measured."""
SURPLUS = 1.125
"""On a CPU, by default: how many times an update's rows may be computed, as micro-batches are filled up and
divided among ranks."""


def rows_on_cpu(stream: RowStream, width: int) -> int:
    """The rows of a micro-batch on a CPU by default: of the valid sizes the largest within HIDDEN, with which
    each rank computes hardly more rows than with micro-batches of one.

    So the same command makes the same sums.

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


def auto_rows(
    state: TrainState,
    training: Training,
    runtime: Runtime,
    stream: RowStream,
    make: Callable[[], tuple[Encoder, Objective]],
) -> int:
    """Choose the rows of a run's micro-batches, the same on every rank, and print the choice.

    Args:
        state: before the first update.
        stream: of the run. Its `rows_per_micro_batch` is set.
        make: see `traced_pass`.

    Raises:
        BrimfulError: not even the smallest micro-batch fits.
    """
    held = Held.of(state.trained.values(), training.optimizer, training.config, runtime.precision)
    missing = sum(p.nbytes for p in state.parameters.values() if p.grad is None)
    room = room_of_a_pass(_free(runtime.device) - missing, held.later)

    def traced(rows: int) -> int:
        return traced_pass(make, training.config, runtime.precision, longest_batch(stream, rows))

    sizes = sizes_of(stream)
    fitting = bisect(sizes, room, key=traced)
    chosen = runtime.world.least(sizes[fitting - 1] if fitting else 0)
    if not chosen:
        raise BrimfulError(
            "not even micro-batches of one row fit: lower packing.capacity, or choose a smaller model"
        )
    if runtime.world.is_main:
        say(f"rows_per_micro_batch {chosen}: the most that fit in {room / 1e9:.3g} GB for activations")
    stream.rows_per_micro_batch = chosen
    return chosen


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
