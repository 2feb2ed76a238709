"""What a process took, and on which machine: for benches whose sides are command lines."""

import json
import os
import platform
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


def machine_facts(*measures: str) -> dict[str, Any]:
    """Describe the machine, its load now, the commit, and the paths of the checkout that a bench measures.

    `bench.pages` marks figures whose paths the history has changed since. All values are JSON types.
    """
    return {
        "measures": list(measures),
        "cpu": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg(),
        "python": platform.python_version(),
        "commit": current_commit(),
    }


def processor() -> str:
    """The name of the CPU."""
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if "model name" in line] if info.exists() else []
    return names[0].split(":")[1].strip() if names else platform.processor()


def current_commit() -> str | None:
    """The commit that is checked out; None without Git."""
    if not shutil.which("git"):
        return None
    run = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    return run.stdout.strip() or None
