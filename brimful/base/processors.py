"""The processors: how many this process may use, of which model, and who keeps them busy.

A system that does not say it, such as macOS, gives no answer and no error.
"""

import os
import platform
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from brimful.base import system
from brimful.base.control_groups import read_groups

ROOT = Path("/")
CROWDED = 1.5
"""A load average over the cores above which, where nothing else is known, processes wait for each other."""
SPENT = 0.9
"""The proportion of a quota from which on it is used up: what is left of a period may be too short to use."""


def usable_cores(root: Path = ROOT) -> float:
    """Cores that this process may use: by its affinity, and by the quotas of its control groups."""
    files = ["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
    limits = [" ".join(values).split() for _, values in read_groups("cpu", *files, root)]
    quotas = [limit for limit in limits if len(limit) == 2 and limit[0] not in ("max", "-1")]
    return min([float(system.usable_cores()), *(int(quota) / int(period) for quota, period in quotas)])


def processor() -> str:
    """The name of the processor's model, as far as the system knows it."""
    lines = [line.partition(":") for line in (system.kernel_file("proc/cpuinfo") or "").splitlines()]
    names = {name.strip(): value.strip() for name, _, value in lines}
    return names.get("model name") or names.get("Model") or platform.processor() or platform.machine()


@dataclass(frozen=True)
class Use:
    """Who had the cores over some time, in cores.

    Attributes:
        own: this process, of its processor time.
        others: other processes; None: the system does not say.
        stolen: the host of a virtual machine, for others (steal); None as well.
        load: the load average of the last minute; None as well.
        cores: that this process may use by its affinity.
        quota: that its control groups leave it, where they are fewer and used up; None: they are not.
    """

    own: float
    others: float | None
    stolen: float | None
    load: float | None
    cores: int
    quota: float | None = None

    def withheld(self, threads: float, processes: int = 1) -> float:
        """The proportion of the time of this process's threads in which others had the cores that they need,
        or a quota withheld them.

        Args:
            threads: that compute at the same time, at most as many as there are cores for them.
            processes: as many as this one, on the same cores.
        """
        idle = max(0.0, 1.0 - self.own / threads)
        if self.quota is not None:
            return idle
        if self.others is None or self.stolen is None:
            return idle if self.load is not None and self.load > CROWDED * self.cores else 0.0
        room = (self.cores - self.others - self.stolen) / processes
        return min(idle, max(0.0, 1.0 - room / threads))


class Watch:
    """Who has the cores, from one look to the next. A look costs tens of microseconds.

    Args:
        processes: of this program on the same cores, which need about as much as this one.
    """

    def __init__(self, processes: int = 1, root: Path = ROOT) -> None:
        self.processes = processes
        self._root = root
        self._before = self._read()

    def look(self) -> Use:
        """The use of the cores since the last look."""
        before, self._before = self._before, self._read()
        wall, own, *ticks = (now - then for now, then in zip(self._before, before, strict=False))
        wall = max(wall, 1e-9)
        others = stolen = load = None
        if len(ticks) == 2:
            busy, stolen = (each / os.sysconf("SC_CLK_TCK") / wall for each in ticks)
            others = max(0.0, busy - self.processes * own / wall)
        with suppress(OSError, AttributeError):
            load = os.getloadavg()[0]
        own, cores, quota = own / wall, system.usable_cores(), usable_cores(self._root)
        spent = quota < cores and self.processes * own >= SPENT * quota
        return Use(own, others, stolen, load, cores, quota if spent else None)

    def _read(self) -> list[float]:
        """The clock, this process's time, and the ticks that its cores were busy and stolen, if known."""
        return [time.perf_counter(), time.process_time(), *_ticks(self._root)]


def _ticks(root: Path) -> list[float]:
    """What the cores of this process's affinity have done, but for being idle or waiting for a disk, and what
    was stolen from them; empty where the system does not say."""
    known = system.kernel_file("proc/stat", root) or ""
    lines = [line.split() for line in known.splitlines()]
    lines = [fields for fields in lines if len(fields) > 8 and re.fullmatch(r"cpu\d+", fields[0])]
    cores = {int(name[3:]): [int(field) for field in fields[:8]] for name, *fields in lines}
    allowed = system.allowed_cores()
    used = [ticks for core, ticks in cores.items() if core in allowed] or list(cores.values())
    if not any(map(any, used)):  # a sandbox that shows nothing
        return []
    busy = sum(user + nice + system + irq + soft for user, nice, system, _, _, irq, soft, _ in used)
    return [float(busy), float(sum(ticks[7] for ticks in used))]
