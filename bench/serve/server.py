"""A server as a process: its ready line, and the CPU time and memory that it takes."""

import os
import re
import subprocess
import time
from pathlib import Path

from brimful.base.machine import read_kernel_file

READY = re.compile(r" on http://([^:]+):(\d+)$", re.MULTILINE)
PATIENCE = 120.0


class ServerError(Exception):
    """A server did not become ready; the text is the last line of what it said."""


class Server:
    """A process that prints `serving NAME on http://HOST:PORT` once it answers.

    Attributes:
        address: host and port.
    """

    def __init__(self, command: list[str], log: Path) -> None:
        with log.open("w") as said:
            self.process = subprocess.Popen(command, stdout=said, stderr=said)
        until = time.monotonic() + PATIENCE
        while not (ready := READY.search(log.read_text(errors="replace"))):
            if self.process.poll() is not None or time.monotonic() > until:
                self.__exit__()
                lines = log.read_text(errors="replace").strip().splitlines()
                raise ServerError(lines[-1] if lines else "it said nothing")
            time.sleep(0.05)
        self.address = ready[1], int(ready[2])

    def cpu_seconds(self) -> float:
        """Of all its threads, in the program and in the kernel."""
        fields = (read_kernel_file(f"proc/{self.process.pid}/stat") or "").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        """Its resident memory in MiB."""
        status = read_kernel_file(f"proc/{self.process.pid}/status") or ""
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
