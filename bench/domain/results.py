"""The results of bench/domain: accuracies, their paired differences, losses, and tables."""

import math
from typing import Any

import numpy as np

from bench.common.study import table
from bench.domain.runs import ARMS, TRIED, Bench
from brimful.demonstration.measure import right_answers

DIFFERENCES = (
    ("general", "random weights"),
    ("general", "from scratch"),
    ("continued", "general"),
    ("continued", "from scratch"),
    ("continued, replay", "continued"),
    ("continued, lexicon", "continued"),
)


def paired_difference(first: np.ndarray, second: np.ndarray) -> dict[str, Any]:
    """Mean of first - second, and its standard errors.

    Args:
        first, second: bool (seeds, test rows), whether an answer is right; the same seeds and rows.

    Returns:
        `test_error`: with other test rows and the same models. `seed_error`: with other seeds and the same
        test rows; None for a single seed. `error`: the root of the sum of their squares, which counts what is
        of one seed and one row twice, and so is rather too large.
    """
    difference = first.astype(np.float64) - second
    seeds, rows = difference.shape
    by_seed = difference.mean(axis=1)
    test_error = float(difference.mean(axis=0).std(ddof=1)) / math.sqrt(rows)
    seed_error = float(by_seed.std(ddof=1)) / math.sqrt(seeds) if seeds > 1 else None
    return {
        "difference": float(difference.mean()),
        "error": math.hypot(test_error, seed_error or 0.0),
        "test_error": test_error,
        "seed_error": seed_error,
        "by_seed": by_seed.tolist(),
    }


def gather(bench: Bench) -> dict[str, Any]:
    """The record of a finished bench; JSON types."""
    seeds = bench.scale.seeds
    right = {
        arm: np.stack([right_answers(bench.work / bench.classifier(arm, seed)) for seed in seeds])
        for arm in ARMS
    }
    arms = {}
    for arm, answers in right.items():
        accuracies = answers.mean(axis=1)
        row: dict[str, Any] = {"accuracy": accuracies.mean(), "accuracy_runs": accuracies.tolist()}
        row["accuracy_sd"] = accuracies.std(ddof=1) if len(seeds) > 1 else None
        if arm != "random weights":
            row["losses"] = bench.result(f"losses-{bench.name(arm)}")
            run = bench.result(bench.name(arm))
            row["pretraining"] = {key: run[key] for key in ("steps", "tokens", "seconds", "validation")}
        arms[arm] = row

    return {
        "text": bench.result("text"),
        "prepared": {
            name: {count: bench.result(name)[count] for count in ("tokens", "words")}
            for name in ("general", "reviews", "reviews-lexicon")
        },
        "parameters": bench.result("encoder")["parameters"],
        "precision": bench.result("encoder")["precision"],
        "held_out_accuracy": {name: bench.result(f"rates-{name}") for name in TRIED},
        "learning_rate": bench.learning_rate,
        "test": right["general"].shape[1],
        "arms": arms,
        "differences": {
            f"{first} - {second}": paired_difference(right[first], right[second])
            for first, second in DIFFERENCES
        },
    }


def show(record: dict[str, Any]) -> None:
    """Print two tables as Markdown."""
    rows = []
    for arm, row in record["arms"].items():
        spread = "" if row["accuracy_sd"] is None else f" ± {100 * row['accuracy_sd']:.1f}"
        runs = ", ".join(f"{100 * run:.1f}" for run in row["accuracy_runs"])
        losses = [
            f"{row['losses'][f'loss.{source}']:.2f}" if "losses" in row else ""
            for source in ("reviews", "general")
        ]
        rows.append([arm, f"{100 * row['accuracy']:.1f}{spread}", runs, *losses])
    print(table(["encoder", "accuracy", "by seed", "loss, reviews", "loss, general"], rows))
    rows = []
    for name, row in record["differences"].items():
        of_seeds = "" if row["seed_error"] is None else f"{100 * row['seed_error']:.1f}"
        errors = (f"{100 * row['error']:.1f}", f"{100 * row['test_error']:.1f}", of_seeds)
        rows.append([name, f"{100 * row['difference']:+.1f}", *errors])
    print("\n" + table(["difference", "points", "error", "of test reviews", "of seeds"], rows))
