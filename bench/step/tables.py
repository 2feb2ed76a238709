"""The other tables of bench/step: packing by depth, contributions of ideas."""

from dataclasses import replace

from bench.common.ideas import IDEAS
from bench.common.record import Record
from bench.step.comparison import compare
from bench.step.variants import Cell, Variant

DEPTHS = {"depth 1": 1, "depth 2": 2, "depth 3": 3, "depth 8": 8, "any depth": 0}


def depths(cell: Cell, rounds: int, record: Record) -> None:
    """What is lost to packing itself, as in table 3 of Krell et al. (2021): rows of at most d sequences.

    A step has the prediction slots that training has, as many at every depth, used or not, and a per-sequence
    loss: so what differs is the layout, attention and that loss. Realised speed-up = packing factor times
    (1 - overhead).
    """
    cell = replace(cell, length=512)
    variants = {name: (cell, Variant("brimful", depth=depth)) for name, depth in DEPTHS.items()}
    found = compare(variants, rounds, same_loss=False)
    print(f"\n{cell.model} {cell.architecture}, {cell.dtype}: {cell.sequences} rows of 512 a step")
    print("            sequences/row  rows/s  relative  overhead  realised speed-up", flush=True)
    first: float | None = None
    for name, row in found.items():
        if "error" not in row:
            rate = cell.sequences / row["median_seconds"]
            first = first or rate
            factor, overhead = row["sequences_per_row"], 1 - rate / first
            row |= {"rows_per_second": rate, "overhead": overhead, "speed_up": factor * (1 - overhead)}
            print(
                f"{name:11} {factor:14.3f} {rate:7.2f} {rate / first:9.3f} {overhead:9.3f}"
                f" {row['speed_up']:18.3f}",
                flush=True,
            )
        else:
            print(f"{name:11} failed: {row['error']}", flush=True)
        record.add({"table": "depth", "variant": name, "cell": vars(cell), **row})


def contributions(cell: Cell, rounds: int, compiling: bool, record: Record) -> None:
    """Real tokens a second with each idea switched off, one at a time, and all of them."""
    variants = {"all ideas": (cell, Variant("brimful"))}
    if compiling:
        variants["and compiled"] = (cell, Variant("brimful", compile=True))
    variants["and deterministic"] = (cell, Variant("brimful", deterministic=True))
    for idea in IDEAS:
        variants[f"no {idea}"] = (cell, Variant("brimful", off=(idea,)))
    wide = replace(cell, dtype="fp32")
    if cell.dtype == "bf16":
        variants["no bf16"] = (wide, Variant("brimful"))
    variants["none of them"] = (wide, Variant("brimful", off=IDEAS))
    found = compare(variants, rounds)
    print(f"\n{cell.model} {cell.architecture} at {cell.length}, {cell.dtype}, {cell.sequences} sequences")
    print(f"{'':28} real tokens/s  all ideas/it   peak MB", flush=True)
    ours = found["all ideas"]
    for name, row in found.items():
        if "error" in row:
            print(f"{name:28} failed: {row['error']}", flush=True)
        else:
            row["all_over_it"] = ours["tokens_per_second"] / row["tokens_per_second"]
            rate, ratio = row["tokens_per_second"], row["all_over_it"]
            print(f"{name:28} {rate:13,.0f} {ratio:13.2f} {row['peak_mb']:9,.0f}", flush=True)
        record.add({"table": "contributions", "variant": name, "cell": vars(cell), **row})
