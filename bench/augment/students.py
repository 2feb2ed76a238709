"""Does augmentation earn its cost? Students with and without it, of one teacher, with the same seeds.

    plain     `--epochs` passes over the texts in each stage
    longer    as many updates as `augmented`, all over the texts as they are
    augmented `--epochs` passes over the texts and their copies

The comparison that counts is `augmented` with `longer`: both cost the same training, and `augmented` its
candidates too, which the wall time of its first run includes. A teacher is fine-tuned once for each table.
Results go to `--out` after each run, and runs that are in `--work` are not made again.

    python -m bench.augment.students --tables r8 reviews --encoder DIR DIR [--candidates DIR] [--copies 20]
        [--seeds 3] [--epochs 1] [--student-layers 2] [--work DIR] [--out FILE.json]
"""

import argparse
import json
import os
import statistics
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.common.processes import machine_facts, timed
from bench.common.record import Record
from bench.finetune.data import tables
from brimful.storage import read_json

DATA = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "brimful-bench"
ARMS = ("plain", "longer", "augmented")


def run(verb: str, out: Path, options: list[object], threads: int) -> dict[str, Any]:
    """The summary of a run, made if it is not there."""
    if not (out / "summary.json").is_file():
        command = [sys.executable, "-m", "brimful", verb, "--json", "--out", str(out), *map(str, options)]
        timed(command, range(threads))
    return read_json(out / "summary.json")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--tables", nargs="+", default=["r8", "reviews"], choices=["r8", "reviews"])
    parser.add_argument("--encoder", nargs="+", required=True, help="one for all tables, or one for each")
    parser.add_argument("--candidates", help="a masked LM that proposes words, if the encoders have no head")
    parser.add_argument("--vectors", help="GloVe or word2vec text file")
    parser.add_argument("--train-rows", type=int, default=2000)
    parser.add_argument("--copies", type=int, default=20)
    parser.add_argument("--epochs", type=float, default=1.0, help="of each stage, over texts and copies")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--student-layers", type=int, default=2)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--work", type=Path, default=DATA / "augment")
    parser.add_argument("--quick", action="store_true", help="few texts and copies, one seed")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    if options.quick:
        options.train_rows, options.copies, options.seeds = 100, 2, 1
    if len(options.encoder) not in (1, len(options.tables)):
        parser.error("--encoder takes one folder, or one for each table")
    encoders = options.encoder * (len(options.tables) if len(options.encoder) == 1 else 1)
    settings = {
        name: getattr(options, name)
        for name in (
            "copies",
            "epochs",
            "student_layers",
            "train_rows",
            "max_length",
            "candidates",
            "vectors",
        )
    }
    facts = {"bench": "augment.students", "date": datetime.now(UTC).isoformat(timespec="seconds")}
    record = Record(facts | machine_facts() | {"settings": settings}, options.out)
    name_of_settings = "-".join(str(value).replace(os.sep, "_") for value in settings.values())
    for name, encoder in zip(options.tables, encoders, strict=True):
        train, test = tables(options.data, name, options.train_rows)
        folder = options.work / f"{name}-{Path(encoder).name}-{name_of_settings}"
        teacher = folder / "teacher"
        asked = ["--encoder", encoder, "--train", train, "--test", test, "--max-length", options.max_length]
        run("finetune", teacher, asked, options.threads)
        augment: list[object] = ["--augment.copies", options.copies]
        for option in ("candidates", "vectors"):
            if value := getattr(options, option):
                augment += [f"--augment.{option}", value]
        for seed in range(options.seeds):
            scores = {}
            for arm in ARMS:
                passes = options.epochs * (1 + options.copies if arm == "longer" else 1)
                more: list[object] = ["--teacher", teacher, "--seed", seed]
                more += ["--student-layers", options.student_layers]
                more += ["--layers.epochs", passes, "--logits.epochs", passes]
                more += augment if arm == "augmented" else []
                summary = run("distil", folder / f"{arm}-{seed}", more, options.threads)
                metric = summary["primary_metric"]
                scores[arm] = summary["student"][metric]
                row = {"table": name, "seed": seed, "arm": arm, "score": scores[arm], "metric": metric}
                record.add(row | {"teacher": summary["teacher"][metric], "seconds": summary["seconds"]})
            print(f"{name}, seed {seed}: {json.dumps(scores)}", flush=True)
    show(record.rows)


def show(rows: list[dict[str, Any]]) -> None:
    """A table: mean and spread, and the paired difference of `augmented` and `longer` with its error."""
    print("| table | teacher | plain | longer | augmented | augmented - longer |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in dict.fromkeys(row["table"] for row in rows):
        found = [row for row in rows if row["table"] == name]
        by_arm = {arm: [row["score"] for row in found if row["arm"] == arm] for arm in ARMS}
        cells = [f"{statistics.mean(scores):.4f} ± {spread(scores):.4f}" for scores in by_arm.values()]
        apart = [a - b for a, b in zip(by_arm["augmented"], by_arm["longer"], strict=True)]
        error = spread(apart) / len(apart) ** 0.5
        cells.append(f"{statistics.mean(apart):+.4f} ± {error:.4f}")
        print(f"| {name} | {found[0]['teacher']:.4f} | {' | '.join(cells)} |")


def spread(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


if __name__ == "__main__":
    main()
