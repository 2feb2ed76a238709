"""How many rows a micro-batch should have: the largest that fits, found by trying.

Sizes are tried from small to large, each at least twice the one before, forward and backward on real rows of
the longest phase. None is tried that is not expected to fit, from what the one before took: on a CPU a
process that takes too much is killed. Room for the optimizer's states and a tenth of the rest is left alone.

On a GPU the largest that fits is taken. On a CPU more rows stop being faster long before memory is full, and
what does not fit its caches may be slower: there a larger size must be faster, and the search ends with the
second one that is not.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from brimful.console import say
from brimful.data.rows import RowStream
from brimful.errors import BrimfulError, is_out_of_memory
from brimful.nn.encoder import Encoder
from brimful.optim.build import OptimizerConfig
from brimful.train.memory import available_memory
from brimful.train.micro_batch import valid_sizes
from brimful.train.objective import Objective, Runtime

HEAD_ROOM = 0.1
"""The share of free memory that is left alone."""
GAIN = 1.05
"""On a CPU, so many times as many rows a second must a larger size give."""
BEYOND_SAVED = 2.5
"""On a CPU, the peak of a pass is taken to be so many times what it saves for backward; docs/training.md."""


class Trial(NamedTuple):
    """A forward and backward pass over so many rows: bytes it took at its peak, and its seconds."""

    rows: int
    bytes: int
    seconds: float

    @property
    def speed(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds


def choose_rows(
    sizes: Sequence[int], attempt: Callable[[int], Trial | None], room: int, gain: float
) -> tuple[int, str]:
    """The rows of a micro-batch, and why.

    Args:
        sizes: that are valid, ascending.
        attempt: tries one; None: it ran out of memory.
        room: bytes that a pass may take.
        gain: how many times as many rows a second a larger size must give.

    Returns:
        the largest size that fits and is worth it; 0 if none fits.
    """
    last = best = Trial(0, 0, 1.0)
    for rows in sizes:
        if rows < 2 * last.rows:
            continue
        if last.rows and last.bytes * rows / last.rows > room:
            return best.rows, f"{rows} are not expected to fit"
        trial = attempt(rows)
        if trial is None or trial.bytes > room:
            return best.rows, f"{rows} do not fit"
        last = trial
        if trial.speed >= gain * best.speed:
            best = trial
        elif rows >= 4 * best.rows:
            return best.rows, f"{rows} have {trial.speed / best.speed:.2f} times their speed"
    return best.rows, "an update has no more for a rank" if best is last else "more are no faster"


def auto_rows(
    stream: RowStream, encoder: Encoder, objective: Objective, runtime: Runtime, optimizer: OptimizerConfig
) -> int:
    """The rows that micro-batches of this run should have, the same on every rank; says so.

    Args:
        stream: of the run; it is left with as many.
        encoder: it goes to its device, as do the objective's modules; their gradients are dropped.

    Raises:
        BrimfulError: not even the smallest micro-batch fits.
    """
    cursors = _beginnings(stream)
    phases = list(zip(stream.phases, cursors, strict=True))
    _, longest = max(phases, key=lambda phase: phase[0].packing.max_length)
    stream.rows_per_micro_batch = 1
    per_rank = min(len(stream.micro_batches(cursor)[0]) for cursor in cursors) // stream.world
    sizes = valid_sizes(stream.phases, max(1, per_rank))
    trained = nn.ModuleDict({"encoder": encoder, **objective.modules()}).to(runtime.device).train()
    parameters = [p for p in trained.parameters() if p.requires_grad]

    def attempt(rows: int) -> Trial | None:
        stream.rows_per_micro_batch = rows
        (first, *_), _ = stream.micro_batches(longest, slice(1))
        batch = stream.batch(first, longest["update"]).to(runtime.device)

        def run() -> None:
            with runtime.autocast():
                sums = objective.loss(encoder, batch, encoder.prepare(batch))
            torch.stack([value / batch.real_tokens for value in sums.values()]).sum().backward()

        try:
            return _measure(rows, run, runtime.device, parameters)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        return None

    on_cpu = runtime.device.type == "cpu"
    with torch.random.fork_rng(devices=[] if on_cpu else [runtime.device]):
        fits = attempt(1) is not None  # and makes the gradients, which stay
        states = sum(p.numel() for p in parameters) * _state_bytes(optimizer)
        room = int(_free(runtime.device) * (1 - HEAD_ROOM)) - states
        rows, why = choose_rows(sizes, attempt, room, GAIN if on_cpu else 0.0) if fits else (0, "")
    for parameter in parameters:
        parameter.grad = None
    if not on_cpu:
        torch.cuda.empty_cache()
    chosen = runtime.world.least(rows)
    if not chosen:
        raise BrimfulError(
            "not even micro-batches of one row fit: lower packing.capacity, or choose a smaller model"
        )
    if runtime.world.is_main:
        why = why if chosen == rows else "so many suit every rank"
        say(f"rows_per_micro_batch {chosen}: {why}, in {room / 1e9:.3g} GB for activations")
    stream.rows_per_micro_batch = chosen
    return chosen


def _beginnings(stream: RowStream) -> list[dict]:
    """Where each phase would stand if the data began in it."""
    begins, update = [], 0
    for phase in stream.phases:
        begins.append(stream.start() | {"update": update})
        update += phase.steps
    return begins


def _state_bytes(optimizer: OptimizerConfig) -> int:
    """Bytes that optimizers keep for a parameter, at most: two moments, an average, the starting weights."""
    return 4 * (2 + bool(optimizer.ema) + bool(optimizer.pull))


def _free(device: torch.device) -> int:
    """Bytes that this process can still take on the device."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return available_memory() // int(os.environ.get("LOCAL_WORLD_SIZE", 1))


def _measure(rows: int, run: Callable[[], None], device: torch.device, weights: Sequence[Tensor]) -> Trial:
    """Three passes, of which the quickest counts."""
    seconds, taken = [], 0
    for _ in range(3):
        started = time.perf_counter()
        if device.type == "cuda":
            before = torch.cuda.memory_allocated(device)
            torch.cuda.reset_peak_memory_stats(device)
            run()
            torch.cuda.synchronize(device)
            taken = torch.cuda.max_memory_allocated(device) - before
        else:
            with _saved(weights) as saved:
                run()
            taken = int(BEYOND_SAVED * sum(saved.values()))
        seconds.append(time.perf_counter() - started)
    return Trial(rows, taken, min(seconds))


@contextmanager
def _saved(weights: Sequence[Tensor]) -> Iterator[dict[int, int]]:
    """Bytes of each storage, by its address, that forward passes save for backward, but for the weights."""
    saved: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        yield saved
    for weight in weights:
        saved.pop(weight.untyped_storage().data_ptr(), None)
