"""What this process may use of its machine, cores and memory, and what others take of its cores.

A system that does not say it, such as macOS, gives no answer and no error.
"""

import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from brimful.base import system
from brimful.base.system import read_kernel_file

ROOT = Path("/")
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
    for line in (read_kernel_file("proc/self/cgroup", root) or "").splitlines():
        number, _, path = line.split(":", 2)
        if number != "0":
            continue
        inner = mount / path.lstrip("/")
        for group in (inner, *inner.parents)[: len(inner.parts) - len(mount.parts) + 1]:
            contents = [read_kernel_file(name, group) for name in names]
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
    known = read_kernel_file("proc/meminfo", root)
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


def processor_name() -> str:
    """The name of the processor's model, as far as the system knows it."""
    lines = [line.partition(":") for line in (read_kernel_file("proc/cpuinfo") or "").splitlines()]
    names = {name.strip(): value.strip() for name, _, value in lines}
    return names.get("model name") or names.get("Model") or platform.processor() or platform.machine()


def load_average() -> float:
    """The load average of the machine in the last minute; 0 where the system does not say."""
    with suppress(OSError, AttributeError):
        return os.getloadavg()[0]
    return 0.0


def stolen_seconds(root: Path = ROOT) -> float:
    """Core seconds that the host of a virtual machine has withheld; 0 where the system does not say.

    Args:
        root: of the file system with `proc`.
    """
    fields = (read_kernel_file("proc/stat", root) or "").partition("\n")[0].split()
    ticks = float(fields[STEAL_FIELD]) if len(fields) > STEAL_FIELD else 0.0
    return ticks / os.sysconf("SC_CLK_TCK")
