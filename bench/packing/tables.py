"""The tables of Packed BERT: each published histogram, algorithm and depth; and best-fit by capacity.

    python -m bench.packing.tables --out bench/results/packing_tables.json

Rows do not depend on the machine (but NNLSHP's, by a few, on the linear algebra library); seconds do.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import brimful
from bench.common.processes import machine_facts
from brimful.packing.published import PUBLISHED

CAPACITIES = (512, 1024, 2048, 4096, 8192, 65536)
COLUMNS = ("algorithm", "depth", "rows", "efficiency", "packing_factor", "seconds", "rows_above_bound")


def plan(name: str, capacity: int, **options: Any) -> list[dict[str, Any]]:
    """Return the metrics of the plans of a histogram."""
    plans = brimful.pack(histogram=name, capacity=capacity, **options)["plans"]
    return [{"histogram": name, "capacity": capacity} | {key: one[key] for key in COLUMNS} for one in plans]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    record = machine_facts("brimful/packing") | {"bench": "packing.tables", "sequences": {}, "rows": []}
    for name, path in PUBLISHED.items():
        counts = json.loads(path.read_text(encoding="utf-8"))["counts"]
        record["sequences"][name] = sum(counts)
        record["rows"] += plan(name, len(counts), algorithm="all")
    capacities = []
    for capacity in CAPACITIES:
        capacities += plan("wikipedia-512", capacity, algorithm="lpfhp", depth=(2, 3, 4, 8, 16, "none"))
    record["capacities"] = capacities
    out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
