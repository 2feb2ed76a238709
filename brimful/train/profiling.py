"""Where the time of an update goes: `--profile N` writes a trace and a table of N updates of the main rank.

How long ranks wait for each other stands in metrics.jsonl (train/pace.py).
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from brimful.base.console import counted, say, warn
from brimful.base.distributed import World
from brimful.base.storage import atomic_file

T = TypeVar("T")

PHASES = (
    "data wait",
    "forward",
    "backward",
    "communication",
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
        updates: how many to profile; 0 = none.
    """
    if not updates or not world.is_main:
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
        trace = directory / "trace.json"
        with atomic_file(trace) as temporary:
            profiler.export_chrome_trace(str(temporary))
        text = table(profiler, done, seconds, cuda=cuda)
        with atomic_file(directory / "table.txt") as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")
        say(f"{text}\n{trace} is for chrome://tracing or https://ui.perfetto.dev")

    def advance() -> None:
        nonlocal done, began
        done += 1
        if done == 0:
            profiler.start()
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
        warn(f"nothing was profiled: the run has no more than {WARM} updates")


def table(profiler: profile, updates: int, seconds: float, *, cuda: bool) -> str:
    """Seconds per update and phase of the main thread, and on CUDA of the kernels that it started."""
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
    return f"an update, mean of {counted(updates, 'update')}, profiled:\n" + "\n".join(lines)


def _ignore() -> None:
    """Does nothing, where nothing is profiled."""
