"""The stages of the demo: lines of `brimful` as a user would type them, with the settings of its recipe.

Each line is a process of its own and leaves a folder of its own. A complete folder is not made again, and an
interrupted training continues from its checkpoint.
"""

import math
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from brimful.base.console import say
from brimful.base.errors import BrimfulError
from brimful.base.folder_lock import FolderLock
from brimful.base.numbers import duration, percent, short
from brimful.base.resources import usable_cores
from brimful.base.seals import EXPORT
from brimful.base.storage import read_json, read_object, write_json
from brimful.base.summary import Summary, judge_models, make_facts_table, with_overview
from brimful.base.system import peak_memory
from brimful.base.terminal import console
from brimful.reports.load import CONFIG, SUMMARY, load_runs
from brimful.reports.page import group_models
from brimful.runs.signals import StoppedError, StopRequest, stop_request

SECONDS, REPORT = "seconds.json", "report.html"
"""Files of a demo: the seconds of each stage, also those before an interruption, and the page."""
ALL_TEXTS = 13_900
"""Texts that the 800 updates of pretraining are for; fewer texts take as many fewer updates."""
PRETRAIN_UPDATES = 800

# The recipe: small enough for two cores and a quarter of an hour with AVX-512, half an hour without.
TABLES = "--train {out}/reviews/train.tsv --test {out}/reviews/test.tsv --seed {seed}"
FINETUNE = f"finetune {TABLES} --epochs 3 --trial-epochs 1.5 --batch 32 --dropout 0.1"
# TinyBERT's two stages, as they were measured (bench/results/demo.json).
DISTIL = "distil --unlabelled {out}/reviews/unlabelled.txt --baseline none --seed {seed}"
TWO_STAGES = "--layers.epochs 0.5 --layers.learning-rate 5e-4 --logits.epochs 1 --logits.learning-rate 5e-4"


class DemoStage(NamedTuple):
    """A stage: the key of its seconds, its title, and its lines."""

    name: str
    title: str
    lines: Sequence[str]


STAGES = (
    DemoStage(
        "prepare",
        "prepare: raw reviews -> shards",
        (
            "prepare {out}/reviews/training.txt --out {out}/data --tokenizer train:8000 --lowercase"
            " --han pieces --read.split line",
        ),
    ),
    DemoStage(
        "pretrain",
        "pretrain: shards -> encoder",
        (
            "pretrain --data {out}/data --out {out}/pretrain --model mini --recipe fast --rows-per-update 4"
            " --packing.max-length 128 --packing.capacity 1024 --trainer.steps {updates}"
            " --trainer.checkpoint-every 100 --seed {seed}",
        ),
    ),
    DemoStage(
        "finetune",
        "fine-tune on 2,000 labels, pretrained and from random weights",
        (
            FINETUNE + " --encoder {out}/pretrain --out {out}/finetune --learning-rates 3e-4 6e-4",
            FINETUNE + " --encoder {out}/pretrain --out {out}/finetune-random --initialisation random"
            " --learning-rates 7e-4 1.5e-3 --ladder none",
        ),
    ),
    DemoStage(
        "distil",
        "distil: 4 layers -> 2; and the same 2 layers from the labels",
        (
            DISTIL + " --teacher {out}/finetune --out {out}/distil --student-layers 2"
            f" --initialisation pretrained {TWO_STAGES}",
            FINETUNE + " --encoder {out}/pretrain --out {out}/student-undistilled --layers 1 3"
            " --learning-rates 3e-4 6e-4 --ladder none",
        ),
    ),
    DemoStage(
        "export",
        "export: Hugging Face folders and ONNX",
        (
            "export {out}/finetune --out {out}/export/finetune-hf",
            "export {out}/finetune --out {out}/export/finetune-onnx --format onnx",
            "export {out}/distil --out {out}/export/distil-hf",
            "export {out}/distil --out {out}/export/distil-onnx --format onnx",
        ),
    ),
)
MODELS = ("finetune", "finetune-random", "distil", "student-undistilled")
"""The runs with a model that is measured on the test reviews."""


def run_stages(out: Path, facts: Mapping[str, int], seed: int, *, is_short: bool) -> dict[str, float]:
    """Run all stages; returns the seconds of each.

    Args:
        facts: of the reviews.
        is_short: whether pretraining takes as many fewer updates as there are fewer reviews.

    Raises:
        BrimfulError: a line failed; its process has said why.
        StoppedError: a signal asked to stop.
    """
    say(
        f"{facts['reviews']:,} reviews, {facts['unique']:,} of them unique; {facts['conflicting']} carry both"
        f" labels and are only text. Test: {facts['test']:,}, never seen in training, nor their"
        f" near-duplicates. Training: {facts['labelled']:,} with labels, the rest as plain text. With all"
        " reviews the demo takes 8 to 35 minutes on two cores; the same command continues it"
    )
    updates = PRETRAIN_UPDATES
    if is_short:
        updates = math.ceil(PRETRAIN_UPDATES * facts["pretraining"] / ALL_TEXTS)
    values = {"out": out, "seed": seed, "updates": updates}
    seconds: dict[str, float] = read_json(out / SECONDS) if (out / SECONDS).exists() else {}
    with stop_request() as request:
        for number, stage in enumerate(STAGES, 1):
            console.rule(f"{number} {stage.title}", align="left")
            started = time.perf_counter()
            try:
                for line in stage.lines:
                    # The values are filled in after the line is split, since a path may have spaces.
                    run_line([word.format(**values) for word in shlex.split(line)], request)
            finally:
                seconds[stage.name] = seconds.get(stage.name, 0.0) + time.perf_counter() - started
                write_json(out / SECONDS, seconds)
    return seconds


def run_line(words: Sequence[str], request: StopRequest) -> None:
    """Run a line of `brimful`, unless its folder is complete; an interrupted training goes on.

    Args:
        words: the verb and its options, `--out` among them.
        request: signals, which the line's process gets too.

    Raises:
        BrimfulError: the line failed.
        StoppedError: a signal stopped it.
    """
    verb, out = words[0], Path(words[words.index("--out") + 1])
    if (out / SUMMARY).exists() or (out / EXPORT).exists():
        say(f"{out.name}: already finished")
        return
    if verb != "prepare":  # the same line continues a preparation
        if (out / CONFIG).exists():
            words = [verb, "--resume", str(out)]
        else:
            remove_remains(out)
    say(f"brimful {shlex.join(words)}")
    # What the line prints goes to standard error (2): with --json, standard output is the demo's result only.
    with subprocess.Popen([sys.executable, "-m", "brimful", *words], stdout=2) as process:
        is_forwarded = False
        while process.poll() is None:
            time.sleep(0.1)
            # A terminal sends Ctrl-C to the line's process too; `kill` sends its signal to the demo only.
            if request.number not in (0, signal.SIGINT) and not is_forwarded:
                process.send_signal(request.number)
                is_forwarded = True
    if request.number:
        raise StoppedError(request.number, f"in `brimful {verb}`", "continue with the same command")
    if process.returncode:
        raise BrimfulError(f"the demo ends here, since this line failed: brimful {shlex.join(words)}")


def remove_remains(out: Path) -> None:
    """Remove what is left of a line that had not begun to train.

    Raises:
        BrimfulError: a process still works there, such as a line of a demo that was killed.
    """
    if out.exists():
        with FolderLock() as lock:
            lock.take(out)
            shutil.rmtree(out)


def collect_results(out: Path, data: Mapping[str, int], seconds: Mapping[str, float]) -> dict[str, Any]:
    """The content of summary.json, from the records of the demo's runs."""
    pretrained = read_object(out / "pretrain" / SUMMARY)
    differences = {kind: find_largest_difference(out / "export", kind) for kind in ("hf", "onnx")}
    facts = {
        "kind": "demo",
        "data": data,
        "packing": pretrained["packing"],
        "pretrain": {
            "tokens_per_second": pretrained["tokens_per_second"],
            "validation_loss": pretrained["validation"].get("loss"),
            "tokens": pretrained["tokens"],
        },
        "export": {"max_abs_logit_difference": differences},
        "peak_memory_mb": peak_memory("children") >> 20,
        "versions": {name: version(name) for name in ("torch", "transformers", "onnxruntime")},
        "cores": usable_cores(),
        "report": str(out / REPORT),
        "seconds": {**seconds, "total": sum(seconds.values())},
    }
    summary = summarise_demo(out, facts)
    accuracy = {model.name: model.value for model in summary.models}
    return with_overview(facts | {"accuracy": accuracy}, summary)


def find_largest_difference(exports: Path, kind: str) -> float:
    """Of a logit, over the exports of all models in one format."""
    records = [read_object(path) for path in exports.glob(f"*-{kind}/{EXPORT}")]
    return max(record["max_abs_logit_difference"] for record in records)


def summarise_demo(out: Path, facts: Mapping[str, Any]) -> Summary:
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
