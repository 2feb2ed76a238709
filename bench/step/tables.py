"""The other tables of bench/step: packing by depth, contributions of ideas."""

from dataclasses import replace

from bench.common.ideas import IDEAS
from bench.common.record import Record, Row
from bench.step.comparison import compare
from bench.step.variants import Cell, Variant

DEPTHS = {"depth 1": 1, "depth 2": 2, "depth 3": 3, "depth 8": 8, "any depth": 0}


def show(cell: Cell, found: dict[str, Row], *figures: str) -> None:
    """Print the rate of each variant, and other figures."""
    print(f"\n{cell.model} {cell.architecture} at {cell.length}, {cell.dtype}, {cell.sequences} sequences")
    for name, row in found.items():
        if "error" in row:
            print(f"{name:28} failed: {row['error']}", flush=True)
            continue
        others = ", ".join(f"{figure} {row[figure]:.2f}" for figure in figures if figure in row)
        print(f"{name:28} {row['tokens_per_second']:10,.0f} real tokens/s, {others}", flush=True)


def depths(cell: Cell, rounds: int, record: Record) -> None:
    """What is lost to packing itself, as in table 3 of Krell et al. (2021): rows of at most d sequences.

    A step has the prediction slots that training has, as many at every depth, used or not, and a per-sequence
    loss: so what differs is the layout, attention and that loss. Realised speed-up = packing factor times
    (1 - overhead).
    """
    cell = replace(cell, length=512)
    variants = {name: (cell, Variant("brimful", depth=depth)) for name, depth in DEPTHS.items()}
    found = compare(variants, rounds, same_loss=False)
    first: float | None = None
    for name, row in found.items():
        if "error" not in row:
            rate = cell.sequences / row["median_seconds"]
            first = first or rate
            factor, overhead = row["sequences_per_row"], 1 - rate / first
            row |= {"rows_per_second": rate, "overhead": overhead, "speed_up": factor * (1 - overhead)}
        record.add({"table": "depth", "variant": name, "cell": vars(cell), **row})
    show(cell, found, "sequences_per_row", "rows_per_second", "overhead", "speed_up")


def contributions(cell: Cell, rounds: int, record: Record) -> None:
    """Real tokens a second with each idea switched off, one at a time, and all of them."""
    variants = {"all ideas": (cell, Variant("brimful"))}
    variants["and compiled"] = (cell, Variant("brimful", compile=True))
    variants["and deterministic"] = (cell, Variant("brimful", deterministic=True))
    for idea in IDEAS:
        variants[f"no {idea}"] = (cell, Variant("brimful", off=(idea,)))
    wide = replace(cell, dtype="fp32")
    if cell.dtype == "bf16":
        variants["no bf16"] = (wide, Variant("brimful"))
    variants["none of them"] = (wide, Variant("brimful", off=IDEAS))
    found = compare(variants, rounds)
    ours = found["all ideas"]
    for name, row in found.items():
        if "error" not in row:
            row["all_over_it"] = ours["tokens_per_second"] / row["tokens_per_second"]
        record.add({"table": "contributions", "variant": name, "cell": vars(cell), **row})
    show(cell, found, "all_over_it", "peak_mb")
