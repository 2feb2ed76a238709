"""Ray clusters for tests: nodes that are processes of this machine."""

import os
import re
import signal
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from builders.engine_tasks import ENVIRONMENT

RAY = Path(sysconfig.get_path("scripts"), "ray")


class Node:
    """A node of a cluster: `ray start --block` and all processes below it.

    Attributes:
        address: of the cluster's head, HOST:PORT.
    """

    def __init__(self, cpus: int, *options: str) -> None:
        command = [
            str(RAY),
            "start",
            "--block",
            f"--num-cpus={cpus}",
            "--object-store-memory=80000000",
            *options,
        ]
        self.process = subprocess.Popen(
            command,
            env={**ENVIRONMENT, "RAY_USAGE_STATS_ENABLED": "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout
        said = ""
        while "Ray runtime started" not in said:
            line = self.process.stdout.readline()
            assert line, said
            said += line
        while "--head" in options and not (found := re.search(r"address='([\d.:]+)'", said)):
            said += self.process.stdout.readline()
        self.address = found[1] if "--head" in options and found else ""

    def processes(self) -> list[int]:
        """The processes of the node, parents first."""
        found = [self.process.pid]
        for parent in found:
            for children in Path(f"/proc/{parent}/task").glob("*/children"):
                found.extend(map(int, children.read_text().split()))
        return found

    def busy(self) -> list[int]:
        """The processes of the node that run a task; Ray gives them its name."""
        titles = {process: Path(f"/proc/{process}/cmdline") for process in self.processes()}
        return [
            process for process, title in titles.items() if title.read_bytes().startswith(b"ray::attempt")
        ]

    def kill(self) -> None:
        """Kill every process of the node with SIGKILL, as if its machine had lost power."""
        for process in self.processes():
            os.kill(process, signal.SIGKILL)
        self.stop()

    def stop(self) -> None:
        """End the node."""
        assert self.process.stdout
        self.process.terminate()
        self.process.wait(60)
        self.process.stdout.close()


@contextmanager
def cluster(cpus: int) -> Iterator[Node]:
    """The head of a new cluster with little memory; afterwards it is gone."""
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        options = ("--head", "--port=0", "--include-dashboard=false", f"--temp-dir={folder}")
        head = Node(cpus, *options)
        try:
            yield head
        finally:
            head.stop()
