"""What does TF-IDF teach a small model that starts from random weights? The cheapest rung of self-training.

On the demo's reviews, a linear model on TF-IDF is fitted to the 2,000 labels and answers all training
reviews. A model of 4 layers of 256, with a tokenizer of 8,000 pieces trained on the same reviews, learns
these answers. It has seen no other text, and no encoder is pretrained or brought. Settings were fixed
beforehand.

    python -m bench.distil.without_encoder [--work FOLDER] [--out FILE]
    python -m bench.distil.without_encoder --quick               # few texts, one seed: does it run?
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from bench.common.corpora import DATA
from bench.common.processes import machine_facts
from bench.common.record import Record
from bench.common.study import spread, table
from bench.distil.students import run
from bench.learning.run import new_model, prepare_texts
from brimful.commands.demo import VOCABULARY
from brimful.commands.demo_reviews import find_reviews, load_reviews, write_reviews
from brimful.commands.distil import distil

SHAPE: dict[str, Any] = {"layers": 4, "hidden_size": 256, "heads": 4, "intermediate_size": 1024}
LOGITS: dict[str, Any] = {"epochs": 3.0, "learning_rate": 1e-3}


def main() -> None:
    """Make the runs that are missing, print a table, write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=DATA, help="where fetched text is kept")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--work", type=Path, help="where runs are kept; by default DATA/without-encoder")
    parser.add_argument("--quick", action="store_true", help="few texts, one seed: does it run?")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    name = "without-encoder" + ("-quick" if options.quick else "")
    work = (options.work or options.data / name).resolve()
    tables = work / "reviews"
    if not (tables / "test.tsv").is_file():
        write_reviews(load_reviews(find_reviews(), 0, 120 if options.quick else None), tables)
    texts = (tables / "training.txt").read_text(encoding="utf-8").splitlines()
    corpus = prepare_texts(work / "corpus", texts, VOCABULARY, 0.0)
    facts = {"bench": "distil.without_encoder", "settings": {"shape": SHAPE, "logits": LOGITS}}
    record = Record(facts | machine_facts(), options.out)
    for seed in range(1 if options.quick else options.seeds):
        start = work / f"start-{seed}"
        if not start.is_dir():
            new_model(start, SHAPE | {"max_length": 128}, corpus, seed)
        made = run(
            distil,
            work / f"student-{seed}",
            teacher=("tfidf",),
            student=str(start),
            task="classification",
            train=str(tables / "train.tsv"),
            test=str(tables / "test.tsv"),
            unlabelled=(str(tables / "unlabelled.txt"),),
            max_length=128,
            seed=seed,
            logits=LOGITS | ({"epochs": 0.2} if options.quick else {}),
        )
        names = ("primary_metric", "student", "teacher", "comparisons", "parameters", "latency_ms")
        record.add({"seed": seed} | {name: made[name] for name in (*names, "seconds", "texts")})
    rows = [
        [name, "{:.4f} ± {:.4f}".format(*spread([row[name][row["primary_metric"]] for row in record.rows]))]
        for name in ("student", "teacher")
    ]
    print(table(["", "accuracy"], rows))
    print(json.dumps(record.rows[0]["comparisons"], indent=1))


if __name__ == "__main__":
    main()
