"""The verb `brimful pack`: how full rows get with each algorithm, and how close that is to the limit."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from brimful.base.config import verb
from brimful.base.console import progress, say, warn
from brimful.base.errors import BrimfulError
from brimful.base.storage import write_json
from brimful.base.terminal import output_console
from brimful.commands.pack_sources import histogram_counts, npy_counts, shard_counts, text_counts
from brimful.packing.config import Algorithm, Depth, PackConfig
from brimful.packing.histogram import checked_counts
from brimful.packing.side_by_side import (
    DEPTHS,
    NNLSHP_DEPTHS,
    ROWS_PER_RANK,
    STREAM,
    Comparison,
    attention_balance,
    best_fit_by_capacity,
)

LONGEST = 512
WIDTH = 100
"""Columns that the tables need."""


def _counts(config: PackConfig) -> np.ndarray:
    """int64 (capacity + 1,): sequences of each length."""
    most = config.max_length or min(LONGEST, config.capacity)
    if config.histogram is not None and config.histogram.endswith(".npy"):
        counts = npy_counts(Path(config.histogram), config.capacity)
    elif config.histogram is not None:
        counts = histogram_counts(config.histogram)
    elif config.data is not None:
        counts = shard_counts(Path(config.data), most)
    else:
        counts = text_counts(Path(str(config.texts)), Path(str(config.tokenizer)), most)
    return checked_counts(counts, config.capacity, None)


def _choices(config: PackConfig) -> list[tuple[Algorithm, Depth]]:
    """The algorithms and depths to compare."""
    depths: list[Depth] = [None if depth == "none" else depth for depth in config.depth]
    if config.algorithm == "all":
        return [
            (name, depth)
            for name in get_args(Algorithm)
            for depth in depths or DEPTHS
            if not name.endswith("nnlshp") or depth in NNLSHP_DEPTHS
        ]
    return [
        (config.algorithm, depth)
        for depth in depths or ([3] if config.algorithm.endswith("nnlshp") else [None])
    ]


class Plans(list[dict[str, Any]]):
    """A record for each plan, as `--json` prints it.

    Attributes:
        by_capacity: capacity, depth and efficiency of best-fit, for increasing capacities.
        by_ranks: attention cost of the costliest rank divided by the mean, with the best plan's rows dealt by
            cost (mean and worst over updates) and at random; and the same for tokens, dealt by cost.
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_capacity: list[dict[str, Any]] = []
        self.by_ranks: list[dict[str, Any]] = []


def show_plans(plans: Plans) -> None:
    """Print the tables for a person."""
    if not plans:
        return
    first = plans[0]
    console = output_console()
    console.width = max(console.width, WIDTH)
    console.print(
        f"{first['sequences']:,} sequences of {first['tokens'] / max(1, first['sequences']):,.1f} tokens on"
        f" average; rows of {first['capacity']:,}\n"
    )
    console.print(_plan_table(plans))
    if any(plan["algorithm"] == "online" and plan["sequences"] == STREAM for plan in plans):
        console.print(f"\nonline packed {STREAM:,} sequences, drawn at random")
    if plans.by_capacity:
        console.print("\nEfficiency % by capacity and depth (best-fit)\n")
        console.print(_capacity_table(plans.by_capacity))
    if plans.by_ranks:
        console.print(
            f"\nThe costliest rank over the mean rank, {ROWS_PER_RANK} rows each (best plan): attention cost,"
            " and tokens\n"
        )
        console.print(_rank_table(plans.by_ranks))


def _plan_table(plans: Sequence[dict[str, Any]]) -> Table:
    table = _table(
        "algorithm", "depth", "rows", "efficiency %", "packing factor", "seconds", "rows above bound"
    )
    for plan in plans:
        table.add_row(
            plan["algorithm"],
            _depth(plan["depth"]),
            f"{plan['rows']:,}",
            _percent(plan["efficiency"]),
            f"{plan['packing_factor']:.3f}",
            f"{plan['seconds']:.4f}" if plan["seconds"] < 0.1 else f"{plan['seconds']:.2f}",
            f"{plan['rows_above_bound']:,}",
        )
    return table


def _capacity_table(plans: Sequence[dict[str, Any]]) -> Table:
    depths = list(dict.fromkeys(plan["depth"] for plan in plans))
    table = _table("capacity", *(f"depth {_depth(depth)}" for depth in depths))
    for capacity in dict.fromkeys(plan["capacity"] for plan in plans):
        row = {plan["depth"]: _percent(plan["efficiency"]) for plan in plans if plan["capacity"] == capacity}
        table.add_row(f"{capacity:,}", *(row[depth] for depth in depths))
    return table


def _rank_table(plans: Sequence[dict[str, Any]]) -> Table:
    table = _table("ranks", "dealt by cost", "worst update", "at random", "tokens", "worst update")
    for plan in plans:
        names = ("mean", "worst", "random", "tokens_mean", "tokens_worst")
        table.add_row(str(plan["ranks"]), *(f"{plan[name]:.4f}" for name in names))
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(first, box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _percent(ratio: float) -> str:
    """A ratio in percent with three decimals; 100.000 only if it is exactly 1."""
    return f"{ratio if ratio == 1 else min(ratio, 0.99999):.3%}".removesuffix("%")


def _depth(depth: Depth) -> str:
    return "none" if depth is None else str(depth)


@verb(PackConfig, show=show_plans)
def pack(config: PackConfig) -> Plans:
    """Plan rows for prepared data, a length histogram or texts; show how close they are to the limit.

    Returns:
        a record for each plan: algorithm, capacity, depth (None = no limit), rows, sequences, tokens,
        efficiency (tokens divided by token slots), packing_factor (sequences per row), seconds (of planning),
        lower_bound (the proven minimum of rows), rows_above_bound.

    Raises:
        BrimfulError: the input cannot be read, a sequence is longer than a row, or the algorithm cannot plan
            this depth.
    """
    counts = _counts(config)
    choices = _choices(config)
    if config.dry_run:
        say(f"{int(counts.sum()):,} sequences, {len(choices)} plans to make")
        return Plans()
    comparison = Comparison(counts, config.capacity)
    plans, best = Plans(), None
    with progress("planning", len(choices)) as advance:
        for algorithm, depth in choices:
            try:
                record, plan = comparison.run(algorithm, depth)
            except BrimfulError as error:
                if config.algorithm != "all":
                    raise
                warn(f"left out: {error}")
            else:
                plans.append(record)
                if algorithm != "online" and (best is None or plan.rows < best.rows):
                    best = plan
            advance()
    plans.by_capacity = best_fit_by_capacity(counts, config.capacity)
    plans.by_ranks = attention_balance(best) if best is not None and best.rows else []
    if best is not None and config.out:
        rows = [{"lengths": p, "rows": n} for p, n in zip(best.patterns, best.repeats.tolist(), strict=True)]
        write_json(config.out, {"capacity": best.capacity, "patterns": rows})
    return plans
