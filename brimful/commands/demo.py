"""The verb `brimful demo`: all stages on real text, from Chinese product reviews to a small classifier.

The setting is a typical user's: 2,000 labelled reviews, and all other training reviews as unlabelled text. No
stage sees a test review before the end, not even pretraining. The stages are lines of `brimful` that a user
could type. Each runs in its own process and leaves its own folder. A complete folder is not made again, and
an interrupted training continues from its checkpoint.
"""

import math
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from brimful.base.config import build, read_yaml, require_seeds, verb, write_yaml
from brimful.base.console import say
from brimful.base.environment import require_packages
from brimful.base.errors import BrimfulError, require_range
from brimful.base.seals import CONFIG, EXPORT, SUMMARY
from brimful.base.storage import require_folder_place
from brimful.base.types import Values
from brimful.commands.demo_reviews import find_reviews, load_reviews, write_reviews
from brimful.commands.report import report
from brimful.runs.signals import StoppedError, StopRequest, catch_stop_signals

SETTINGS = "demo.yaml"
"""The file of a demo with its options."""
PACKAGES = ("sklearn", "transformers", "onnx", "onnxscript", "onnxruntime", "matplotlib")
PRETRAIN_UPDATES = 800
ALL_TEXTS = 13_900
"""Number of texts in all reviews, for `PRETRAIN_UPDATES`; fewer texts take proportionally fewer updates."""

# The recipe: small enough for two cores and a quarter of an hour with AVX-512, half an hour without.
FINETUNE = (
    "finetune --encoder {out}/pretrain --train {out}/reviews/train.tsv --test {out}/reviews/test.tsv"
    " --seed {seed} --epochs 3 --trial-epochs 1.5 --batch 32 --dropout 0.1 --learning-rates "
)
# TinyBERT's two stages, as they were measured (bench/results/demo.json).
TWO_STAGES = "--layers.epochs 0.5 --layers.learning-rate 5e-4 --logits.epochs 1 --logits.learning-rate 5e-4"
LINES = (
    "prepare {out}/reviews/training.txt --out {out}/data --tokenizer train:8000 --lowercase --han pieces"
    " --read.split line",
    "pretrain --data {out}/data --out {out}/pretrain --model mini --recipe fast --rows-per-update 4"
    " --packing.max-length 128 --packing.capacity 1024 --trainer.steps {updates}"
    " --trainer.checkpoint-every 100 --seed {seed}",
    # On 2,000 labels, from the pretrained encoder and from random weights.
    FINETUNE + "3e-4 6e-4 --out {out}/finetune",
    FINETUNE + "7e-4 1.5e-3 --out {out}/finetune-random --initialisation random --ladder none",
    # 4 layers become 2; and the same 2 layers learn from the labels.
    "distil --teacher {out}/finetune --out {out}/distil --student-layers 2 --initialisation pretrained"
    f" --unlabelled {{out}}/reviews/unlabelled.txt --seed {{seed}} {TWO_STAGES}",
    FINETUNE + "3e-4 6e-4 --out {out}/student-undistilled --layers 1 3 --ladder none",
    "export {out}/finetune --out {out}/export/finetune-hf",
    "export {out}/finetune --out {out}/export/finetune-onnx --format onnx",
    "export {out}/distil --out {out}/export/distil-hf",
    "export {out}/distil --out {out}/export/distil-onnx --format onnx",
)
REPORTED = ("finetune", "finetune-random", "distil", "student-undistilled", "pretrain", "data")
"""Folders in the report."""


@dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """Build a Chinese review classifier from raw text, and compare it."""

    EXAMPLE = "--out runs/demo --max-reviews 2000"

    out: str = "runs/demo"
    """Directory to create; of an interrupted demo, the same command continues it to the same results."""
    seed: int = 0
    """Decides the split of the reviews and every training."""
    max_reviews: int | None = None
    """Use at most this many reviews of each label, with as many fewer updates of pretraining: a quick look
    that says nothing about quality."""
    dry_run: bool = False
    """Check everything, and write nothing."""

    def __post_init__(self) -> None:
        require_seeds(self.seed)
        require_range(self, "at least 100", "max_reviews")


@verb(DemoConfig)
def demo(config: DemoConfig) -> Values:
    """Build a Chinese review classifier from raw text: prepare, pretrain, fine-tune, distil, export, report.

    The same command continues an interrupted demo.

    Returns:
        the result of `report` for its runs: their models are in the `overview`.

    Raises:
        BrimfulError: a package of the demo is missing, --out holds something else, or a line failed.
        StoppedError: a signal asked the demo to stop.
    """
    require_packages("the demo", *PACKAGES, extra="demo")
    out = Path(config.out)
    require_place(config)
    reviews = load_reviews(find_reviews(), config.seed, config.max_reviews)
    if config.dry_run:
        return {"dry_run": True, "data": reviews.facts}
    facts = reviews.facts
    say(
        f"{facts['reviews']:,} reviews, {facts['unique']:,} of them unique; {facts['conflicting']} carry both"
        f" labels and are only text. Test: {facts['test']:,}, never seen in training, nor their"
        f" near-duplicates. Training: {facts['labelled']:,} with labels, the rest as plain text. With all"
        " reviews the demo takes 8 to 35 minutes on two cores; the same command continues it"
    )
    write_yaml(out / SETTINGS, config)
    write_reviews(reviews, out / "reviews")
    updates = PRETRAIN_UPDATES
    if config.max_reviews is not None:
        updates = math.ceil(updates * facts["pretraining"] / ALL_TEXTS)
    values = {"out": out, "seed": config.seed, "updates": updates}
    with catch_stop_signals() as request:
        for line in LINES:
            # The values are filled in after the line is split, since a path may have spaces.
            run_line([word.format(**values) for word in shlex.split(line)], request)
    return report(runs=[str(out / name) for name in REPORTED], out=str(out / "report.html"))


def require_place(config: DemoConfig) -> None:
    """Refuse a folder that is neither free nor holds a demo of this configuration.

    Raises:
        BrimfulError: it holds something else, or a demo with other options.
    """
    saved_file = Path(config.out, SETTINGS)
    if not saved_file.exists():
        require_folder_place(Path(config.out))
        return
    try:
        saved = build(DemoConfig, read_yaml(saved_file))
    except BrimfulError as error:
        problem = f"{config.out} holds something else than a demo: {error}; choose another --out"
        raise BrimfulError(problem) from error
    if replace(saved, out=config.out, dry_run=config.dry_run) != config:
        raise BrimfulError(
            f"{config.out} holds a demo with other options, those in {saved_file}: give the same ones to"
            " continue it, or remove the folder"
        )


def run_line(words: Sequence[str], request: StopRequest) -> None:
    """Run a line of `brimful`, unless its folder is complete; an interrupted training goes on.

    Args:
        words: the verb and its options, `--out` among them.
        request: signals, which the line's process gets too.

    Raises:
        BrimfulError: the line failed; its process has said why.
        StoppedError: a signal stopped it.
    """
    verb, out = words[0], Path(words[words.index("--out") + 1])
    if (out / SUMMARY).exists() or (out / EXPORT).exists():
        say(f"{out.name}: already finished")
        return
    if verb != "prepare" and (out / CONFIG).exists():  # the same line continues a preparation
        words = [verb, "--resume", str(out)]
    say(f"brimful {shlex.join(words)}")
    # The line prints to standard error (2), since with --json standard output has only the demo's result.
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
