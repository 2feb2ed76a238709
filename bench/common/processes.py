"""What a process took, and on which machine: for benches whose sides are command lines."""

import hashlib
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Run:
    """What one process and its children took, and the JSON object that it printed."""

    cpu: float
    wall: float
    peak_mb: float
    facts: dict[str, Any]


def timed(command: list[str], cores: Iterable[int]) -> Run:
    """Run a command on these cores. Peak memory is the largest process's.

    A child's peak counts what its parent held when it was started: so this process imports nothing large.
    """
    os.sched_setaffinity(0, cores)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        if process.returncode:
            sys.exit(f"bench: `{' '.join(command)}` failed:\n{errors.read()[-2000:]}")
        facts = json.loads(out.read().splitlines()[-1])
    return Run(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024, facts)


def time_of_others() -> float | None:
    """CPU seconds that the machine has had for others than this process's ended children, stolen time
    included; None where /proc/stat is absent. A difference of two says how quiet a machine was.

    It does not see slower clocks, neighbours on a hyperthread, and limits of a container; in a container it
    counts the whole host.
    """
    stat = Path("/proc/stat")
    if not stat.exists():
        return None
    user, nice, system, _, _, interrupts, soft, stolen = map(int, stat.read_text().split()[1:9])
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")
    return busy - children.ru_utime - children.ru_stime


def machine_facts() -> dict[str, Any]:
    """The machine, its load now, and the commit; JSON types."""
    return {
        "cpu": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg(),
        "python": platform.python_version(),
        "commit": state_of_the_code()["commit"],
    }


def processor() -> str:
    """The name of the CPU."""
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if "model name" in line] if info.exists() else []
    return names[0].split(":")[1].strip() if names else platform.processor()


def state_of_the_code() -> dict[str, Any]:
    """The `commit`, and the `code`, a hash of its Python files in brimful/ and bench/: both None without Git.
    And which of these files are `changed_files`."""

    def git(*command: str) -> str:
        found = shutil.which("git")
        return subprocess.run([found, *command], capture_output=True, text=True).stdout if found else ""

    changed = git("status", "--porcelain", "-uno", "--", "brimful/*.py", "bench/*.py").splitlines()
    files = git("ls-tree", "-r", "HEAD", "brimful", "bench").splitlines(True)
    sources = "".join(line for line in files if line.rstrip().endswith(".py"))
    return {
        "commit": git("rev-parse", "HEAD").strip() or None,
        "code": hashlib.sha256(sources.encode()).hexdigest() if sources else None,
        "changed_files": [line[3:] for line in changed],
    }
