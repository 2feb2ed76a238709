"""The stages of the demo, each through the verb that a user would call, with the settings of its recipe."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from brimful.base.console import say
from brimful.base.numbers import duration, percent, short
from brimful.base.seals import EXPORT
from brimful.base.storage import read_json, write_json
from brimful.base.summary import Summary, judge_models, make_facts_table, with_overview
from brimful.base.system import peak_memory
from brimful.base.terminal import console
from brimful.commands.demo_reviews import Reviews
from brimful.commands.distil import distil
from brimful.commands.export import export
from brimful.commands.finetune import finetune
from brimful.commands.prepare import prepare
from brimful.commands.pretrain import pretrain
from brimful.model.shape import SHAPES
from brimful.objectives.layer_losses import spread_layers
from brimful.reports.load import load_runs
from brimful.reports.page import group_models
from brimful.runs.directory import run_once
from brimful.runs.signals import StoppedError

SECONDS, REPORT = "seconds.json", "report.html"
"""Files of a demo: the seconds of each stage, also those before an interruption, and the page."""
ALL_TEXTS = 13_900
"""Texts that the 800 updates of pretraining are for; fewer texts take as many fewer updates."""
PRETRAIN_UPDATES, CHECKPOINT_EVERY_UPDATES = 800, 100

# The recipe: small enough for two cores and a quarter of an hour with AVX-512, half an hour without.
PREPARE: dict[str, Any] = {
    "tokenizer": "train:8000",
    "lowercase": True,
    "han": "pieces",
    "read": {"split": "line"},
}
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
MODELS = ("finetune", "finetune-random", "distil", "student-undistilled")
"""The runs with a model that is measured on the test reviews."""
SERVED = ("finetune", "distil")
"""The runs whose models are exported."""


def run_stages(out: Path, reviews: Reviews, seed: int, *, is_short: bool) -> dict[str, Any]:
    """Run all stages; returns the content of summary.json.

    Each leaves a folder of its own: a complete one is not made again, and an interrupted training continues
    from its checkpoint.

    Args:
        is_short: whether pretraining takes as many fewer updates as there are fewer reviews.

    Raises:
        StoppedError: a signal asked to stop; it says how to continue.
    """
    facts = reviews.facts
    say(
        f"{facts['reviews']:,} reviews, {facts['unique']:,} of them unique; {facts['conflicting']} carry both"
        f" labels and are only text. Test: {facts['test']:,}, never seen in training, nor their"
        f" near-duplicates. Training: {facts['labelled']:,} with labels, the rest as plain text. With all"
        " reviews the demo takes 8 to 35 minutes on two cores; the same command continues it"
    )
    try:
        return _run_stages(out, reviews, seed, is_short)
    except StoppedError as stopped:
        raise stopped.resumed_by("the same command") from stopped
    except KeyboardInterrupt as stopped:
        stopped.add_note("continue with the same command")
        raise


def _run_stages(out: Path, reviews: Reviews, seed: int, is_short: bool) -> dict[str, Any]:
    seconds = read_json(out / SECONDS) if (out / SECONDS).exists() else {}
    stage = partial(time_stage, out / SECONDS, seconds)
    texts, unlabelled = str(out / "reviews" / "training.txt"), str(out / "reviews" / "unlabelled.txt")
    labelled, test = str(out / "reviews" / "train.tsv"), str(out / "reviews" / "test.tsv")

    def classify(name: str, values: dict[str, Any], ladder: str = "none") -> None:
        places = {"encoder": str(out / "pretrain"), "train": labelled, "test": test}
        run_once(finetune, out / name, **places, seed=[seed], ladder=ladder, **values)

    with stage("prepare", "1 prepare: raw reviews -> shards"):
        prepare(paths=[texts], out=str(out / "data"), **PREPARE)
    with stage("pretrain", "2 pretrain: shards -> encoder"):
        updates = PRETRAIN_UPDATES
        if is_short:
            updates = math.ceil(PRETRAIN_UPDATES * reviews.facts["pretraining"] / ALL_TEXTS)
        trainer = {"steps": updates, "checkpoint_every": CHECKPOINT_EVERY_UPDATES}
        values = PRETRAIN | {"seed": seed, "trainer": trainer}
        pretrained = run_once(pretrain, out / "pretrain", data=str(out / "data"), **values)
    with stage("finetune", f"3 fine-tune on {reviews.facts['labelled']:,} labels"):
        classify("finetune", FINETUNE, ladder="quick")
        classify("finetune-random", FINETUNE | FROM_RANDOM)
    with stage("distil", "4 distil: 4 layers -> 2"):
        places = {"teacher": str(out / "finetune"), "unlabelled": [unlabelled]}
        run_once(distil, out / "distil", **places, seed=seed, **DISTIL)
        layers = spread_layers(SHAPES[PRETRAIN["model"]][0], DISTIL["student_layers"])
        classify("student-undistilled", FINETUNE | {"layers": layers})
    with stage("export", "export: Hugging Face folders and ONNX"):
        differences = export_all(out, SERVED)
    result = {
        "kind": "demo",
        "data": reviews.facts,
        "packing": pretrained["packing"],
        "pretrain": {
            "tokens_per_second": pretrained["tokens_per_second"],
            "validation_loss": pretrained["validation"].get("loss"),
            "tokens": pretrained["tokens"],
        },
        "export": {"max_abs_logit_difference": differences},
        "peak_memory_mb": max(peak_memory("self"), peak_memory("children")) >> 20,
        "versions": {name: version(name) for name in ("torch", "transformers", "onnxruntime")},
        "threads": torch.get_num_threads(),
        "report": str(out / REPORT),
        "seconds": {**seconds, "total": sum(seconds.values())},
    }
    summary = summarise_demo(out, result)
    accuracy = {model.name: model.value for model in summary.models}
    return with_overview(result | {"accuracy": accuracy}, summary)


@contextmanager
def time_stage(file: Path, seconds: dict[str, float], name: str, title: str) -> Iterator[None]:
    """Announce a stage, and add its time to `seconds` and to the file that keeps them over interruptions."""
    console.rule(title, align="left")
    started = time.perf_counter()
    try:
        yield
    finally:
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - started
        write_json(file, seconds)


def export_all(out: Path, runs: Sequence[str]) -> dict[str, float]:
    """Export the models of these runs; returns the largest difference of a logit by format."""
    differences = {"hf": 0.0, "onnx": 0.0}
    for run in runs:
        for form in differences:
            place = out / "export" / f"{run}-{form}"
            if not (place / EXPORT).exists():
                export(run=str(out / run), out=str(place), format=form)
            difference = read_json(place / EXPORT)["max_abs_logit_difference"]
            differences[form] = max(differences[form], difference)
    return differences


def summarise_demo(out: Path, facts: dict[str, Any]) -> Summary:
    """The models of all runs side by side on the test reviews, packing, and the time that all took."""
    ((test, models),) = group_models(load_runs([out / name for name in MODELS])).items()
    packing = facts["packing"]
    result = {
        "Token slots with real tokens": percent(packing["efficiency"]),
        f"If padded to {packing['max_length']}": percent(packing["padded_efficiency"]),
        "Real tokens a second in pretraining": short(facts["pretrain"]["tokens_per_second"]),
        "From raw text to report": duration(facts["seconds"]["total"]),
        "Full report": facts["report"],
    }
    tables = make_facts_table("Result", result)
    return Summary("Demo", judge_models(test, models), tables, test=test, models=models)
