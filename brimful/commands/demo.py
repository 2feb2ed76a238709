"""The verb `brimful demo`: the whole way on real text, from Chinese product reviews to a small classifier.

The setting is a user's own: 2,000 labelled reviews, and all other training reviews as unlabelled text. No
stage sees a test review before the end, pretraining included.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from brimful.base.config import build, read_yaml, require_seeds, verb, write_yaml
from brimful.base.console import say
from brimful.base.errors import BrimfulError
from brimful.base.extras import require
from brimful.base.folder_lock import FolderLock
from brimful.base.storage import read_object, require_folder_place, write_json
from brimful.commands.demo_reviews import find_reviews, load_reviews, write_reviews
from brimful.commands.demo_stages import REPORT, SECONDS, collect_results, run_stages
from brimful.commands.report import report
from brimful.reports.load import CONFIG, SUMMARY

PACKAGES = ("sklearn", "transformers", "onnx", "onnxscript", "onnxruntime", "matplotlib")


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
        if self.max_reviews is not None and self.max_reviews < 100:
            raise BrimfulError(f"max_reviews is {self.max_reviews}: it must be at least 100")


@verb(DemoConfig)
def demo(config: DemoConfig) -> dict[str, Any]:
    """Build a Chinese review classifier from raw text: prepare, pretrain, fine-tune, distil, export, report.

    The same command continues an interrupted demo, and returns the result of a finished one.

    Returns:
        what summary.json holds: `accuracy.*`, `packing.*`, `export.*`, `seconds.*` ...

    Raises:
        BrimfulError: a package of the demo is missing, or --out holds something else.
        StoppedError: a signal asked the demo to stop.
    """
    require("the demo", *PACKAGES, extra="demo")
    out = Path(config.out)
    require_place(config)
    reviews = load_reviews(find_reviews(), config.seed, config.max_reviews)
    if config.dry_run:
        return {"dry_run": True, "data": reviews.facts}
    with FolderLock() as lock:
        lock.take(out)
        if (out / SUMMARY).exists():
            say(f"the demo in {out} is complete; remove the folder to run it again")
        else:
            write_yaml(out / CONFIG, config)
            write_reviews(reviews, out / "reviews")
            is_short = config.max_reviews is not None
            seconds = run_stages(out, reviews.facts, config.seed, is_short=is_short)
            write_json(out / SUMMARY, collect_results(out, reviews.facts, seconds))
            (out / SECONDS).unlink()
        if not (out / REPORT).exists():
            report(runs=[str(out)], out=str(out / REPORT))
    return read_object(out / SUMMARY)


def require_place(config: DemoConfig) -> None:
    """Refuse a folder that is not free and holds no demo of this configuration.

    Raises:
        BrimfulError: it holds something else, or a demo with other options.
    """
    out = Path(config.out)
    if not (out / CONFIG).exists():
        require_folder_place(out)
        return
    try:
        saved = build(DemoConfig, read_yaml(out / CONFIG))
    except BrimfulError as error:
        raise BrimfulError(
            f"{out} holds something else than a demo: {error}; choose another --out"
        ) from error
    saved = replace(saved, out=config.out, dry_run=config.dry_run)
    if saved != config:
        raise BrimfulError(
            f"{out} holds a demo with other options, those in {out / CONFIG}: give the same ones to"
            " continue it, or remove the folder"
        )
