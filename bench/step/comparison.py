"""Variants of a training step side by side: set up once each, their losses checked, measured in turns."""

import statistics
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict

from bench.common.record import Row
from bench.common.turns import Worker, WorkerError, set_up, take_turns
from bench.step.variants import Cell, Variant

WARM_UPS = 2
TOLERANCE = {"fp32": 1e-4, "bf16": 5e-2}


def compare(
    variants: Mapping[str, tuple[Cell, Variant]],
    rounds: int,
    *,
    same_loss: bool = True,
    saved: tuple[int, int] | None = None,
) -> dict[str, Row]:
    """Measure variants in turns.

    Args:
        same_loss: they have the same weights and batch, so that their losses must agree.
        saved: two numbers of sequences, between which the growth of the bytes saved for backward is taken;
            not of careful variants, whose batches differ.

    Returns:
        For each name its figures, or {"error": what went wrong}.
    """
    settings = {
        name: {"cell": asdict(cell), "variant": asdict(variant), "warm_ups": WARM_UPS}
        for name, (cell, variant) in variants.items()
    }
    with ExitStack() as stack:
        workers, found = set_up(stack, "bench.step.worker", settings)
        if same_loss and workers:
            tolerance = max(TOLERANCE[variants[name][0].dtype] for name in workers)
            _check({name: found[name]["loss"] for name in workers}, tolerance)
        rates = {name: _rate(worker, variants[name][0]) for name, worker in workers.items()}
        seconds, errors = take_turns(workers, rounds)
        found |= errors
        for name, worker in workers.items():
            cell = variants[name][0]
            dtype_rates = [rate for other, rate in rates.items() if variants[other][0].dtype == cell.dtype]
            found[name] |= figures(found[name], seconds[name], max(dtype_rates))
            found[name] |= worker.ask("peak")
        grouped = [name for name in workers if variants[name][1].side == "careful"]
        for name in dict.fromkeys([*grouped, *workers]):
            if saved and name not in grouped:
                found[name] |= _saved(workers[name], saved)
            workers[name].kill()  # so that the next has its memory
    return found


def _rate(worker: Worker, cell: Cell) -> float:
    return worker.ask("rate", dtype=cell.dtype)["flops_per_second"]


def _check(losses: dict[str, float], tolerance: float) -> None:
    if losses and not max(losses.values()) - min(losses.values()) < tolerance:
        sys.exit(f"bench: the losses differ by more than {tolerance}, so nothing is timed: {losses}")


def figures(facts: Row, seconds: list[float], rate: float) -> Row:
    """Real tokens a second, and the flops a second as a share of `rate`."""
    median = statistics.median(seconds)
    return {
        "seconds": seconds,
        "median_seconds": median,
        "tokens_per_second": facts["real_tokens"] / median,
        "flops_per_token": facts["flops"] / facts["real_tokens"],
        "matrix_rate": rate,
        "share_of_matrix_rate": facts["flops"] / median / rate,
    }


def _saved(worker: Worker, sequences: tuple[int, int]) -> Row:
    """How the bytes saved for backward grow with real tokens; the constant is copies of weights and such."""
    try:
        (few, fewer), (many, more) = worker.ask("saved", sequences=sequences)["bytes_and_tokens"]
    except WorkerError as error:
        return {"saved_error": str(error)}
    return {"saved_bytes_per_token": (many - few) / (more - fewer)}
