"""Does a residual stream in bf16 cost loss? Held-out masked-LM losses on real text, three seeds of each arm.

bert and modern, 4x128, in precision bf16, with `trainer.residual` fp32 and bf16, on the demo's Chinese
reviews (2 % held out): one thread, packed rows, no dropout. Arms share the seeds of weights, order and masks,
and all are scored on the same sequences and masks. "Within noise", as fixed before the first run: the mean of
the paired differences is at most the standard deviation of the fp32 arm over its seeds. Finished runs are
kept in --work, so an interrupted bench continues.

    python -m bench.residual [--quick] [--out FILE]
"""

import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.common.corpora import DATA
from bench.common.processes import machine_facts
from bench.common.study import Run, by_arm, kept, paired, spread, table
from bench.learning.__main__ import frequency_loss
from bench.learning.run import Trial, prepare_texts, review_texts, train
from bench.learning.tables import final

ARCHITECTURES = ("bert", "modern")
FORMATS = ("fp32", "bf16")
SEEDS, QUICK_SEEDS = (0, 1, 2), (0, 1)
UPDATES, QUICK_UPDATES = 240, 4
VOCABULARY = 4000


def trials(quick: bool) -> list[Trial]:
    """Seed by seed, formats in turn, so that what is done early compares all arms."""
    updates = QUICK_UPDATES if quick else UPDATES
    points = updates // 2
    values = {
        "precision": "bf16",
        "verify_data": False,
        "masking": {"unit": "tokens"},  # whole words are learned too late for so short a training
        "validation_tokens": 10_000_000,  # all there are
        "model": "tiny",
        "shape": {"layers": 4},
        "packing": {"max_length": 128, "capacity": 128},
        "rows_per_update": 5,
        "rows_per_micro_batch": 5,
        "optimizer": {"name": "muon"},  # in so few updates, AdamW hardly gets a bert below frequencies
    }
    loop = {"steps": updates, "evaluate_every": points, "log_every": points, "checkpoint_every": 0}
    return [
        Trial(
            "residual",
            f"{architecture} {residual}",
            seed,
            {**values, "architecture": architecture, "trainer": {**loop, "residual": residual}},
        )
        for seed in (QUICK_SEEDS if quick else SEEDS)
        for architecture in ARCHITECTURES
        for residual in FORMATS
    ]


def compare(runs: Sequence[Run]) -> dict[str, Any]:
    """Of each architecture: losses at the end by format, their mean and deviation, and paired differences."""
    arms = by_arm(runs)
    found = {}
    for architecture in ARCHITECTURES:
        losses = {residual: final(arms[f"{architecture} {residual}"]) for residual in FORMATS}
        mean, error = paired(losses["bf16"], losses["fp32"])
        noise = spread(losses["fp32"])[1]
        found[architecture] = {
            "losses": losses,
            "mean_and_deviation": {residual: spread(each) for residual, each in losses.items()},
            "differences": [b - a for a, b in zip(losses["fp32"], losses["bf16"], strict=True)],
            "mean_difference": mean,
            "standard_error": error,
            "within_noise": abs(mean) <= noise,
        }
    return found


def show(record: dict[str, Any]) -> None:
    """Print the table."""
    rows = []
    for architecture, found in record["comparison"].items():
        spreads = ["{:.4f} ± {:.4f}".format(*found["mean_and_deviation"][each]) for each in FORMATS]
        differences = ", ".join(f"{each:+.4f}" for each in found["differences"])
        mean = f"{found['mean_difference']:+.4f} ± {found['standard_error']:.4f}"
        rows.append([architecture, *spreads, differences, mean, "yes" if found["within_noise"] else "no"])
    print(table(["", *FORMATS, "bf16 minus fp32", "mean", "within noise"], rows))
    print(f"\nby frequencies alone: {record['frequency_loss']:.3f}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, print the table, keep the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, default=DATA / "residual", help="where runs are kept")
    parser.add_argument("--out", type=Path, default=Path("bench/results/residual_bf16.json"))
    parser.add_argument("--quick", action="store_true", help="toy sizes: does it run?")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    folder = options.work / ("quick" if options.quick else "full")
    folder.mkdir(parents=True, exist_ok=True)
    data = prepare_texts(
        folder / "reviews", review_texts(60 if options.quick else None), VOCABULARY, validation_share=0.02
    )
    planned = trials(options.quick)
    runs = []
    for trial in planned:
        print(trial.arm, trial.seed, flush=True)
        runs.append(kept(folder / f"{trial.name}.json", partial(train, trial, data, folder)))
    record = {
        **machine_facts(),
        "torch": torch.__version__,
        "frequency_loss": frequency_loss(data, VOCABULARY),
        "arms": {trial.arm: trial.values for trial in planned},
        "comparison": compare(runs),
        "runs": runs,
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    show(record)


if __name__ == "__main__":
    main()
