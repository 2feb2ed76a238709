"""How good are Brimful's task models on public sets, beside what a user would pick instead?

    python -m bench.tasks --data TASKS --encoder minilm=FOLDER --sets mrpc sst2 --out bench/results/tasks.json

TASKS holds the sets as their repositories have them (docs/results/scores.md names repository, path and hash).
For each set and encoder it runs `brimful finetune`, whose ladder has the majority, TF-IDF and the frozen
encoder; for names, a CRF (python-crfsuite, in an environment of its own); with --students, `brimful distil`
too. A run is kept in --work and not made again, so an interrupted bench continues.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from bench.common.corpora import DATA
from bench.common.processes import machine_facts, timed
from bench.tasks import crf
from bench.tasks.sets import SETS, find_files, hash_sources
from brimful.base.storage import write_json

RATES = {"mini": ("5e-4", "1e-3"), "other": ("5e-5", "1e-4")}
"""Learning rates that are compared on dev: of a model of 4 layers of 256, and of others."""
QUICK = {"epochs": 0.02}


def name_rates(encoder: str) -> tuple[str, ...]:
    return RATES["mini" if encoder.startswith("mini-") else "other"]


def run_verb(*words: Any) -> dict[str, Any]:
    """Run a line of `brimful`, and return its result with its CPU seconds and its peak memory."""
    command = [sys.executable, "-m", "brimful", *map(str, words), "--json"]
    run = timed(command, os.sched_getaffinity(0))
    return run.facts | {"cpu_seconds": run.cpu, "wall_seconds": run.wall, "peak_mb": run.peak_mb}


def run_once(record: Path, *words: Any) -> dict[str, Any]:
    """Run a line of `brimful`, or read what it gave before."""
    if not record.is_file():
        write_json(record, run_verb(*words))
    return json.loads(record.read_text(encoding="utf-8"))


def finetune(name: str, encoder: str, folder: Path, files: dict[str, Path], work: Path, quick: bool) -> Any:
    """Fine-tune an encoder on a set, and return the row of its record."""
    chosen, out = SETS[name], work / f"{name}-{encoder}"
    words: list[Any] = ["finetune", "--encoder", folder, "--out", out]
    for part, path in files.items():
        words += [f"--{part}", path]
    for option, value in (chosen.options | (QUICK if quick else {})).items():
        words += [f"--{option}", value]
    words += ["--learning-rates", *name_rates(encoder), "--seed", *range(chosen.seeds)]
    facts = run_once(work / f"{name}-{encoder}.json", *words)
    kept = ("task", "primary_metric", "test", "dev", "learning_rate", "baselines", "parameters", "precision")
    row = {"set": name, "encoder": encoder, **{key: facts[key] for key in kept if key in facts}}
    return row | {key: facts[key] for key in ("cpu_seconds", "wall_seconds", "peak_mb")}


def distil(name: str, encoder: str, work: Path, quick: bool) -> Any:
    """Distil the model of a set into every second layer, and return the row of its record."""
    teacher, out = work / f"{name}-{encoder}", work / f"{name}-{encoder}-student"
    words = ["distil", "--teacher", teacher, "--out", out, "--seed", *range(SETS[name].seeds)]
    if quick:
        words += ["--epochs", QUICK["epochs"]]
    facts = run_once(work / f"{name}-{encoder}-student.json", *words)
    kept = ("primary_metric", "parameters", "comparisons", "precision", "cpu_seconds", "peak_mb")
    row = {"set": name, "encoder": f"{encoder}, student"} | {key: facts[key] for key in kept if key in facts}
    return row | {"test": facts["test"] | facts["student"]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--encoder", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--students", nargs="*", choices=SETS, default=[], help="sets to distil")
    parser.add_argument("--work", type=Path, default=DATA / "tasks")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="hardly any training: does it run?")
    args = parser.parse_args()
    encoders = dict(each.split("=", 1) for each in args.encoder)
    record: dict[str, Any] = machine_facts(
        "brimful/tasks", "brimful/stages", "brimful/model", "brimful/train"
    )
    record |= {"bench": "tasks", "sets": {}, "rows": []}
    if args.out.is_file():  # rows of other sets and encoders stay
        before = json.loads(args.out.read_text(encoding="utf-8"))
        record |= {"sets": before["sets"], "rows": before["rows"]}
    for name in args.sets:
        files = find_files(name, args.data, args.work / "tables")
        record["sets"][name] = {"source": SETS[name].source, "sha256": hash_sources(name, args.data)}
        rows = []
        for encoder, folder in encoders.items():
            rows.append(finetune(name, encoder, Path(folder), files, args.work, args.quick))
            if name in args.students:
                rows.append(distil(name, encoder, args.work, args.quick))
        if SETS[name].options.get("task") == "token-classification":
            rows.append({"set": name, "encoder": "CRF", **crf.measure(files, args.work)})
        new = {(row["set"], row["encoder"]) for row in rows}
        record["rows"] = [row for row in record["rows"] if (row["set"], row["encoder"]) not in new] + rows
        write_json(args.out, record)
        for row in rows:
            metric = row["primary_metric"]
            print(f"{name}, {row['encoder']}: {metric} {row['test'][metric]:.4f}", flush=True)


if __name__ == "__main__":
    main()
