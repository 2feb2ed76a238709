"""The scripts of recipes/cluster, run by bash with stand-ins for SLURM's commands on one machine.

Of a script's options only `--signal` is read, and a test says when the time limit is near. srun starts the
tasks as processes, sets the variables that SLURM sets, and ends with the highest code of a task (128 + the
number of a signal), as SLURM's does. scontrol knows `show hostnames` and `requeue`.
"""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from brimful.runs.signals import SIGNALS
from builders.training import lines
from builders.verbs import ROOT, SMALL, WEIGHTS, run, sha256, wait_for

RECIPES = ROOT / "recipes" / "cluster"

SRUN = """#!{python}
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
SCONTROL = """#!/bin/bash
if [ "$1" = show ]; then
    tr , '\\n' <<< "$3"
else
    echo "$@" >> "{folder}/asked"
fi
"""
RECORDER = """#!{python}
import json, os, sys
note = {{"arguments": sys.argv[1:], **os.environ}}
with open("{folder}/rank-" + os.environ["RANK"], "w") as file:
    json.dump(note, file)
if os.environ["CODE"] == "-10":
    os.kill(os.getpid(), 10)
sys.exit(int(os.environ["CODE"]))
"""


class Job:
    """train.slurm as a job, on nodes that are all this machine, whose `brimful` is the given program."""

    def __init__(
        self, folder: Path, brimful: str, *arguments: object, nodes: int = 2, tasks: int = 2
    ) -> None:
        self.folder = folder
        self.line = ["bash", str(RECIPES / "train.slurm"), *map(str, arguments)]
        self.environment = {
            **os.environ,
            "SLURM_JOB_ID": "41",
            "SLURM_JOB_NODELIST": ",".join(["127.0.0.1"] * nodes),
            "SLURM_NNODES": str(nodes),
            "SLURM_NTASKS": str(tasks),
            "PATH": f"{folder}:{os.environ['PATH']}",
        }
        folder.mkdir(exist_ok=True)
        for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("brimful", brimful)):
            (folder / name).write_text(text.format(python=sys.executable, folder=folder))
            (folder / name).chmod(0o755)

    def start(self) -> subprocess.Popen[str]:
        """A start of the job: the first one, or the one after it was queued again."""
        for noted in ("tasks", "asked"):
            (self.folder / noted).unlink(missing_ok=True)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(self.line, cwd=ROOT, env=self.environment, text=True, **pipes)

    def near_its_limit(self) -> None:
        """Send the signal that the script asked for to all tasks; without B:, the script itself gets none."""
        found = re.search(r"^#SBATCH --signal=(\w+)@\d+$", Path(self.line[1]).read_text(), re.MULTILINE)
        assert found
        for task in (self.folder / "tasks").read_text().split():
            os.kill(int(task), signal.Signals[f"SIG{found[1]}"])

    @property
    def queued_again(self) -> bool:
        """Whether the last start asked for another one."""
        noted = self.folder / "asked"
        return noted.exists() and noted.read_text() == "requeue 41\n"


def recorded(folder: Path, *arguments: object, code: int = 0, **values: int) -> tuple[Job, int, list[dict]]:
    """Run a job whose `brimful` only records; return the job, its code, and the record of each rank."""
    job = Job(folder, RECORDER, *arguments, **values)
    job.environment |= {"CODE": str(code), "SLURM_CPUS_PER_TASK": "3"}
    job.environment.pop("OMP_NUM_THREADS", None)
    with job.start() as process:
        process.communicate(timeout=200)
    return job, process.returncode, [json.loads(path.read_text()) for path in sorted(folder.glob("rank-*"))]


def test_each_task_is_a_rank(tmp_path: Path) -> None:
    run, given = tmp_path / "a run", ("--data", "a corpus", "*")
    job, code, ranks = recorded(tmp_path / "bin", run, "pretrain", *given, nodes=2, tasks=4)
    assert (code, job.queued_again) == (0, False)
    places = [(r["RANK"], r["LOCAL_RANK"], r["GROUP_RANK"]) for r in ranks]
    assert places == [("0", "0", "0"), ("1", "1", "0"), ("2", "0", "1"), ("3", "1", "1")]
    for each in ranks:
        assert each["arguments"] == ["pretrain", "--out", str(run), *given]
        assert (each["WORLD_SIZE"], each["LOCAL_WORLD_SIZE"], each["OMP_NUM_THREADS"]) == ("4", "2", "3")
        assert (each["MASTER_ADDR"], each["MASTER_PORT"]) == ("127.0.0.1", "20041")


@pytest.mark.parametrize(
    ("code", "seen", "again"),
    [(138, 138, True), (-10, 138, True), (1, 1, False), (2, 2, False), (143, 143, False)],
)
def test_only_the_signal_of_the_limit_queues_the_job_again(
    tmp_path: Path, code: int, seen: int, again: bool
) -> None:
    """A run that has saved ends with 138; -10 is the same signal before a rank listens to it."""
    job, returned, _ = recorded(tmp_path, tmp_path / "run", "distil", code=code)
    assert (returned, job.queued_again) == (seen, again)
    assert signal.SIGUSR1 in SIGNALS
    assert 128 + signal.SIGUSR1 == 138


def test_a_run_that_has_begun_goes_on(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").touch()
    _, _, ranks = recorded(tmp_path / "bin", tmp_path, "pretrain", "--data", "corpus")
    assert [each["arguments"] for each in ranks] == [["pretrain", "--resume", str(tmp_path)]] * 2


@pytest.mark.slow
@pytest.mark.distributed
def test_a_job_that_reaches_its_limit_twice_ends_with_the_bits_of_one_start(
    chained: Path, tmp_path: Path
) -> None:
    options = ("--data", chained, *SMALL, "--trainer.steps", 60)
    run("pretrain", "--out", tmp_path / "straight", *options, ranks=2)
    out, program = tmp_path / "run", '#!/bin/bash\nexec {python} -m brimful "$@"\n'
    job = Job(tmp_path / "bin", program, out, "pretrain", *options)
    for waits in ("metrics.jsonl", "checkpoints/step-30"):
        with job.start() as process:
            wait_for(process, out / waits)
            job.near_its_limit()
            _, error = process.communicate(timeout=60)
        assert process.returncode == 138, error
        assert job.queued_again
        step = int(error.partition("stopped by SIGUSR1 at step ")[2].partition(";")[0])
        assert step < 60
        assert (out / "checkpoints" / f"step-{step}").exists()
    with job.start() as process:
        _, error = process.communicate(timeout=200)
    assert process.returncode == 0, error
    assert not job.queued_again
    assert sha256(out / WEIGHTS) == sha256(tmp_path / "straight" / WEIGHTS)
    assert lines(out) == lines(tmp_path / "straight")
