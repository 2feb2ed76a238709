"""Packing: which sequences share a row. A library of its own, for lengths of any kind (numpy, scipy, numba).

    counts = packing.count_lengths(lengths)
    plan = packing.cutting_stock(counts, capacity=512)
    row_offsets, order = packing.assign(plan, lengths, key=0)

Row r then holds the sequences `order[row_offsets[r]:row_offsets[r + 1]]`. Names are resolved when first used.
"""

from typing import TYPE_CHECKING

from brimful.base.lazy import lazy_names

if TYPE_CHECKING:
    from brimful.packing.assignment import assign as assign
    from brimful.packing.bounds import lower_bound as lower_bound
    from brimful.packing.cutting.stock import cutting_stock as cutting_stock
    from brimful.packing.dealing import deal as deal
    from brimful.packing.dealing import imbalance as imbalance
    from brimful.packing.dealing import row_costs as row_costs
    from brimful.packing.histogram import Plan as Plan
    from brimful.packing.histogram import count_lengths as count_lengths
    from brimful.packing.hyperparameters import suggest as suggest
    from brimful.packing.least_squares import nnlshp as nnlshp
    from brimful.packing.online import pack_stream as pack_stream
    from brimful.packing.pack_first import best_fit as best_fit
    from brimful.packing.pack_first import lpfhp as lpfhp
    from brimful.packing.pack_first import spfhp as spfhp

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "Plan": "histogram",
        "count_lengths": "histogram",
        "lower_bound": "bounds",
        "cutting_stock": "cutting.stock",
        "best_fit": "pack_first",
        "spfhp": "pack_first",
        "lpfhp": "pack_first",
        "nnlshp": "least_squares",
        "assign": "assignment",
        "pack_stream": "online",
        "row_costs": "dealing",
        "deal": "dealing",
        "imbalance": "dealing",
        "suggest": "hyperparameters",
    },
)
