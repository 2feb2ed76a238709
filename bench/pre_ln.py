"""Is pre-LN more stable? 12 thin layers, no warm-up, learning rates up to a large one, three seeds.

Python's language reference, with almost one token per letter, which thin layers learn early. One thread,
float32. Finished runs are kept in --work, so an interrupted bench continues.

    python -m bench.pre_ln [--quick] [--out FILE]
"""

import argparse
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from bench.common.corpora import DATA
from bench.common.pretraining import Trial, final, frequency_loss, prepare_texts, run_trials
from bench.common.processes import machine_facts
from bench.common.study import Run, by_arm, paired, spread, table
from brimful.base.storage import write_json

RATES, SEEDS, UPDATES = (1e-3, 3e-3, 1e-2), (0, 1, 2), 800
ARCHITECTURES = {"post-LN": "bert", "pre-LN": "prenorm"}
SHAPE = {
    "layers": 12,
    "hidden_size": 64,
    "heads": 4,
    "intermediate_size": 128,
    "max_length": 32,
    "norm_eps": 1e-12,
    "initializer_range": 0.125,  # Xavier's, as in Xiong et al.: 0.02 is for wide layers
}
PIECES = 150  # hardly more than the letters


def manual_paragraphs(limit: int | None) -> list[str]:
    """The first `limit` paragraphs of Python's language reference, as `help()` shows it."""
    from pydoc_data.topics import topics

    return [paragraph for topic in topics.values() for paragraph in topic.split("\n\n")][:limit]


def trials(rates: Iterable[float], seeds: Iterable[int], updates: int, slots: int) -> list[Trial]:
    """Seed by seed, so that what is done early compares all arms."""
    evaluate = max(1, updates // 4)
    loop = {"steps": updates, "evaluate_every": evaluate, "log_every": max(1, updates // 80)}
    values = {
        "recipe": "plain",
        "precision": "fp32",
        "verify_data": False,
        "masking": {"unit": "tokens"},
        "validation_tokens": 10_000_000,  # all there are
        "packing": {"max_length": SHAPE["max_length"], "capacity": slots},
        "rows_per_update": 4,
        "rows_per_micro_batch": 4,
        "schedule": {"warmup": 0.0, "shape": "constant"},
        "trainer": loop | {"checkpoint_every": 0},
    }
    return [
        Trial(
            "norms",
            f"{name} {rate:g}",
            seed,
            values | {"optimizer": {"learning_rate": rate}},
            SHAPE | {"architecture": architecture},
        )
        for seed in seeds
        for rate in rates
        for name, architecture in ARCHITECTURES.items()
    ]


def outcomes(runs: Sequence[Run]) -> str:
    """A row for each arm: every seed's losses at the end, or where it ended; its largest gradient."""
    rows = []
    for arm, each in by_arm(runs).items():
        losses = [
            f"not finite before {run['updates']}" if run["error"] else f"{loss:.3f}"
            for run, loss in zip(each, final(each), strict=True)
        ]
        worst = max(step["norm"] for run in each for step in run["steps"])
        lowest = ", ".join(f"{min(point['loss'] for point in run['points']):.3f}" for run in each)
        tenth = [[step["loss"] for step in run["steps"]][-max(1, len(run["steps"]) // 10) :] for run in each]
        ends = ", ".join(f"{statistics.fmean(losses):.2f}" for losses in tenth)
        mean = "{:.3f} ± {:.3f}".format(*spread(final(each)))
        rows.append([arm, ", ".join(losses), mean, lowest, ends, f"{worst:.3g}"])
    titles = ["held-out loss", "mean", "lowest on the way", "last training losses", "largest gradient"]
    return table(["", *titles], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, print the table and the differences, keep the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, default=DATA / "pre-ln", help="where runs are kept")
    parser.add_argument("--out", type=Path, default=Path("bench/results/learning_norms.json"))
    parser.add_argument("--quick", action="store_true", help="toy sizes: does it run?")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rates, seeds, updates, slots = ((3e-3,), (0, 1), 2, 32) if options.quick else (RATES, SEEDS, UPDATES, 128)
    folder = options.work / ("quick" if options.quick else "full")
    texts = manual_paragraphs(300 if options.quick else None)
    data = prepare_texts(folder / "manual", texts, PIECES, validation_share=0.05)
    planned = trials(rates, seeds, updates, slots)
    runs = run_trials(planned, data, folder)
    facts = machine_facts() | {"torch": torch.__version__, "study": "norms"}
    facts |= {"frequency_loss": frequency_loss(data, PIECES)}
    arms = {trial.arm: {**trial.values, "shape": trial.shape} for trial in planned}
    write_json(options.out, facts | {"arms": arms, "runs": runs})
    print(f"\n{outcomes(runs)}\n\nby frequencies alone: {facts['frequency_loss']:.3f}")
    losses = {arm: final(each) for arm, each in by_arm(runs).items()}
    for rate in rates:
        post, pre = (f"{name} {rate:g}" for name in ARCHITECTURES)
        print("{} minus {}: {:+.3f} ± {:.3f}".format(pre, post, *paired(losses[pre], losses[post])))


if __name__ == "__main__":
    main()
