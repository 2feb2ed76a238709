"""Where the time of an update goes: `--profile N` writes a trace and a table of N updates.

Several ranks are profiled at the same time. Their traces become one (train/traces.py), and the table, of the
main rank, divides communication into waiting for other ranks and transfer.
"""

import json
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from brimful.base.console import counted, say, warn
from brimful.base.distributed import World
from brimful.base.storage import atomic_file
from brimful.train.traces import COMMUNICATION, MARK, Sums, aligned, merged, sums_of

T = TypeVar("T")

PHASES = (
    "data wait",
    "forward",
    "backward",
    COMMUNICATION,
    "clip",
    "optimizer",
    "checkpoint",
    "evaluation",
)
WARM = 3
"""Updates before the first profiled one. They allocate and compile, so they are slower."""

_UNSEEN: AbstractContextManager = nullcontext()


def span(name: str) -> AbstractContextManager:
    """A part of an update, which profilers show (torch's own range costs 8 microseconds)."""
    return record_function(name) if torch.autograd._profiler_enabled() else _UNSEEN


def waiting(name: str, items: Iterable[T]) -> Iterator[T]:
    """Yield the items; the wait for each is a `span`."""
    iterator = iter(items)
    while True:
        with span(name):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item


@contextmanager
def profiling(updates: int, directory: Path, world: World) -> Iterator[Callable[[], None]]:
    """Profile some updates, after the first `WARM`. Yields a function to call at the end of each update.

    After the last profiled update, or when the run ends, the main rank writes trace.json (for Chrome and
    Perfetto) and table.txt to `directory`, and shows the table. After an error nothing is written.

    Args:
        updates: how many to profile; 0 = none. All ranks make the same ones.
    """
    if not updates:
        yield _ignore
        return
    cuda = world.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    profiler = profile(activities=activities, acc_events=True)
    done, began = -WARM, 0.0

    def write() -> None:
        if cuda:
            torch.cuda.synchronize(world.device)
        seconds = time.perf_counter() - began
        profiler.stop()
        trace, sums = directory / "trace.json", []
        if world.size == 1:
            with atomic_file(trace) as temporary:
                profiler.export_chrome_trace(str(temporary))
        else:
            found = world.gather((_trace(profiler), socket.gethostname()))
            if not world.is_main:
                return
            traces = aligned([one for one, _ in found])
            of_ranks = sums_of(traces)
            sums = of_ranks[0]
            with atomic_file(trace) as temporary:
                whole = merged(traces, of_ranks, [host for _, host in found])
                temporary.write_text(json.dumps(whole), encoding="utf-8")
        text = table(profiler, done, seconds, sums, cuda=cuda)
        with atomic_file(directory / "table.txt") as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")
        say(f"{text}\n{trace} is for chrome://tracing or https://ui.perfetto.dev")

    def advance() -> None:
        nonlocal done, began
        done += 1
        if done == 0:
            profiler.start()
            for _ in range(2 if world.size > 1 else 0):  # the first mark takes milliseconds
                world.barrier()
                with record_function(MARK):
                    pass
            began = time.perf_counter()
        elif done == updates:
            write()

    try:
        yield advance
    except BaseException:
        if 0 <= done < updates:
            profiler.stop()
        raise
    if 0 < done < updates:
        write()
    elif done <= 0:
        if not done:
            profiler.stop()
        if world.is_main:
            warn(f"nothing was profiled: the run has no more than {WARM} updates")


def _trace(profiler: profile) -> dict[str, Any]:
    """What the profiler exports."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return json.loads(path.read_text(encoding="utf-8"))


def table(profiler: profile, updates: int, seconds: float, sums: Sequence[Sums], *, cuda: bool) -> str:
    """Seconds per update and phase of the main thread, and on CUDA of the kernels that it started.

    Args:
        sums: of this rank over ranks; empty where there is one rank.
    """
    host: Counter[str] = Counter()
    device: Counter[str] = Counter()
    for event in profiler.events() or []:
        if event.name in PHASES and event.device_type == DeviceType.CPU:
            host[event.name] += event.cpu_time_total / 1e6
            device[event.name] += event.device_time_total / 1e6
    rest = seconds - host.total()
    lines = [f"{'phase':<14}{'seconds':>10}{'share':>8}" + f"{'on the device':>16}" * cuda]
    for name, spent in (*((name, host[name]) for name in PHASES), ("rest", rest), ("update", seconds)):
        kernels = f"{device[name] / updates:>16.5f}" if cuda and name in PHASES else ""
        lines.append(f"{name:<14}{spent / updates:>10.5f}{spent / seconds:>8.1%}{kernels}")
        if name == COMMUNICATION and sums:
            waited = sum(part.complete - part.begin for part in sums) / 1e6
            for part, of_it in ("  waiting", waited), ("  transfer", spent - waited):
                lines.append(f"{part:<14}{of_it / updates:>10.5f}{of_it / seconds:>8.1%}")
    return f"an update, mean of {counted(updates, 'update')}, profiled:\n" + "\n".join(lines)


def _ignore() -> None:
    """Does nothing, where nothing is profiled."""
