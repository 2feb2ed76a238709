"""What a GPU is asked in ten minutes, the most important first; the same command continues where it ended.

    python -m bench.gpu.ten_minutes --out runs/gpu --corpus PREPARED --data TASKS

    cases         bench.gpu for two and a half minutes; `python -m bench.gpu --out runs/gpu` continues with it
    brimful       `pretrain --model base` for --seconds by the clock: held-out loss over seconds
    transformers  the same by a loop over length-grouped batches (bench/gpu/pretraining.py)
    tasks         MRPC and CoLA, fine-tuned from both; the four runs start together
    commits       the two commits whose losses parted (docs/results/performance.md): the command of then, each
                  twice, the four runs together; the first updates at which two runs part

PREPARED is what `brimful prepare` made, TASKS the folder of `bench.tasks`. DIR/ten_minutes.json has a row for
each run as soon as it ends. One that failed says why, and the next call tries it again. Without git, make the
worktrees before: `git worktree add runs/gpu/a9d5e03 a9d5e03`, and so on. `--device cpu` has toy sizes.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

from bench.common.record import Record, Row
from bench.common.recorder.device import ROOT
from bench.tasks.sets import SETS

COMMITS = ("a9d5e03", "3a2cb68d")
SIDES = ("brimful", "transformers")
STEPS = ("cases", *SIDES, "tasks", "commits")
CASES_MINUTES = 2.5
PARTED_LOSS = 1e-2
"""Losses of the two commits differed by less than 2e-4 at first, and by 0.1 after update 12."""
PLAIN: Row = {
    "recipe": "plain",
    "initial": {"attention": "random", "vocabulary": "random"},
    "optimizer": {"learning_rate": 5e-4},
}
"""What the loop over `transformers` can have too."""
SIZES: dict[str, Row] = {
    "cuda": {"model": "base", "rows_per_update": 64, "rows_per_micro_batch": 64},
    "cpu": {"model": "tiny", "rows_per_update": 4, "rows_per_micro_batch": 4},
}
UPDATES = {"cuda": 48, "cpu": 3}
"""Of each commit, as then."""
EVALUATE_EVERY = {"cuda": 200, "cpu": 10}
LENGTHS = {"cuda": 512, "cpu": 64}
Command = tuple[list[str], Path]
"""Arguments of Python, and the checkout that they run in."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The steps, as far as the time goes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--corpus", type=Path, required=True, help="what `brimful prepare` made")
    parser.add_argument("--data", type=Path, required=True, help="the folder with mrpc and cola")
    parser.add_argument("--minutes", type=float, default=9.5, help="never more than that")
    parser.add_argument("--seconds", type=float, default=150.0, help="of each side's pretraining")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: toy sizes")
    options = parser.parse_args(arguments)
    options.out, options.corpus, options.data = (
        path.resolve() for path in (options.out, options.corpus, options.data)
    )
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "ten_minutes.json"
    record = Record("gpu.ten_minutes", ("brimful",), file)
    if file.is_file():
        rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
        record.rows = [row for row in rows if "error" not in row]
    until = time.monotonic() + 60 * options.minutes
    for step in options.steps:
        done = [row["name"] for row in record.rows]
        commands = {name: each for name, each in list_commands(step, options).items() if name not in done}
        if time.monotonic() > until:
            print(f"left out, for want of time: {', '.join(commands)}", flush=True)
            continue
        run(commands, options, until, record)
        if step == "commits":
            compare([row for row in record.rows if row["name"].startswith(COMMITS)])


def list_commands(step: str, options: argparse.Namespace) -> dict[str, Command]:
    """The commands of a step by name; each writes to DIR/NAME."""
    out, device, commands = options.out, options.device, {}
    if step == "cases":
        words = ["-m", "bench.gpu", "--out", out, "--device", device, "--minutes", CASES_MINUTES]
        return {step: ([str(word) for word in words], ROOT)}
    values = SIZES[device] | {"data": str(options.corpus)}
    if step in SIDES:
        every = EVALUATE_EVERY[device]
        trainer = {"steps": 100_000, "hours": options.seconds / 3600, "checkpoint_every": 0}
        trainer |= {"evaluate_every": every, "log_every": every}
        values |= PLAIN | {"packing": {"max_length": LENGTHS[device]}}
        file = out / f"{step}.config.json"
        file.write_text(json.dumps(values | {"out": str(out / step), "trainer": trainer}))
        return {step: (["-m", "bench.gpu.pretraining", step, str(file)], ROOT)}
    if step == "tasks":
        for name in ("mrpc", "cola"):
            settings = {"ladder": "none", **SETS[name].options}
            settings |= {part: options.data / path for part, path in SETS[name].files.items()}
            for side in SIDES:
                named = settings | {"encoder": out / side / "encoder", "out": out / f"{name}-{side}"}
                words = ["-m", "brimful", "finetune", "--json", "--seed", "0", "1", "2"]
                for option, value in named.items():
                    words += [f"--{option}", str(value)]
                commands[f"{name}-{side}"] = words, ROOT
        return commands
    for commit in COMMITS:
        if not (out / commit).is_dir() and shutil.which("git"):
            subprocess.run(["git", "worktree", "add", "--detach", out / commit, commit], cwd=ROOT)
        for name in (f"{commit}-1", f"{commit}-2"):
            trainer = {"steps": UPDATES[device], "log_every": 1}
            keywords = values | {"out": str(out / name), "trainer": trainer}
            commands[name] = ["-c", f"import brimful; brimful.pretrain(**{keywords!r})"], out / commit
    return commands


def run(commands: Mapping[str, Command], options: argparse.Namespace, until: float, record: Record) -> None:
    """Run commands side by side until the time is over, and keep a row of each."""
    processes: dict[str, subprocess.Popen[bytes]] = {}
    for name, (words, folder) in commands.items():
        if not folder.is_dir():
            record.add({"name": name, "error": f"there is no {folder}"})
            continue
        shutil.rmtree(options.out / name, ignore_errors=True)
        environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        if options.device == "cpu":
            environment["CUDA_VISIBLE_DEVICES"] = ""
        with (options.out / f"{name}.log").open("w") as log:
            command = [sys.executable, *words]
            processes[name] = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    for name, process in processes.items():
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
        said = (options.out / f"{name}.log").read_text(encoding="utf-8").strip().splitlines()
        last = said[-1] if said else ""
        row: Row = {"name": name, "losses": read_losses(options.out / name)}
        if process.wait() == 0:
            row["said"] = json.loads(last) if last.startswith("{") else last
        else:
            row["error"] = f"status {process.returncode}: {last}"
        record.add(row)
        print(f"{name}: {row.get('error', 'done')}", flush=True)


def read_losses(run: Path) -> list[float]:
    """The training losses of a run of `pretrain`, line by line."""
    file = run / "metrics.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [line["loss.mlm"] for line in map(json.loads, lines) if "loss.mlm" in line]


def compare(runs: Sequence[Row]) -> None:
    """Print the first update, from 1, at which each two runs part."""
    for one, other in combinations([run for run in runs if run["losses"]], 2):
        parted = [abs(a - b) > PARTED_LOSS for a, b in zip(one["losses"], other["losses"], strict=False)]
        where = f"part at update {parted.index(True) + 1}" if any(parted) else "do not part"
        print(f"{one['name']} and {other['name']} {where}", flush=True)


if __name__ == "__main__":
    main()
