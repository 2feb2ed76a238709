"""Continued pretraining: does a general encoder that goes on with reviews make a better classifier of them?

A general encoder is pretrained on documentation: the English and Chinese HTML of debian-handbook, the
tutorial, how-tos and FAQ of python3.11-doc, and manpages-zh. It is continued on the demo's Chinese reviews,
with and without replay of general text. Against these stand the general encoder as it is, random weights, and
an encoder pretrained from scratch on the reviews with as many updates as the continued ones. All have the
general vocabulary (byte-level BPE: no character is unknown to it). All are fine-tuned on the same labels with
the same settings, whose learning rate is chosen once, on labelled reviews of the training side; labels and
text of the test side are seen by the final judging only.

The seeds are fine-tuning's: every encoder is pretrained once. Finished jobs are kept in --work.

    python -m bench.domain [--quick] [--work FOLDER] [--out FILE]
"""

import argparse
import json
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.common.corpora import DATA, Document, fetch, pages, records, write_document
from bench.common.processes import machine_facts
from bench.common.study import kept, table
from brimful.base.console import say
from brimful.base.storage import read_json, write_json
from brimful.commands.demo_reviews import find_reviews, load_reviews, write_reviews
from brimful.commands.finetune import finetune
from brimful.commands.prepare import prepare
from brimful.commands.pretrain import pretrain

HANDBOOKS = ("debian-handbook/html/en-US", "debian-handbook/html/zh-CN")
DOCUMENTATION = (*HANDBOOKS, *(f"python3.11/html/{part}" for part in ("faq", "howto", "tutorial")))
SPLIT_SEED, DEV_SHARE = 0, 0.2
ARMS: dict[str, tuple[bool, tuple[str, ...]]] = {
    "random weights": (False, ()),
    "from scratch": (False, ("reviews:1",)),
    "general": (True, ()),
    "continued": (True, ("reviews:1",)),
    "continued, replay": (True, ("reviews:9", "general:1")),
}
"""Whether an encoder starts from the general one, and the prepared data that it trains on."""
DIFFERENCES = (
    ("general", "random weights"),
    ("general", "from scratch"),
    ("continued", "general"),
    ("continued", "from scratch"),
    ("continued, replay", "continued"),
)
TRIED = ("general", "continued")
"""The encoders that choose the rate of fine-tuning."""
# The demo's settings; continued training has half the peak rates.
PRETRAIN: dict[str, Any] = {
    "rows_per_update": 2,
    "rows_per_micro_batch": 2,
    "masking": {"rate": 0.3},
    "schedule": {"warmup": 0.05},
    "verify_data": False,
}
FROM_RANDOM = {"name": "muon", "learning_rate": 2e-3, "muon_learning_rate": 0.02}
GOING_ON = {"name": "muon", "learning_rate": 1e-3, "muon_learning_rate": 0.01}
FINETUNE: dict[str, Any] = {
    "batch": 32,
    "dropout": 0.1,
    "max_length": 64,
    "ladder": "none",
    "dev": "none",
}
Result = dict[str, Any]


@dataclass(frozen=True)
class Scale:
    """The sizes of a bench."""

    model: str = "tiny"
    vocabulary: int = 8000
    general_updates: int = 2400
    updates: int = 200
    validation_tokens: int = 30_000
    epochs: float = 3.0
    learning_rates: tuple[float, ...] = (5e-4, 1.5e-3)
    seeds: tuple[int, ...] = (0, 1, 2)
    reviews: int | None = None


QUICK = Scale(
    vocabulary=500, general_updates=2, updates=2, validation_tokens=500, epochs=0.1, seeds=(0,), reviews=150
)


def documentation(data: Path, quick: bool) -> Iterator[Document]:
    """The general text; in a quick run Brimful's own pages, which need no network."""
    if quick:
        for path in sorted((Path(__file__).parents[1] / "docs").glob("*.md")):
            text = path.read_text(encoding="utf-8")
            yield Document(path.name, len(text.encode()), "documentation.jsonl", text)
        return
    fetch(data)
    yield from pages(data / "packages", DOCUMENTATION)
    yield from (record for record in records(data / "packages") if record.file == "manpages.jsonl")


def read_right_answers(path: Path) -> np.ndarray:
    """bool (rows,): which rows of a run's predictions.jsonl are right."""
    values = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return np.array([value["gold"] == value["prediction"] for value in values])


def paired_difference(first: np.ndarray, second: np.ndarray) -> Result:
    """Mean of first - second, and its standard errors.

    Args:
        first, second: bool (seeds, test rows), whether an answer is right; the same seeds and rows.

    Returns:
        `test_error`: with other test rows and the same models. `seed_error`: with other seeds and the same
        test rows; None for a single seed. `error`: the root of the sum of their squares, which counts what is
        of one seed and one row twice, and so is rather too large.
    """
    difference = first.astype(np.float64) - second
    seeds, rows = difference.shape
    by_seed = difference.mean(axis=1)
    test_error = float(difference.mean(axis=0).std(ddof=1)) / math.sqrt(rows)
    seed_error = float(by_seed.std(ddof=1)) / math.sqrt(seeds) if seeds > 1 else None
    errors = {"test_error": test_error, "seed_error": seed_error, "by_seed": by_seed.tolist()}
    both = math.hypot(test_error, seed_error or 0.0)
    return {"difference": float(difference.mean()), "error": both, **errors}


class Bench:
    """The jobs in order. A job writes its result to results/JOB.json and its files to the folder JOB."""

    def __init__(self, work: Path, data: Path, scale: Scale) -> None:
        self.work, self.data, self.scale = work, data, scale

    def result(self, job: str) -> Result:
        """What a job returned."""
        return read_json(self.work / "results" / f"{job}.json")

    def job(self, name: str, call: Callable[..., Result], *values: Any) -> Result:
        """The result of a job that is done, or that is run from its start now."""

        def begin() -> Result:
            say(f"--- {name}")
            shutil.rmtree(self.work / name, ignore_errors=True)
            return call(name, *values)

        return kept(self.work / "results" / f"{name}.json", begin)

    def run(self) -> None:
        """Run the jobs that are not done; each needs those before it."""
        sizes, scale = self.work / "scale.json", self.scale
        if sizes.exists() and read_json(sizes)["of"] != repr(scale):
            raise SystemExit(
                f"bench: {self.work} has runs of other sizes; delete it or choose another --work"
            )
        write_json(sizes, {"of": repr(scale)})
        self.job("text", self.write_text)
        half = 0.5 if scale == QUICK else 0.01  # a quick run has a few pages only
        general = {"tokenizer": f"train:{scale.vocabulary}", "lowercase": True, "model": "bpe"}
        self.job("data/general", self.prepare, "general", general | {"validation_share": half})
        reviews = {"read": {"split": "line"}, "tokenizer": f"{self.work}/data/general"}
        self.job("data/reviews", self.prepare, "training.txt", reviews | {"validation_share": 0.05})
        self.job("general", self.pretrain, ("general:1",), scale.general_updates)
        self.job("losses-general", self.losses, "general")
        for arm, (continued, data) in ARMS.items():
            if data:
                self.job(arm, self.pretrain, data, scale.updates, "general" if continued else None)
                self.job(f"losses-{arm}", self.losses, arm)
        for encoder in TRIED:
            self.job(f"rates-{encoder}", self.try_rates, encoder)
        for seed in scale.seeds:
            for arm in ARMS:
                self.job(f"classifier-{arm}-{seed}", self.classify, arm, seed)

    def write_text(self, job: str) -> Result:
        """general/, training.txt, train.tsv and test.tsv, choice/ (train.tsv split in two)."""
        folder = self.work / job
        (folder / "general").mkdir(parents=True)
        documents = 0
        for document in documentation(self.data, self.scale == QUICK):
            write_document(document, folder / "general")
            documents += 1
        reviews = load_reviews(find_reviews(), SPLIT_SEED, self.scale.reviews)
        write_reviews(reviews, folder)
        at = round(DEV_SHARE * len(reviews.labelled))
        choice = replace(reviews, labelled=reviews.labelled[at:], test=reviews.labelled[:at])
        write_reviews(choice, folder / "choice")
        return reviews.facts | {"general_documents": documents}

    def prepare(self, job: str, source: str, values: dict[str, Any]) -> Result:
        """Text -> shards."""
        path = str(self.work / "text" / source)
        return prepare(paths=[path], out=str(self.work / job), workers=1, **values)

    def pretrain(self, job: str, data: tuple[str, ...], updates: int, start: str | None = None) -> Result:
        """Shards -> encoder, going on from the run `start`, or from random weights."""
        values: dict[str, Any] = {"model": self.scale.model, "optimizer": FROM_RANDOM}
        if start:
            values = {"start_from": str(self.work / start), "optimizer": GOING_ON}
        return pretrain(
            data=tuple(f"{self.work}/data/{source}" for source in data),
            out=str(self.work / job),
            validation_tokens=self.scale.validation_tokens,
            trainer={"steps": updates, "checkpoint_every": 0},
            **PRETRAIN,
            **values,
        )

    def losses(self, job: str, encoder: str) -> Result:
        """Validation losses with masks that are the same for all encoders: those before a first update."""
        return self.pretrain(job, ("reviews:1", "general:1"), 1, encoder)["validation_at_start"]

    def try_rates(self, job: str, encoder: str) -> Result:
        """Accuracies on held-out labelled reviews by learning rate."""
        tables, found = self.work / "text" / "choice", {}
        for rate in self.scale.learning_rates:
            out = self.work / job / f"{rate:g}"
            done = self.finetune(encoder, tables, out, self.scale.seeds[0], rate)
            found[f"{rate:g}"] = done["test"]["accuracy"]
        return found

    @property
    def learning_rate(self) -> float:
        """The rate of all fine-tuning: best on held-out reviews for the general and a continued encoder."""
        tried = [self.result(f"rates-{encoder}") for encoder in TRIED]
        return max(self.scale.learning_rates, key=lambda rate: sum(each[f"{rate:g}"] for each in tried))

    def classify(self, job: str, arm: str, seed: int) -> Result:
        """Fine-tune an arm's encoder on all labelled reviews; judge it on the test reviews."""
        random = {"initialisation": "random"} if arm == "random weights" else {}
        encoder = "general" if random else arm
        tables, out = self.work / "text", self.work / job
        return self.finetune(encoder, tables, out, seed, self.learning_rate, **random)

    def finetune(self, encoder: str, tables: Path, out: Path, seed: int, rate: float, **more: Any) -> Result:
        """An encoder -> a classifier."""
        files = {name: str(tables / f"{name}.tsv") for name in ("train", "test")}
        given = {"encoder": str(self.work / encoder), "out": str(out), "seed": [seed], **files, **FINETUNE}
        return finetune(learning_rates=[rate], epochs=self.scale.epochs, **given, **more)

    def gather(self) -> Result:
        """The record of a finished bench."""
        right, arms = {}, {}
        for arm in ARMS:
            folders = [self.work / f"classifier-{arm}-{seed}" for seed in self.scale.seeds]
            right[arm] = np.stack([read_right_answers(folder / "predictions.jsonl") for folder in folders])
            runs = right[arm].mean(axis=1)
            row = {"accuracy": runs.mean(), "accuracy_runs": runs.tolist()}
            row["accuracy_sd"] = runs.std(ddof=1) if len(runs) > 1 else None
            if arm != "random weights":
                run = self.result(arm)
                row["losses"] = self.result(f"losses-{arm}")
                row["pretraining"] = {key: run[key] for key in ("steps", "tokens", "seconds", "validation")}
            arms[arm] = row
        pairs = {f"{a} - {b}": paired_difference(right[a], right[b]) for a, b in DIFFERENCES}
        accuracies = {name: self.result(f"rates-{name}") for name in TRIED}
        facts = {"text": self.result("text"), "parameters": self.result("general")["parameters"]}
        facts |= {"precision": self.result("general")["precision"], "held_out_accuracy": accuracies}
        facts |= {"test": right["general"].shape[1], "learning_rate": self.learning_rate}
        return facts | {"arms": arms, "differences": pairs}


def show(record: Result) -> None:
    """Print two tables."""
    rows = []
    for arm, row in record["arms"].items():
        spread = "" if row["accuracy_sd"] is None else f" ± {100 * row['accuracy_sd']:.1f}"
        runs = ", ".join(f"{100 * run:.1f}" for run in row["accuracy_runs"])
        losses = [
            f"{row['losses'][f'loss.{source}']:.2f}" if "losses" in row else ""
            for source in ("reviews", "general")
        ]
        rows.append([arm, f"{100 * row['accuracy']:.1f}{spread}", runs, *losses])
    print(table(["encoder", "accuracy", "by seed", "loss, reviews", "loss, general"], rows))
    rows = []
    for name, row in record["differences"].items():
        of_seeds = "" if row["seed_error"] is None else f"{100 * row['seed_error']:.1f}"
        errors = (f"{100 * row['error']:.1f}", f"{100 * row['test_error']:.1f}", of_seeds)
        rows.append([name, f"{100 * row['difference']:+.1f}", *errors])
    print("\n" + table(["difference", "points", "error", "of test reviews", "of seeds"], rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=DATA, help="where fetched text is kept")
    parser.add_argument("--work", type=Path, help="where runs are kept; by default DATA/domain")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="toy sizes: does it run?")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    data = options.data.resolve()
    work = (options.work or data / ("domain-quick" if options.quick else "domain")).resolve()
    bench = Bench(work, data, QUICK if options.quick else Scale())
    bench.run()
    facts = {"torch": torch.__version__, "threads": options.threads, "scale": asdict(bench.scale)}
    record = machine_facts() | facts | bench.gather()
    show(record)
    if options.out:
        write_json(options.out, record)


if __name__ == "__main__":
    main()
