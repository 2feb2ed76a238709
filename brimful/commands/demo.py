"""The main job, end to end, on real text: an encoder of Chinese product reviews, and the verb `brimful demo`.

The setting is a user's own: 2,000 labelled reviews, and all other training reviews as unlabelled text. Test
reviews are seen by no stage before the end, pretraining included.
"""

import importlib.util
import os
import resource
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from rich.table import Table as RichTable

from brimful.commands.demo_measure import onnx_latency, right_answers, tfidf_baseline
from brimful.commands.demo_reviews import Reviews, find_reviews, load_reviews, write_reviews
from brimful.commands.distil import distil, spread_layers
from brimful.commands.export import export
from brimful.commands.finetune import finetune
from brimful.commands.predict import predict
from brimful.commands.prepare import prepare
from brimful.commands.pretrain import pretrain
from brimful.commands.report import report
from brimful.config import build, read_yaml, require_seeds, verb
from brimful.console import console, output_console, say
from brimful.errors import BrimfulError
from brimful.nn.encoder import SHAPES
from brimful.runs.directory import CONFIG, SUMMARY, finish_run, start_run
from brimful.storage import read_json, require_folder_place, temporary_path
from brimful.tasks.metrics import paired_bootstrap

STAGES = ("prepare", "pretrain", "finetune", "distil", "export")
VOCABULARY = 8000

# The recipe: small enough for two cores and a quarter of an hour.
PRETRAIN: dict[str, Any] = {
    "model": "mini",
    "rows_per_update": 2,
    "rows_per_micro_batch": 2,
    "packing": {"max_length": 128, "capacity": 1024},
    "masking": {"rate": 0.3},
    "optimizer": {"name": "muon", "learning_rate": 2e-3},
    "schedule": {"warmup": 0.05},
}
FINETUNE: dict[str, Any] = {
    "learning_rates": [3e-4, 6e-4],
    "epochs": 3.0,
    "trial_epochs": 1.5,
    "batch": 32,
    "dropout": 0.1,
}
FROM_RANDOM: dict[str, Any] = {"initialisation": "random", "learning_rates": [7e-4, 1.5e-3]}
DISTIL: dict[str, Any] = {
    "student_layers": 2,
    "layers": {"epochs": 0.5, "learning_rate": 5e-4},
    "logits": {"epochs": 1.0, "learning_rate": 5e-4},
}


@dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """Build a Chinese review classifier from raw text, and compare it."""

    out: str = "runs/demo"
    """Directory to create; an earlier demo there is replaced."""
    seed: int = 0
    """Decides the split of the reviews and every training."""
    max_reviews: int | None = None
    """Use only so many reviews of each label: a quick look that says nothing of quality."""
    pretrain_steps: int = 1150
    """Updates of the pretraining."""
    dry_run: bool = False
    """Resolve and check everything, and do nothing."""

    def __post_init__(self) -> None:
        require_seeds(self.seed)
        if self.pretrain_steps < 1:
            raise BrimfulError(f"pretrain_steps is {self.pretrain_steps}: it must be at least 1")
        if self.max_reviews is not None and self.max_reviews < 100:
            raise BrimfulError(f"max_reviews is {self.max_reviews}: it must be at least 100")


class Demo:
    """The stages in order, each through the verb a user would call."""

    def __init__(self, config: DemoConfig, out: Path, reviews: Reviews) -> None:
        self.config = config
        self.out = out
        self.reviews = reviews
        self.seconds = dict.fromkeys(STAGES, 0.0)

    @contextmanager
    def stage(self, name: str, what: str) -> Iterator[None]:
        """Announce a stage and count its seconds."""
        console.rule(f"{what}", align="left")
        started = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - started

    def folder(self, name: str) -> str:
        """A run directory of the demo."""
        return str(self.out / name)

    def run(self) -> dict[str, Any]:
        """Run all stages; returns the summary."""
        started = time.perf_counter()
        pretrained = self.pretrain()
        self.finetune()
        self.distil()
        differences = self.export()
        console.rule("6 report", align="left")
        return self.summarise(pretrained, differences, started)

    def pretrain(self) -> dict[str, Any]:
        """Raw text -> shards -> encoder."""
        seed, steps = self.config.seed, self.config.pretrain_steps
        with self.stage("prepare", "1 prepare: raw reviews -> shards"):
            prepare(
                paths=[self.folder("reviews/training.txt")],
                out=self.folder("data"),
                tokenizer=f"train:{VOCABULARY}",
                han="pieces",
                read={"split": "line"},
            )
        with self.stage("pretrain", "2 pretrain: shards -> encoder"):
            values = PRETRAIN | {"seed": seed, "trainer": {"steps": steps, "checkpoint_every": 0}}
            return pretrain(data=self.folder("data"), out=self.folder("pretrain"), **values)

    def finetune(self) -> None:
        """Encoder -> classifier, and the same from random weights."""
        with self.stage("finetune", f"3 fine-tune on {self.reviews.facts['labelled']:,} labels"):
            self._finetune("finetune", FINETUNE)
            self._finetune("finetune-random", FINETUNE | FROM_RANDOM)

    def _finetune(self, name: str, values: dict[str, Any]) -> None:
        finetune(
            encoder=self.folder("pretrain"),
            train=self.folder("reviews/train.tsv"),
            test=self.folder("reviews/test.tsv"),
            out=self.folder(name),
            seed=[self.config.seed],
            **values,
        )

    def distil(self) -> None:
        """Classifier -> student, and the same student from the labels alone."""
        with self.stage("distil", "4 distil: 4 layers -> 2"):
            distil(
                teacher=self.folder("finetune"),
                out=self.folder("distil"),
                unlabelled=[self.folder("reviews/unlabelled.txt")],
                seed=self.config.seed,
                **DISTIL,
            )
            layers = spread_layers(range(SHAPES[PRETRAIN["model"]][0]), DISTIL["student_layers"])
            self._finetune("student-undistilled", FINETUNE | {"layers": layers})

    def export(self) -> dict[str, float]:
        """Largest difference of a logit over both models, by format."""
        differences = {"hf": 0.0, "onnx": 0.0}
        with self.stage("export", "5 export: Hugging Face folders and ONNX"):
            for run in ("finetune", "distil"):
                for kind in differences:
                    result = export(
                        run=self.folder(run), out=self.folder(f"export/{run}-{kind}"), format=kind
                    )
                    differences[kind] = max(differences[kind], result["max_abs_logit_difference"])
        return differences

    def summarise(
        self, pretrained: dict[str, Any], differences: dict[str, float], started: float
    ) -> dict[str, Any]:
        """Judge all models on the same test reviews, and gather what the stages reported."""
        tfidf_right, tfidf = tfidf_baseline(self.reviews)
        runs = {
            "pretrained": "finetune",
            "random_init": "finetune-random",
            "student": "distil",
            "student_undistilled": "student-undistilled",
        }
        right = {name: right_answers(self.out / run) for name, run in runs.items()} | {"tfidf": tfidf_right}
        texts = [text for text, _ in self.reviews.test[:200]]
        models = {"tfidf": tfidf}
        for name, run in (("teacher", "finetune"), ("student", "distil")):
            record = read_json(self.out / "export" / f"{run}-onnx" / "export.json")
            summary = read_json(self.out / run / SUMMARY)
            models[name] = {
                "parameters": summary["parameters"]
                if name == "teacher"
                else summary["student"]["parameters"],
                "size_mb": record["files"]["model.onnx"]["bytes"] / 1e6,
                "latency_ms": onnx_latency(self.out / "export" / f"{run}-onnx", texts),
                "tokens_per_second": predict(
                    model=self.folder(run),
                    input=self.folder("reviews/test.tsv"),
                    output=self.folder(f"{name}-predictions.jsonl"),
                )["tokens_per_second"],
            }
        pairs = {
            "pretrained_minus_random_init": ("pretrained", "random_init"),
            "pretrained_minus_tfidf": ("pretrained", "tfidf"),
            "student_minus_student_undistilled": ("student", "student_undistilled"),
            "student_minus_pretrained": ("student", "pretrained"),
        }
        comparisons = {}
        for name, (first, second) in pairs.items():
            difference, error = paired_bootstrap(right[first], right[second])
            comparisons[name] = {"difference": difference, "standard_error": error}
        n = len(self.reviews.test)
        accuracy = {name: float(values.mean()) for name, values in right.items()}
        return {
            "kind": "demo",
            "accuracy": accuracy,
            "accuracy_standard_error": {name: (a * (1 - a) / n) ** 0.5 for name, a in accuracy.items()},
            "comparisons": comparisons,
            "test": {"n": n},
            "data": self.reviews.facts,
            "packing": pretrained["packing"],
            "pretrain": {
                "tokens_per_second": pretrained["tokens_per_second"],
                "validation_loss": pretrained["validation"].get("loss"),
                "tokens": pretrained["tokens"],
            },
            "models": models,
            "export": {"max_abs_logit_difference": differences},
            "seconds": self.seconds | {"total": time.perf_counter() - started},
            "peak_memory_mb": max(
                resource.getrusage(who).ru_maxrss / 1024
                for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
            ),
            "versions": {name: version(name) for name in ("torch", "transformers", "onnxruntime")},
            "threads": torch.get_num_threads(),
            "report": str(self.out / "report.html"),
        }


def show_result(summary: dict[str, Any]) -> None:
    """The table at the end, for a person."""
    if summary.get("dry_run"):
        return
    console = output_console()
    accuracy, models = summary["accuracy"], summary["models"]
    table = RichTable(title=f"{summary['test']['n']:,} test reviews, {summary['data']['labelled']:,} labels")
    for column in ("model", "accuracy", "params", "size", "latency", "tokens/s"):
        table.add_column(column, justify="left" if column == "model" else "right")
    rows = [
        ("TF-IDF + logistic", "tfidf", "tfidf"),
        ("random weights", "random_init", "teacher"),
        ("pretrained", "pretrained", "teacher"),
        ("student, distilled", "student", "student"),
        ("student, alone", "student_undistilled", "student"),
    ]
    for label, name, kind in rows:
        model = models[kind]
        speed = f"{model['tokens_per_second']:,.0f}" if "tokens_per_second" in model else ""
        table.add_row(
            label,
            f"{accuracy[name]:.3f} ± {summary['accuracy_standard_error'][name]:.3f}",
            f"{model['parameters'] / 1e6:.2f} M",
            f"{model['size_mb']:.1f} MB",
            f"{model['latency_ms']:.2f} ms",
            speed,
        )
    console.print(table)
    packing, seconds = summary["packing"], summary["seconds"]
    console.print(
        f"Real tokens in a row: {packing['efficiency']:.1%} packed, {packing['padded_efficiency']:.1%} if"
        f" padded to {packing['max_length']}. Pretraining:"
        f" {summary['pretrain']['tokens_per_second']:,.0f} real tokens/s."
    )
    for name, value in summary["comparisons"].items():
        first, second = (part.replace("_", " ") for part in name.split("_minus_"))
        sign = "above" if value["difference"] > 0 else "below"
        console.print(
            f"{first} is {abs(value['difference']):.3f} {sign} {second}"
            f" (paired bootstrap standard error {value['standard_error']:.3f})"
        )
    console.print("Seconds: " + ", ".join(f"{name} {seconds[name]:.0f}" for name in (*STAGES, "total")))
    console.print(f"Full report: {summary['report']}")


def _holds_demo(out: Path) -> bool:
    try:
        build(DemoConfig, read_yaml(out / CONFIG))
    except BrimfulError:
        return False
    return True


def _remove(out: Path) -> None:
    """Remove an earlier demo, out of sight first, so that a kill leaves none that is half there."""
    if out.exists():
        say(f"replacing the earlier demo in {out}")
        aside = temporary_path(out)
        os.replace(out, aside)
        shutil.rmtree(aside)


@verb(DemoConfig, show=show_result)
def demo(config: DemoConfig) -> dict[str, Any]:
    """Build a Chinese review classifier from raw text: prepare, pretrain, fine-tune, distil, export, report.

    Returns:
        what summary.json holds: `accuracy.*`, `packing.*`, `export.*`, `seconds.*` ...

    Raises:
        BrimfulError: a package of the demo is missing, or --out holds something else.
    """
    for package in ("sklearn", "transformers"):
        if importlib.util.find_spec(package) is None:
            raise BrimfulError(f"the demo needs {package}: pip install 'brimful[demo]'")
    out = Path(config.out)
    require_folder_place(out, replaces=("an earlier demo", _holds_demo))
    reviews = load_reviews(find_reviews(), config.seed, config.max_reviews)
    facts = reviews.facts
    say(
        f"{facts['reviews']:,} reviews, {facts['unique']:,} of them unique. Repeats are dropped before the"
        f" split, so that no test review is also a training review ({facts['near_repeats']} near-repeats of"
        f" training texts leave the test side too); {facts['conflicting']} carry both labels and are used as"
        f" text only. Test: {facts['test']:,}, never seen in pretraining. Training:"
        f" {facts['labelled']:,} with labels, {facts['pretraining'] - facts['labelled']:,} as plain text."
    )
    if config.dry_run:
        return {"dry_run": True, "data": facts}
    _remove(out)
    start_run(out, config)
    write_reviews(reviews, out / "reviews")
    summary = Demo(config, out, reviews).run()
    finish_run(out, summary)
    report(runs=[str(out)], out=summary["report"])
    return summary
