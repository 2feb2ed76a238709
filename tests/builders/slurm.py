"""Stand-ins for SLURM's commands on one machine: enough to run the scripts of recipes/cluster as jobs.

Of the script's options only `--signal` is read, and a test says when the time limit is near. srun starts the
tasks as processes, sets the variables that SLURM sets, and ends with the highest code of a task (128 + the
number of a signal), as SLURM's does. scontrol knows `show hostnames` and `requeue`.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "recipes" / "cluster"

_SRUN = """#!{python}
import os, subprocess, sys
command = sys.argv[1:]
while command and command[0].startswith("-"):
    command.pop(0)
nodes, tasks = int(os.environ["SLURM_NNODES"]), int(os.environ["SLURM_NTASKS"])
each = tasks // nodes
started = []
for task in range(tasks):
    where = {{"SLURM_PROCID": task, "SLURM_LOCALID": task % each, "SLURM_NODEID": task // each}}
    where["SLURM_STEP_TASKS_PER_NODE"] = f"{{each}}(x{{nodes}})" if nodes > 1 else each
    values = os.environ | {{name: str(value) for name, value in where.items()}}
    started.append(subprocess.Popen(command, env=values))
with open("{folder}/tasks", "w") as file:
    file.write(" ".join(str(process.pid) for process in started))
codes = [process.wait() for process in started]
sys.exit(max(code if code >= 0 else 128 - code for code in codes))
"""

_SCONTROL = """#!/bin/bash
if [ "$1" = show ]; then
    tr , '\\n' <<< "$3"
else
    echo "$@" >> "{folder}/asked"
fi
"""


class Job:
    """A script as a job, on nodes that are all this machine.

    Args:
        folder: for the stand-ins, and for what they note.
        environment: variables beside those of SLURM.
    """

    def __init__(
        self,
        folder: Path,
        script: str,
        *arguments: object,
        nodes: int = 2,
        tasks: int = 2,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.script = RECIPES / script
        self.line = ["bash", str(self.script), *map(str, arguments)]
        self.environment = {
            **os.environ,
            "SLURM_JOB_ID": "41",
            "SLURM_JOB_NODELIST": ",".join(["127.0.0.1"] * nodes),
            "SLURM_NNODES": str(nodes),
            "SLURM_NTASKS": str(tasks),
            "PATH": f"{folder}:{os.environ['PATH']}",
            **(environment or {}),
        }
        self.install("srun", _SRUN)
        self.install("scontrol", _SCONTROL)

    def install(self, name: str, text: str) -> None:
        """A program of this name in the PATH of the job."""
        self.folder.mkdir(exist_ok=True)
        path = self.folder / name
        path.write_text(text.format(python=sys.executable, folder=self.folder))
        path.chmod(0o755)

    def start(self) -> subprocess.Popen[str]:
        """A start of the job: the first one, or the one after it was queued again."""
        for noted in ("tasks", "asked"):
            (self.folder / noted).unlink(missing_ok=True)
        return subprocess.Popen(
            self.line,
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self) -> subprocess.CompletedProcess[str]:
        with self.start() as process:
            out, error = process.communicate(timeout=200)
        return subprocess.CompletedProcess(self.line, process.returncode, out, error)

    def near_its_limit(self) -> None:
        """Send the signal that the script asked for to all tasks; without B:, the script itself gets none."""
        found = re.search(r"^#SBATCH --signal=(\w+)@\d+$", self.script.read_text(), re.MULTILINE)
        assert found
        for task in (self.folder / "tasks").read_text().split():
            os.kill(int(task), signal.Signals[f"SIG{found[1]}"])

    @property
    def queued_again(self) -> bool:
        """Whether the last start asked for another one."""
        noted = self.folder / "asked"
        return noted.exists() and noted.read_text() == "requeue 41\n"

    def wait_for(self, process: subprocess.Popen[str], path: Path) -> None:
        ends = time.monotonic() + 120
        while not path.exists():
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < ends
            time.sleep(0.01)
