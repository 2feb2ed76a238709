"""How many rows a micro-batch should have: the largest size that fits, found by trying.

Sizes are tried from small to large, each at least twice the size before, forward and backward on real rows of
the longest phase. A size is tried only if it is expected to fit, judging by the memory of the size before,
because on a CPU a process that takes too much is killed. Room for the optimizer's states and a tenth of
the free memory stay unused.

What is tried is the trainer's own step: its modules with their hooks and formats, and its gradients.

On a GPU the largest size that fits is chosen. If training is compiled, the choice is then compiled and run
with CUDA graphs by the trainer's loss, beside memory as large as what else must stay free. If it does not
fit, the next smaller size is compiled. So the run finds its step compiled and recorded.

On a CPU more rows stop being faster long before memory is full, and may even be slower when they exceed the
caches. There a larger size must be faster, and the search ends at the second size that is not.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import le
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from brimful.base.console import say
from brimful.base.environment import number_of
from brimful.base.errors import BrimfulError, is_out_of_memory
from brimful.data.batch import PackedBatch
from brimful.data.rows import RowStream
from brimful.optim.config import OptimizerConfig
from brimful.train.compilation import loss_function, resolve_compile
from brimful.train.determinism import deterministic
from brimful.train.memory import available_memory
from brimful.train.micro_batch import valid_sizes
from brimful.train.step_memory import Held, room_of_a_pass
from brimful.train.trainer import Trainer

GAIN = 1.05
"""On a CPU, how much faster a larger size must be, in rows per second, to be chosen."""
BEYOND_SAVED = 2.5
"""On a CPU, the estimated peak memory of a pass, divided by what it saves for backward (docs/training.md)."""
HIDDEN = 1 << 20
"""On a CPU, by default: the most numbers of a micro-batch's hidden states. More were not measured."""
SURPLUS = 1.125
"""On a CPU, by default: how many times an update's rows may be computed, as micro-batches are filled up and
divided among ranks."""
PASSES = 3
"""Passes of a trial. A compiled step is recorded in its second pass, and replayed in the third."""


class TimedPass(NamedTuple):
    """A forward and backward pass: its rows, its peak memory in bytes, and its seconds."""

    rows: int
    bytes: int
    seconds: float

    @property
    def speed(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds


def choose_rows(
    sizes: Sequence[int], attempt: Callable[[int], TimedPass | None], room: int, gain: float
) -> tuple[int, str]:
    """The rows of a micro-batch, and why.

    Args:
        sizes: the valid sizes, ascending.
        attempt: tries a size; None: memory ran out.
        room: bytes that a pass may take.
        gain: how much faster a larger size must be, in rows per second, to be chosen.

    Returns:
        the largest size that fits and is fast enough, or 0 if even the smallest does not fit.
    """
    last = best = TimedPass(0, 0, 1.0)
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


def confirm_rows(sizes: Sequence[int], rows: int, runs: Callable[[int], bool]) -> int:
    """The largest of the valid sizes up to `rows` that runs; 0: none."""
    return next((size for size in reversed(sizes) if size <= rows and runs(size)), 0)


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


def auto_rows(trainer: Trainer, stream: RowStream, optimizer: OptimizerConfig) -> int:
    """Choose the rows of a run's micro-batches, the same on every rank, and print the choice.

    Parameters, random numbers and the state of loss scaling stay as they are, and the gradients are cleared.

    Args:
        trainer: of the run, before its first update.
        stream: the trainer's. Its `rows_per_micro_batch` is set.
        optimizer: the trainer's.

    Raises:
        BrimfulError: not even the smallest micro-batch fits.
    """
    runtime, objective = trainer.runtime, trainer.objective
    device, on_cpu = runtime.device, runtime.device.type == "cpu"
    sizes = sizes_of(stream)
    parameters = list(trainer.state.parameters.values())
    trainer.state.trained.train()
    eager = loss_function(objective.loss, trainer.encoder, compiled=False)

    def passes(rows: int, loss: Callable[[PackedBatch], dict[str, Tensor]]) -> Callable[[], None]:
        """A forward and backward pass of `rows` rows, as a function."""
        batch = longest_batch(stream, rows).to(device)

        def run() -> None:
            with runtime.autocast():
                sums = loss(batch)
            terms = [c * sums[term] / batch.real_tokens for term, c in objective.coefficients.items()]
            torch.stack(terms).sum().backward()

        return run

    def attempt(rows: int) -> TimedPass | None:
        with _out_of_memory() as failed:
            return _measure(rows, passes(rows, eager), device, parameters)
        assert failed
        return None

    def runs_compiled(rows: int) -> bool:
        torch.cuda.empty_cache()
        with _out_of_memory() as failed:
            kept_free = torch.empty(free - room, dtype=torch.uint8, device=device)
            run = passes(rows, lambda batch: trainer.gradients.forward(trainer.loss, batch))
            for _ in range(PASSES):
                run()
            if not on_cpu:
                torch.cuda.synchronize(device)
            del kept_free
        if failed:
            torch.compiler.reset()  # its graphs hold memory
        return not failed

    with (
        torch.random.fork_rng(devices=[] if on_cpu else [device]),
        deterministic(trainer.training.config.deterministic),
    ):
        fits = attempt(1) is not None  # on a CPU this allocates the gradients, which stay
        held = Held.of(trainer.state.trained.values(), optimizer, trainer.training.config, runtime.precision)
        free = _free(device)
        room = room_of_a_pass(free, held.later)
        rows, why = choose_rows(sizes, attempt, room, GAIN if on_cpu else 0.0) if fits else (0, "")
        tried = rows
        if rows and will_compile(trainer):
            rows = confirm_rows(sizes, tried, runs_compiled)
            why = why if rows == tried else f"{tried} do not fit when compiled"
    trainer.gradients.clear()
    chosen = runtime.world.least(rows)
    if chosen != rows:
        torch.compiler.reset()
    torch.cuda.empty_cache()
    if not on_cpu:
        torch.cuda.reset_peak_memory_stats(device)  # from here on the peak is that of training
    if not chosen:
        raise BrimfulError(
            "not even micro-batches of one row fit: lower packing.capacity, or choose a smaller model"
        )
    if runtime.world.is_main:
        why = why if chosen == rows else "the most that every rank can take"
        say(f"rows_per_micro_batch {chosen}: {why}, in {room / 1e9:.3g} GB for activations")
    stream.rows_per_micro_batch = chosen
    return chosen


@contextmanager
def _out_of_memory() -> Iterator[list[str]]:
    """A context that ends when memory runs out; then the list holds what was said."""
    failed: list[str] = []
    try:
        yield failed
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        failed.append(str(error))


def will_compile(trainer: Trainer) -> bool:
    """Whether training will be compiled into CUDA graphs."""
    setting, device = trainer.training.config.compile, trainer.runtime.device
    return device.type == "cuda" and resolve_compile(setting, device, possible=trainer.objective.compiles)


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


def _measure(
    rows: int, run: Callable[[], None], device: torch.device, weights: Sequence[Tensor]
) -> TimedPass:
    """Run some passes; the fastest counts."""
    seconds, taken = [], 0
    for _ in range(PASSES):
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
    return TimedPass(rows, taken, min(seconds))


@contextmanager
def _saved(weights: Sequence[Tensor]) -> Iterator[dict[int, int]]:
    """Bytes of each storage, by its address, that forward passes save for backward, without the weights."""
    saved: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        yield saved
    for weight in weights:
        saved.pop(weight.untyped_storage().data_ptr(), None)
