"""The verb `brimful pack`: how full rows get with each algorithm, and how close that is to the limit."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np

from brimful.base.config import verb
from brimful.base.console import progress, say, warn
from brimful.base.errors import BrimfulError
from brimful.base.storage import write_json
from brimful.base.summary import Summary, SummaryTable, make_table, with_overview
from brimful.commands.pack_sources import histogram_counts, npy_counts, shard_counts, text_counts
from brimful.packing.config import Algorithm, Depth, PackConfig
from brimful.packing.histogram import checked_counts
from brimful.packing.side_by_side import (
    DEPTHS,
    NNLSHP_DEPTHS,
    STREAM,
    Comparison,
    best_fit_by_capacity,
)

DEFAULT_MAX_LENGTH = 512


def _counts(config: PackConfig) -> np.ndarray:
    """int64 (capacity + 1,): sequences of each length."""
    most = config.max_length or min(DEFAULT_MAX_LENGTH, config.capacity)
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


def summarise_plans(facts: Mapping[str, Any]) -> Summary:
    """How full rows get with each plan, by capacity and depth.

    Args:
        facts: what `pack` returns.
    """
    plans = facts["plans"]
    first = plans[0]
    mean = first["tokens"] / max(1, first["sequences"])
    best = max(plans, key=lambda plan: plan["efficiency"])
    verdict = (
        f"{best['algorithm']} fills {show_percent(best['efficiency'])} % of rows of {first['capacity']:,},"
        f" with {first['sequences']:,} sequences of {mean:,.1f} tokens on average."
    )
    rows = [
        [
            plan["algorithm"],
            show_depth(plan["depth"]),
            f"{plan['rows']:,}",
            show_percent(plan["efficiency"]),
            f"{plan['packing_factor']:.3f}",
            f"{plan['seconds']:.4f}" if plan["seconds"] < 0.1 else f"{plan['seconds']:.2f}",
            f"{plan['rows_above_bound']:,}",
        ]
        for plan in plans
    ]
    is_drawn = any(plan["algorithm"] == "online" and plan["sequences"] == STREAM for plan in plans)
    note = f"online packed {STREAM:,} sequences, drawn at random" if is_drawn else ""
    columns = ["Algorithm", "Depth", "Rows", "Efficiency %", "Packing factor", "Seconds", "Rows above bound"]
    tables = make_table("Plans", columns, rows, note)
    return Summary("Packing", verdict, tables + _tabulate_capacities(facts))


def _tabulate_capacities(facts: Mapping[str, Any]) -> list[SummaryTable]:
    """Efficiency by capacity and depth."""
    plans = facts["by_capacity"]
    depths = list(dict.fromkeys(plan["depth"] for plan in plans))
    rows: dict[int, list[str]] = {}
    for plan in plans:
        row = rows.setdefault(plan["capacity"], [f"{plan['capacity']:,}"])
        row.append(show_percent(plan["efficiency"]))
    columns = ["Capacity", *(f"Depth {show_depth(depth)}" for depth in depths)]
    return make_table("Efficiency % by capacity and depth (best-fit)", columns, list(rows.values()))


def show_percent(share: float) -> str:
    """A share in percent that is 100 only where nothing is left: 99.999."""
    return f"{share if share == 1 else min(share, 0.99999):.3%}".removesuffix("%")


def show_depth(depth: Depth) -> str:
    """The depth as a word: 3, none."""
    return "none" if depth is None else str(depth)


@verb(PackConfig)
def pack(config: PackConfig) -> dict[str, Any]:
    """Plan rows for prepared data, a length histogram or texts; show how close they are to the limit.

    Returns:
        `plans`, a record for each: algorithm, capacity, depth (None = no limit), rows, sequences, tokens,
        efficiency (tokens divided by token slots), packing_factor (sequences per row), seconds (of planning),
        lower_bound (the proven minimum of rows), rows_above_bound; `by_capacity`, the efficiency of best-fit
        by capacity and depth.

    Raises:
        BrimfulError: the input cannot be read, a sequence is longer than a row, or the algorithm cannot plan
            this depth.
    """
    counts = _counts(config)
    choices = _choices(config)
    if config.dry_run:
        say(f"{int(counts.sum()):,} sequences, {len(choices)} plans to make")
        return {"dry_run": True, "plans": []}
    comparison = Comparison(counts, config.capacity)
    plans: list[dict[str, Any]] = []
    best = None
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
    facts = {
        "plans": plans,
        "by_capacity": best_fit_by_capacity(counts, config.capacity),
    }
    if best is not None and config.out:
        rows = [{"lengths": p, "rows": n} for p, n in zip(best.patterns, best.repeats.tolist(), strict=True)]
        write_json(config.out, {"capacity": best.capacity, "patterns": rows})
    return with_overview(facts, summarise_plans(facts)) if plans else facts
