"""The scripts of recipes/cluster, run by bash with stand-ins for SLURM's commands."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from brimful.runs.signals import SIGNALS
from builders.slurm import RECIPES, Job
from builders.verbs import SMALL, WEIGHTS, run, sha256, steps_and_losses

SCRIPTS = sorted(RECIPES.iterdir())

RECORDER = """#!{python}
import json, os, sys
note = {{"arguments": sys.argv[1:], **os.environ}}
with open("{folder}/rank-" + os.environ["RANK"], "w") as file:
    json.dump(note, file)
if os.environ.get("CODE", "0") == "-10":
    os.kill(os.getpid(), 10)
sys.exit(int(os.environ.get("CODE", "0")))
"""


def recorded(folder: Path, *arguments: object, code: int = 0, **values: int) -> tuple[Job, int, list[dict]]:
    """The job of train.slurm, its code, and what a `brimful` that only records saw on each rank."""
    environment = {"SLURM_CPUS_PER_TASK": "3", "CODE": str(code)}
    job = Job(folder, "train.slurm", *arguments, environment=environment, **values)
    job.environment.pop("OMP_NUM_THREADS", None)
    job.install("brimful", RECORDER)
    done = job.run()
    return job, done.returncode, [json.loads(path.read_text()) for path in sorted(folder.glob("rank-*"))]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_the_scripts_are_clean_bash(script: Path) -> None:
    linter = shutil.which("shellcheck") or str(Path(sys.executable).with_name("shellcheck"))
    if not Path(linter).exists():
        pytest.skip("needs shellcheck")
    done = subprocess.run([linter, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_each_task_is_a_rank(tmp_path: Path) -> None:
    run = tmp_path / "a run"
    job, code, ranks = recorded(
        tmp_path / "bin", run, "pretrain", "--data", "a corpus", "*", nodes=2, tasks=4
    )
    assert code == 0
    assert not job.queued_again
    assert [(r["RANK"], r["LOCAL_RANK"], r["GROUP_RANK"]) for r in ranks] == [
        ("0", "0", "0"),
        ("1", "1", "0"),
        ("2", "0", "1"),
        ("3", "1", "1"),
    ]
    for each in ranks:
        assert each["arguments"] == ["pretrain", "--out", str(run), "--data", "a corpus", "*"]
        assert (each["WORLD_SIZE"], each["LOCAL_WORLD_SIZE"], each["OMP_NUM_THREADS"]) == ("4", "2", "3")
        assert (each["MASTER_ADDR"], each["MASTER_PORT"]) == ("127.0.0.1", "20041")


@pytest.mark.parametrize(
    ("code", "seen", "again"),
    [(138, 138, True), (-10, 138, True), (1, 1, False), (2, 2, False), (143, 143, False)],
)
def test_only_the_signal_of_the_limit_queues_the_job_again(
    tmp_path: Path, code: int, seen: int, again: bool
) -> None:
    """138 is what a run ends with that has saved; -10 is the same signal before a rank listens to it."""
    job, returned, _ = recorded(tmp_path, tmp_path / "run", "distil", code=code)
    assert (returned, job.queued_again) == (seen, again)
    assert signal.SIGUSR1 in SIGNALS
    assert 128 + signal.SIGUSR1 == 138


def test_a_run_that_has_begun_goes_on(tmp_path: Path) -> None:
    begun = tmp_path / "run"
    begun.mkdir()
    (begun / "config.yaml").touch()
    _, _, ranks = recorded(tmp_path / "bin", begun, "pretrain", "--data", "corpus")
    assert [each["arguments"] for each in ranks] == [["pretrain", "--resume", str(begun)]] * 2


def test_without_a_verb_nothing_starts(tmp_path: Path) -> None:
    done = Job(tmp_path, "train.slurm", "run").run()
    assert done.returncode == 2
    assert done.stderr.startswith("usage: sbatch ")
    assert not (tmp_path / "tasks").exists()


@pytest.mark.slow
@pytest.mark.distributed
def test_a_job_that_reaches_its_limit_twice_ends_with_the_bits_of_one_start(
    chained: Path, tmp_path: Path
) -> None:
    options = ("--data", chained, *SMALL, "--trainer.steps", 60)
    run("pretrain", "--out", tmp_path / "straight", *options, ranks=2)
    out = tmp_path / "run"
    job = Job(tmp_path / "bin", "train.slurm", out, "pretrain", *options)
    job.install("brimful", '#!/bin/bash\nexec {python} -m brimful "$@"\n')
    for waits in ("metrics.jsonl", "checkpoints/step-30"):
        with job.start() as process:
            job.wait_for(process, out / waits)
            job.near_its_limit()
            _, error = process.communicate(timeout=60)
        assert process.returncode == 138, error
        assert job.queued_again
        step = int(error.partition("stopped by SIGUSR1 at step ")[2].partition(";")[0])
        assert step < 60
        assert (out / "checkpoints" / f"step-{step}").exists()
    last = job.run()
    assert last.returncode == 0, last.stderr
    assert not job.queued_again
    assert sha256(out / WEIGHTS) == sha256(tmp_path / "straight" / WEIGHTS)
    assert steps_and_losses(out) == steps_and_losses(tmp_path / "straight")
