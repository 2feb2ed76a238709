"""The verb `brimful pack`: how full rows get with each algorithm, and how close that is to the bound."""

import time
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy import ndarray

from brimful.base.config import verb
from brimful.base.console import say, show_progress, warn
from brimful.base.errors import BrimfulError
from brimful.base.randomness import derive_key
from brimful.base.storage import write_json
from brimful.base.summary import Summary, make_table, with_overview
from brimful.base.types import Values
from brimful.corpus.shards import Corpus
from brimful.data.config import SPECIAL_TOKENS, SequencesConfig
from brimful.data.sequences import cut_documents
from brimful.packing.config import Algorithm, Depth, PackConfig
from brimful.packing.cutting_stock import cutting_stock
from brimful.packing.histogram import Plan, check_counts, count_lengths
from brimful.packing.least_squares import nnlshp
from brimful.packing.pack_first import lpfhp
from brimful.packing.published import read_histogram
from brimful.packing.shortest_first import spfhp

PLANNERS: dict[Algorithm, Callable[[ndarray, int, Depth], Plan]] = {
    "spfhp": spfhp,
    "lpfhp": lpfhp,
    "nnlshp": nnlshp,
    "cutting-stock": cutting_stock,
}
DEPTHS: tuple[Depth, ...] = (2, 3, 4, 8, 16, None)
"""The limits on sequences per row that are compared; None means no limit."""
NNLSHP_DEPTHS = (2, 3)
"""Depths for NNLSHP, which would have too many patterns with more sequences in a row."""


def _count_lengths(config: PackConfig) -> ndarray:
    """Return int64 (capacity + 1,): the number of sequences of each length."""
    if config.data is None:
        counts = read_histogram(str(config.histogram))
    else:
        corpus = Corpus.open(config.data, verify=True)
        documents = np.arange(corpus.documents)
        max_tokens = config.longest - SPECIAL_TOKENS
        pieces = cut_documents(corpus, documents, max_tokens, SequencesConfig(), derive_key("pack"))
        counts = count_lengths(pieces.end - pieces.begin + SPECIAL_TOKENS)
    return check_counts(counts, config.capacity)


def _choose_plans(config: PackConfig) -> list[tuple[Algorithm, Depth]]:
    """Return the algorithms and depths to compare."""
    depths: list[Depth] = [None if depth == "none" else depth for depth in config.depth]
    if config.algorithm != "all":
        default = 3 if config.algorithm == "nnlshp" else None
        return [(config.algorithm, depth) for depth in depths or [default]]
    choices = []
    for name in PLANNERS:
        for depth in depths or DEPTHS:
            if name != "nnlshp" or depth in NNLSHP_DEPTHS:
                choices.append((name, depth))
    return choices


def summarise_plans(facts: Values) -> Summary:
    """Return how full rows get with each plan: the result of `pack`, as a screen shows it."""
    plans = facts["plans"]
    first = plans[0]
    mean = first["tokens"] / max(1, first["sequences"])
    best = max(plans, key=lambda plan: plan["efficiency"])
    verdict = (
        f"{best['algorithm']} fills {show_percent(best['efficiency'])} % of rows of {first['capacity']:,},"
        f" with {first['sequences']:,} sequences of {mean:,.1f} tokens on average."
    )
    rows = []
    for plan in plans:
        row = [plan["algorithm"], str(plan["depth"]).lower(), f"{plan['rows']:,}"]
        row += [show_percent(plan["efficiency"]), f"{plan['packing_factor']:.3f}"]
        digits = 4 if plan["seconds"] < 0.1 else 2
        rows.append([*row, f"{plan['seconds']:.{digits}f}", f"{plan['rows_above_bound']:,}"])
    # Short titles: a screen of 80 columns has room for all.
    columns = ["Algorithm", "Depth", "Rows", "Full %", "Factor", "Seconds", "Above bound"]
    note = "full: efficiency; factor: sequences a row; above bound: rows above the proven minimum"
    return Summary("Packing", verdict, make_table("Plans", columns, rows, note))


def show_percent(share: float) -> str:
    """Return a share in percent. Only a share of 1 becomes 100: others are at most 99.999."""
    if share < 1:
        share = min(share, 0.99999)
    return f"{share:.3%}".removesuffix("%")


@verb(PackConfig)
def pack(config: PackConfig) -> Values:
    """Plan rows for prepared data or a length histogram; show how close they are to the bound.

    Returns:
        `plans`, a record for each: algorithm, capacity, depth (None = no limit), rows, sequences, tokens,
        efficiency (tokens divided by token slots), packing_factor (sequences per row), seconds (of planning),
        lower_bound (the proven minimum of rows), rows_above_bound.

    Raises:
        BrimfulError: the input cannot be read, a sequence is longer than a row, or the algorithm cannot plan
            this depth.
    """
    counts = _count_lengths(config)
    choices = _choose_plans(config)
    if config.dry_run:
        say(f"{int(counts.sum()):,} sequences, {len(choices)} plans to make")
        return {"dry_run": True, "plans": []}

    @cache
    def find_bound(depth: Depth) -> int:
        """Return the bound of cutting stock's linear program, which holds for all algorithms."""
        return cutting_stock(counts, config.capacity, depth).lower_bound

    plans = []
    best: Plan | None = None
    with show_progress("planning", len(choices)) as advance:
        for algorithm, depth in choices:
            # Loads the compiled loops, which takes longer than a plan.
            PLANNERS[algorithm](np.array([0, 1]), 8, 1)
            started = time.perf_counter()
            try:
                plan = PLANNERS[algorithm](counts, config.capacity, depth)
                seconds = time.perf_counter() - started
            except BrimfulError as error:
                if config.algorithm != "all":
                    raise
                warn(f"left out: {error}")
                advance()
                continue
            facts: Values = {"algorithm": algorithm, "capacity": config.capacity, "depth": depth}
            for name in ("rows", "sequences", "tokens", "efficiency", "packing_factor"):
                facts[name] = getattr(plan, name)
            facts |= {"seconds": seconds, "lower_bound": find_bound(depth)}
            plans.append(facts | {"rows_above_bound": plan.rows - find_bound(depth)})
            if best is None or plan.rows < best.rows:
                best = plan
            advance()
    result: Values = {"plans": plans}
    if best is None:
        return result
    if config.out:
        patterns = []
        for lengths, rows in zip(best.patterns, best.repeats.tolist(), strict=True):
            patterns.append({"lengths": lengths, "rows": rows})
        write_json(config.out, {"capacity": best.capacity, "patterns": patterns})
    return with_overview(result, summarise_plans(result))
