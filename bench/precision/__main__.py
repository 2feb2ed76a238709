"""What loss scalers do to a toy encoder in pure float16, on the CPU: losses, skipped steps, scale traces.

    window   constant scales, from one at which gradients vanish to one at which they overflow
    start    GradScaler, DeepSpeed's hysteresis and ALS from scales that are too small or too large
    shock    the same from a good scale, with losses 256 times as large for a while
    formats  float32, bfloat16 and float16 with and without ALS

Weights, activations and gradients are float16, as is what each product gives; the CPU sums products in
float32. Products with 16-bit accumulators cannot be had from PyTorch. One thread. Finished runs are
kept in --work, so an interrupted bench continues. `bench.precision.rounding` is a bench of its own.

    python -m bench.precision [--studies window start ...] [--quick] [--out FILE]
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.common.corpora import DATA
from bench.common.processes import machine_facts
from bench.common.study import kept
from bench.precision.study import FULL, QUICK, SHARE, SHOCK, WINDOW, Size, train, trials
from bench.precision.tables import results
from brimful.base.storage import write_json

STUDIES = ("window", "start", "shock", "formats")


def run_study(study: str, size: Size, folder: Path) -> list[dict[str, Any]]:
    """All runs of a study; missing ones are made now."""
    runs = []
    for arm, trial in trials(study, size):
        print(study, arm, trial.seed, flush=True)
        runs.append({"arm": arm, **kept(folder / f"{trial.name}.json", partial(train, trial))})
    return runs


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print tables, keep the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--studies", nargs="+", choices=STUDIES, default=STUDIES)
    parser.add_argument("--work", type=Path, default=DATA / "precision", help="where runs are kept")
    parser.add_argument("--out", type=Path, help="for the record, JSON")
    parser.add_argument("--quick", action="store_true", help="toy sizes: does it run?")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    size = QUICK if options.quick else FULL
    studies = {study: run_study(study, size, options.work) for study in options.studies}
    for study, runs in studies.items():
        print(f"\n{study}\n\n{results(study, runs)}")
    if options.out:
        facts = machine_facts("brimful/precision", "brimful/train") | {
            "torch": torch.__version__,
            "loss_factor": SHARE,
            "shock": SHOCK,
        }
        write_json(options.out, {"facts": facts | {"loss_window": WINDOW}, "studies": studies})


if __name__ == "__main__":
    main()
