"""Do small models learn the same? Losses on the demo's Chinese reviews, several seeds of every arm.

    packing   packed against unpacked rows: the same sequences in each update, and as many on average
    residual  `trainer.residual` bf16 against fp32, 4 layers of 128 in bf16 with Muon: bert and modern

One thread, no dropout. Arms share seeds, held-out sequences and masks, so differences are taken within a
seed. Finished runs are kept in --work, so an interrupted bench continues.

    python -m bench.learning [--studies packing residual] [--quick] [--out FOLDER]
"""

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.common.corpora import DATA
from bench.common.pretraining import Trial, final, prepare_texts, run_trials
from bench.common.processes import machine_facts
from bench.common.study import Run, by_arm, paired, spread, table
from brimful.base.storage import write_json
from brimful.commands.demo_reviews import find_reviews, load_reviews
from brimful.data.config import PackingConfig
from brimful.data.mixture import open_sources, parse_sources
from brimful.stages.pretrain_config import PretrainConfig
from brimful.stages.pretrain_data import make_sources

STUDIES = ("packing", "residual")
PRESET = {"model": "tiny", "architecture": "modern"}
Settings = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """How much is trained.

    Attributes:
        length: tokens of the longest sequence, and slots of a row.
        reviews: of each label; None takes all.
        updates: of the unpacked arms.
        batch: sequences in each of these.
    """

    seeds: tuple[int, ...]
    length: int
    vocabulary: int
    reviews: int | None
    updates: int
    batch: int


FULL = Size((0, 1, 2), 128, 4000, None, 240, 11)
QUICK = Size((0, 1), 32, 300, 60, 5, 8)


def review_texts(limit: int | None) -> list[str]:
    """The demo's reviews; `limit` of each label, before duplicates are dropped."""
    reviews = load_reviews(find_reviews(), 0, limit)
    return sorted([text for text, _ in (*reviews.labelled, *reviews.test)] + reviews.unlabelled)


def settings(length: int, steps: int, points: int, **values: Any) -> Settings:
    """Of a PretrainConfig; its packing and its trainer may be given in part."""
    evaluate = max(1, steps // points)
    loop = {"steps": steps, "evaluate_every": evaluate, "log_every": evaluate, "checkpoint_every": 0}
    return {
        "recipe": "plain",
        "precision": "fp32",
        "verify_data": False,
        "masking": {"unit": "tokens"},  # whole words are learned too late for so short a training
        "validation_tokens": 10_000_000,  # all there are, however they share rows
        **values,
        "packing": {"max_length": length, "capacity": length, **values.get("packing", {})},
        "trainer": loop | values.get("trainer", {}),
    }


def packing_factor(data: Path, size: Size) -> float:
    """Sequences in a row, on average."""
    packing = PackingConfig(max_length=size.length, capacity=size.length)
    config = PretrainConfig(data=str(data), packing=packing)
    sources = make_sources(config, open_sources(parse_sources(str(data)), verify=False), data, ahead=False)
    return sources[0].blocks[size.length].preview()[1].packing_factor


def arms_of(study: str, size: Size, factor: float) -> dict[str, Settings]:
    """What a study compares. An update of a packed arm is one micro-batch."""
    few = round(size.batch / factor)  # rows of as many sequences
    unpacked = {"packing": {"max_sequences": 1}, "rows_per_micro_batch": size.batch}
    if study == "packing":
        of = partial(settings, size.length, size.updates, 6, optimizer={"learning_rate": 3e-3}, **PRESET)
        return {
            "unpacked": of(sequences_per_update=size.batch, **unpacked),
            "packed": of(sequences_per_update=size.batch, rows_per_micro_batch=few + 1),
            "packed by rows": of(rows_per_update=few, rows_per_micro_batch=few),
        }
    of = partial(settings, size.length, size.updates, 2, precision="bf16", model="tiny", shape={"layers": 4})
    # In so few updates, AdamW hardly gets a bert below frequencies.
    of = partial(of, rows_per_update=5, rows_per_micro_batch=5, optimizer={"name": "muon"})
    return {
        f"{architecture} {residual}": of(architecture=architecture, trainer={"residual": residual})
        for architecture in ("bert", "modern")
        for residual in ("fp32", "bf16")
    }


def compared(runs: Sequence[Run]) -> str:
    """A row for each arm: its loss, its distance from the first arm (of the same architecture), its time."""
    arms = by_arm(runs)
    rows = []
    for arm, each in arms.items():
        against = f"{arm.split()[0]} fp32" if f"{arm.split()[0]} fp32" in arms else next(iter(arms))
        loss = "{:.4f} ± {:.4f}".format(*spread(final(each)))
        difference = "{:+.4f} ± {:.4f}".format(*paired(final(each), final(arms[against])))
        seconds = statistics.mean(run["cpu_seconds"] for run in each)
        rows.append([arm, loss, f"{difference} (to {against})", f"{seconds:.0f}"])
    return table(["", "held-out loss", "difference", "CPU s"], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, print tables, keep records."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--studies", nargs="+", choices=STUDIES, default=STUDIES)
    parser.add_argument("--work", type=Path, default=DATA / "learning", help="where runs are kept")
    parser.add_argument("--out", type=Path, default=Path("bench/results"), help="for learning_STUDY.json")
    parser.add_argument("--quick", action="store_true", help="toy sizes: does it run?")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    size = QUICK if options.quick else FULL
    folder = options.work / ("quick" if options.quick else "full")
    data = prepare_texts(folder / "reviews", review_texts(size.reviews), size.vocabulary, 0.02)
    factor = packing_factor(data, size)
    for study in options.studies:
        arms = arms_of(study, size, factor)
        # Seed by seed, so that what is done early compares all arms.
        trials = [Trial(study, arm, seed, values) for seed in size.seeds for arm, values in arms.items()]
        runs = run_trials(trials, data, folder)
        facts = machine_facts("brimful/data", "brimful/objectives", "brimful/train") | {
            "torch": torch.__version__,
            "study": study,
            "packing_factor": factor,
        }
        write_json(options.out / f"learning_{study}.json", facts | {"arms": arms, "runs": runs})
        print(f"\n{study}: {factor:.3f} sequences in a packed row\n\n{compared(runs)}")


if __name__ == "__main__":
    main()
