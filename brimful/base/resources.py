"""What this process may use of its machine, cores and memory, and whether it has the cores.

A system that does not say it, such as macOS, gives no answer and no error.
"""

import os
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from brimful.base import system
from brimful.base.system import kernel_file

ROOT = Path("/")
CROWDED_LOAD = 1.5
"""A load average for each core above which processes wait for each other."""
STOLEN_PROPORTION = 0.1
"""The proportion of the cores that the host of a virtual machine withholds, from which on it counts."""
SPENT_PROPORTION = 0.9
"""The proportion of a quota from which on it is used up: what is left of a period may be too short to use."""
STEAL_FIELD = 8
"""Where /proc/stat has the stolen ticks in the line of all cores, after its name."""


def read_groups(names: Sequence[str], root: Path) -> Iterator[list[str]]:
    """The contents of files of each control group (version 2) of this process, such as its container's, the
    innermost first.

    A group without these files is left out: the root has no limits, and a container sees its own group as the
    root. So are all groups where there are none (not on Linux).

    Args:
        root: of the file system with `proc` and `sys`.
    """
    mount = root / "sys/fs/cgroup"
    for line in (kernel_file("proc/self/cgroup", root) or "").splitlines():
        number, _, path = line.split(":", 2)
        if number != "0":
            continue
        inner = mount / path.lstrip("/")
        for group in (inner, *inner.parents)[: len(inner.parts) - len(mount.parts) + 1]:
            contents = [kernel_file(name, group) for name in names]
            if None not in contents:
                yield [content.strip() for content in contents if content is not None]


def usable_cores(root: Path = ROOT) -> float:
    """Cores that this process may use: by its affinity, and by the quotas of its control groups."""
    cores = float(system.usable_cores())
    for (limit,) in read_groups(["cpu.max"], root):
        quota, period = limit.split()
        if quota != "max":
            cores = min(cores, int(quota) / int(period))
    return cores


def available_memory(root: Path = ROOT) -> int:
    """Bytes that are still available on this machine and in this process's control groups, whose page cache
    counts as available.

    Where that is unknown (not on Linux), half of the installed memory.

    Args:
        root: of the file system with `proc` and `sys`.
    """
    known = kernel_file("proc/meminfo", root)
    if known is None:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    lines = (line.split(":") for line in known.splitlines())
    fields = {name: int(value.split()[0]) for name, value in lines}
    left = fields["MemAvailable"] << 10
    for limit, used, stat in read_groups(["memory.max", "memory.current", "memory.stat"], root):
        if limit != "max":
            parts = dict(entry.split() for entry in stat.splitlines())
            cache = int(parts["inactive_file"]) + int(parts["active_file"])
            left = min(left, int(limit) - int(used) + cache)
    return left


def processor() -> str:
    """The name of the processor's model, as far as the system knows it."""
    lines = [line.partition(":") for line in (kernel_file("proc/cpuinfo") or "").splitlines()]
    names = {name.strip(): value.strip() for name, _, value in lines}
    return names.get("model name") or names.get("Model") or platform.processor() or platform.machine()


@dataclass(frozen=True)
class CoreUse:
    """Whether this process had its cores over some time.

    Attributes:
        cores: that it may use.
        load: the load average of the machine in the last minute; 0 where the system does not say.
        stolen: cores of the machine that the host of a virtual machine withheld; 0 as well.
        withheld: the proportion of the time of its threads in which they had no core, where the load, the
            host or a quota that is used up explains it; else 0.
    """

    cores: float
    load: float
    stolen: float
    withheld: float

    def __str__(self) -> str:
        return f"load average {self.load:.1f}, {self.stolen:.1f} cores stolen, {self.cores:.3g} usable"


class CoreWatch:
    """Whether this process has its cores, from one look to the next. A look costs tens of microseconds.

    Args:
        processes: of this program on the same cores, which need about as much as this one.
    """

    def __init__(self, processes: int = 1, root: Path = ROOT) -> None:
        self.processes = processes
        self._root = root
        self._before = self._read()

    def look(self, threads: int) -> CoreUse:
        """The use of the cores since the last look.

        Args:
            threads: of this process that compute at the same time.
        """
        before, self._before = self._before, self._read()
        wall, own, stolen = (now - then for now, then in zip(self._before, before, strict=True))
        own, stolen = own / max(wall, 1e-9), stolen / max(wall, 1e-9)
        load = 0.0
        with suppress(OSError, AttributeError):
            load = os.getloadavg()[0]
        machine, allowed = os.cpu_count() or 1, system.usable_cores()
        cores = usable_cores(self._root)
        is_spent = cores < allowed and self.processes * own >= SPENT_PROPORTION * cores
        is_crowded = load > CROWDED_LOAD * machine or stolen > STOLEN_PROPORTION * machine
        wanted = min(threads, (allowed if is_spent else cores) / self.processes)
        idle = max(0.0, 1.0 - own / wanted)
        return CoreUse(cores, load, stolen, idle if is_spent or is_crowded else 0.0)

    def _read(self) -> tuple[float, float, float]:
        """The seconds of the clock, of this process, and stolen from all cores."""
        fields = (kernel_file("proc/stat", self._root) or "").partition("\n")[0].split()
        ticks = float(fields[STEAL_FIELD]) if len(fields) > STEAL_FIELD else 0.0
        return time.perf_counter(), time.process_time(), ticks / os.sysconf("SC_CLK_TCK")
