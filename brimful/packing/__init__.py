"""Packing: which sequences share a row. A library of its own, for lengths of any kind (numpy, scipy, numba).

    counts = packing.count_lengths(lengths)
    plan = packing.cutting_stock(counts, capacity=512)
    row_offsets, order = packing.assign(plan, lengths, key=0)

Row r then holds the sequences `order[row_offsets[r]:row_offsets[r + 1]]`. Names are resolved when first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "Plan": "histogram",
    "count_lengths": "histogram",
    "lower_bound": "bounds",
    "cutting_stock": "cutting.plan",
    "best_fit": "pack_first",
    "spfhp": "pack_first",
    "lpfhp": "pack_first",
    "nnlshp": "least_squares",
    "assign": "assignment",
    "OnlinePacker": "online",
    "pack_stream": "online",
    "row_costs": "dealing",
    "deal": "dealing",
    "imbalance": "dealing",
    "suggest": "hyperparameters",
}

__all__ = [  # noqa: RUF022 (in the order of use)
    "Plan",
    "count_lengths",
    "lower_bound",
    "cutting_stock",
    "best_fit",
    "spfhp",
    "lpfhp",
    "nnlshp",
    "assign",
    "OnlinePacker",
    "pack_stream",
    "row_costs",
    "deal",
    "imbalance",
    "suggest",
]

if TYPE_CHECKING:
    from brimful.packing.assignment import assign
    from brimful.packing.bounds import lower_bound
    from brimful.packing.cutting.plan import cutting_stock
    from brimful.packing.dealing import deal, imbalance, row_costs
    from brimful.packing.histogram import Plan, count_lengths
    from brimful.packing.hyperparameters import suggest
    from brimful.packing.least_squares import nnlshp
    from brimful.packing.online import OnlinePacker, pack_stream
    from brimful.packing.pack_first import best_fit, lpfhp, spfhp


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"brimful.packing.{_HOME[name]}"), name)
    raise AttributeError(f"module 'brimful.packing' has no attribute {name!r}")
