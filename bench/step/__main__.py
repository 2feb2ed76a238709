"""One pretraining step on the CPU, in real tokens a second: Brimful's packed row against `transformers`.

The peers have the same weights and sequences, SDPA, no dropout:

    padded     every sequence padded to the length
    careful    length-grouped batches as `group_by_length` makes them (megabatches of 50 batches, sorted),
               padded to their longest: the sum over five of them, evenly spaced through a megabatch. For
               modern, `sparse_prediction` too

bench/README.md says how they are compared. Other tables: what packing itself costs by depth, what each idea
contributes.

    python -m bench.step [--models mini minilm base] [--rounds 5] [--out FILE.json]
    python -m bench.step --depth | --contributions
"""

import argparse
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import torch

from bench.common.record import Record, Row
from bench.common.workload import VOCABULARY
from bench.step.comparison import compare
from bench.step.tables import contributions, depths, show
from bench.step.variants import Cell, Variant

SEQUENCES = {"mini": 32, "minilm": 16, "base": 8}
"""Of a step, the same on both sides; 8 of other models."""
VARIANTS = {
    "brimful": Variant("brimful"),
    "brimful compiled": Variant("brimful", compile=True),
    "padded": Variant("padded"),
    "padded compiled": Variant("padded", compile=True),
    "careful": Variant("careful"),
    "careful compiled": Variant("careful", compile=True),
}
OURS = ("brimful", "brimful compiled")


def cells(options: argparse.Namespace) -> Iterator[Cell]:
    """The combinations that were asked for."""
    for model, architecture, length, dtype in itertools.product(
        options.models, options.architectures, options.lengths, options.dtypes
    ):
        yield Cell(
            model,
            architecture,
            length,
            dtype,
            options.sequences or SEQUENCES.get(model, 8),
            options.threads,
            options.vocabulary,
        )


def step_table(cell: Cell, variants: dict[str, Variant], rounds: int, record: Record) -> None:
    """Print and keep a row for each variant, and the ratios of Brimful's medians to its own."""
    n = cell.sequences
    found = compare(
        {name: (cell, variant) for name, variant in variants.items()}, rounds, saved=(n, n + max(1, n // 2))
    )
    for name, row in found.items():
        row |= _ratios(row, found)
        record.add({"table": "step", "variant": name, "cell": vars(cell), **row})
    show(cell, found, "brimful_over_it", "brimful compiled_over_it")


def _ratios(row: Row, found: dict[str, Row]) -> Row:
    """How many times as fast ours are, and could be if both sides computed at one rate."""
    ratios: Row = {}
    for name in OURS:
        ours = found.get(name, {})
        if "error" not in row and "tokens_per_second" in ours:
            ratios[f"{name}_over_it"] = ours["tokens_per_second"] / row["tokens_per_second"]
            ratios["ceiling"] = row["flops_per_token"] / ours["flops_per_token"]
    return ratios


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--models", nargs="+", default=list(SEQUENCES), help="presets, or minilm, 30m")
    parser.add_argument("--architectures", nargs="+", default=["bert"], choices=["bert", "prenorm", "modern"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[512, 128])
    parser.add_argument("--dtypes", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS, metavar="NAME")
    parser.add_argument("--sequences", type=int, help=f"of a step; by default {SEQUENCES}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--depth", action="store_true", help="what packing costs, by sequences in a row")
    parser.add_argument(
        "--contributions", action="store_true", help="each idea switched off, and all of them"
    )
    parser.add_argument("--quick", action="store_true", help="toy sizes: does it run?")
    parser.add_argument("--out", type=Path, help="write all figures to this JSON file")
    parser.set_defaults(vocabulary=VOCABULARY)
    options = parser.parse_args(arguments)
    if options.quick:
        toy = {"models": ["tiny"], "lengths": [128], "dtypes": ["fp32"], "sequences": 2, "rounds": 1}
        toy |= {"vocabulary": 1000, "variants": ["brimful", "padded", "careful"]}
        parser.set_defaults(**toy)
        options = parser.parse_args(arguments)
    return options


def main(arguments: list[str] | None = None) -> None:
    """Print the tables that were asked for, row by row."""
    options = options_of(arguments)
    record = Record(
        "step",
        ("brimful/model", "brimful/kernels", "brimful/optim"),
        options.out,
        torch=torch.__version__,
        threads=options.threads,
        rounds=options.rounds,
    )
    for cell in cells(options):
        if options.depth:
            depths(cell, options.rounds, record)
        if options.contributions:
            contributions(cell, options.rounds, record)
        if not (options.depth or options.contributions):
            chosen = {name: VARIANTS[name] for name in options.variants}
            step_table(cell, chosen, options.rounds, record)


if __name__ == "__main__":
    main()
