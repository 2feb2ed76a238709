"""The verb `brimful demo`: all stages on real text, from Chinese product reviews to a small classifier.

The setting is a typical user's: 2,000 labelled reviews, and all other training reviews as unlabelled text. No
stage sees a test review before the end, not even pretraining. The stages are lines of `brimful` that a user
could type. Each runs in its own process and leaves its own folder. A complete folder is not made again, and
an interrupted training continues from its checkpoint. A tiny model of the first minute labels reviews before
the long trainings begin.
"""

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from brimful.base.config import verb
from brimful.base.console import escape_controls, say
from brimful.base.environment import require_packages
from brimful.base.errors import BrimfulError
from brimful.base.seals import CONFIG, EXPORT, SUMMARY
from brimful.base.storage import read_json, require_folder_place
from brimful.base.types import Values
from brimful.commands.demo_reviews import Reviews, find_reviews, load_reviews, write_reviews
from brimful.runs.signals import StoppedError, StopRequest, catch_stop_signals

PACKAGES = ("sklearn", "onnx", "onnxscript", "onnxruntime", "matplotlib")
PRETRAIN_UPDATES = 800
FIRST_UPDATES = 40
"""Updates of the tiny model."""
WHOLE_TOKENS = 7_000_000
"""Tokens on which the tiny model could be pretrained in the time of the whole demo: 366 s where the
model reads 19,100 tokens a second (two cores with AMX)."""
SHOWN_REVIEWS = 6
"""Test reviews that are shown with the labels of the tiny model."""
SHOWN_CHARACTERS = 36
"""Characters of such a review."""

FIRST_LINES = (
    "prepare {out}/reviews/texts.txt --out {out}/data --tokenizer train:8000 --lowercase --han pieces"
    " --read.split line",
    "pretrain --data {out}/data --out {out}/first/pretrain --model tiny --recipe fast --rows-per-update 4"
    " --packing.max-length 128 --packing.capacity 1024 --trainer.steps {first_updates}",
    "finetune --encoder {out}/first/pretrain --train {out}/reviews/train.tsv --test {out}/reviews/test.tsv"
    " --epochs 2 --batch 32 --learning-rates 1e-3 --out {out}/first/finetune",
)
"""The corpus of the whole demo, and a tiny model."""
# The recipe: small enough for two cores and a quarter of an hour with AVX-512, half an hour without.
FINETUNE = (
    "finetune --encoder {out}/pretrain --train {out}/reviews/train.tsv --test {out}/reviews/test.tsv"
    " --epochs 3 --trial-epochs 1.5 --batch 32 --dropout 0.1 --learning-rates "
)
# TinyBERT's two stages, as they were measured (bench/results/demo.json).
TWO_STAGES = "--layers.epochs 0.5 --layers.learning-rate 5e-4 --logits.epochs 1 --logits.learning-rate 5e-4"
LINES = (
    "pretrain --data {out}/data --out {out}/pretrain --model mini --recipe fast --rows-per-update 4"
    " --packing.max-length 128 --packing.capacity 1024 --trainer.steps {updates}"
    " --trainer.checkpoint-every 100",
    # On 2,000 labels, from the pretrained encoder and from random weights.
    FINETUNE + "3e-4 6e-4 --out {out}/finetune",
    FINETUNE + "7e-4 1.5e-3 --out {out}/finetune-random --initialisation random --ladder none",
    # 4 layers become 2; and the same 2 layers learn from the labels.
    "distil --teacher {out}/finetune --out {out}/distil --student-layers 2"
    f" --unlabelled {{out}}/reviews/unlabelled.txt {TWO_STAGES}",
    FINETUNE + "3e-4 6e-4 --out {out}/student-undistilled --layers 1 3 --ladder none",
    "export {out}/finetune --out {out}/export/finetune --format onnx",
    "export {out}/distil --out {out}/export/distil --format onnx",
    "report {out}/finetune {out}/finetune-random {out}/distil {out}/student-undistilled {out}/pretrain"
    " {out}/data --out {out}/report.html",
)


@dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """Build a Chinese review classifier from raw text, and compare it."""

    EXAMPLE = "--out runs/demo"

    out: str = "runs/demo"
    """Directory to create; of an interrupted demo, the same command continues it to the same results."""
    dry_run: bool = False
    """Check everything, and write nothing."""


@verb(DemoConfig)
def demo(config: DemoConfig) -> Values:
    """Build a Chinese review classifier from raw text: prepare, pretrain, fine-tune, distil, export, report.

    A tiny model labels reviews within the first minutes. The same command continues an interrupted demo.

    Returns:
        `out`, the page that `report` wrote, and the numbers of reviews.

    Raises:
        BrimfulError: a package of the demo is missing, --out holds something else, or a line failed.
        StoppedError: a signal asked the demo to stop.
    """
    require_packages("the demo", *PACKAGES, extra="demo")
    out = Path(config.out)
    if not (out / "reviews/new.txt").exists():  # it is written first, so the folder holds no demo
        require_folder_place(out)
    reviews = load_reviews(find_reviews())
    facts = reviews.facts
    if config.dry_run:
        return {"dry_run": True, **facts}
    say(
        f"{facts['reviews']:,} reviews, {facts['unique']:,} of them unique; {facts['conflicting']} carry both"
        f" labels and are only text. Test: {facts['test']:,}, never seen in training, nor their"
        f" near-duplicates. Training: {facts['labelled']:,} with labels, the rest as plain text"
    )
    write_reviews(reviews, out / "reviews")
    values = {"out": out, "updates": PRETRAIN_UPDATES, "first_updates": FIRST_UPDATES}
    with catch_stop_signals() as request:
        for line in FIRST_LINES + LINES:
            if line == LINES[0]:
                show_first_labels(out / "first", reviews)
            # The values are filled in after the line is split, since a path may have spaces.
            run_line([word.format(**values) for word in shlex.split(line)], request)
    return {"out": str(out / "report.html"), **facts}


def show_first_labels(folder: Path, reviews: Reviews) -> None:
    """Say how the tiny model labels some test reviews, how often it is right beside TF-IDF on the same rows,
    and how long the whole demo takes on this machine."""
    lines = (folder / "finetune/predictions.jsonl").read_text(encoding="utf-8").splitlines()
    say("test reviews with the label of their writer, and the label by the tiny model:")
    for (text, label), line in zip(reviews.test[:SHOWN_REVIEWS], lines, strict=False):
        prediction = json.loads(line)["prediction"]
        mark = " " if prediction == label else "!"
        say(f"  {label} {mark} {prediction}  {escape_controls(text[:SHOWN_CHARACTERS])}")
    facts = read_json(folder / "finetune" / SUMMARY)
    ours, tfidf = facts["test"]["accuracy"], facts["baselines"]["tfidf"]
    rate = read_json(folder / "pretrain" / SUMMARY)["tokens_per_second"]
    verdict = "ahead of TF-IDF" if tfidf["difference"] > 0 else "behind TF-IDF"
    if abs(tfidf["difference"]) <= 2 * tfidf["standard_error"]:
        verdict = "no better and no worse than TF-IDF, as far as these reviews can tell"
    say(
        f"of {len(lines):,} test reviews the tiny model is right on {ours:.1%}, TF-IDF with a linear model,"
        f" from the same labels, on {tfidf['accuracy']:.1%}: so early, it is {verdict}. The whole job goes on"
        f" now. It takes about {WHOLE_TOKENS / rate / 60:.0f} minutes at the present speed of this machine;"
        " Ctrl-C stops it, and the same command continues it"
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
