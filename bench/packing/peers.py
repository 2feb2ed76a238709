"""What bench/packing measures: other ways to turn lengths into rows of sequence indices, and Brimful's.

Each is a function of the lengths and the capacity that does its work between the start and the stop of a
clock: inputs in the form that it likes are made before, its output is read after. It returns rows of indices.

This file runs in a process for each measurement, the peers in a virtual environment of their own: it imports
nothing of Brimful before one of Brimful's is asked for. It checks what came out, and prints the figures.

    python bench/packing/peers.py METHOD LENGTHS.npy CAPACITY
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

REQUIREMENTS = [
    "datasets==5.2.0",
    "numpy==2.4.6",
    "pyarrow==26.0.1",
    "transformers==5.23.0",
]
WITHOUT_DEPENDENCIES = ["trl==1.16.0"]  # it asks for torch by way of accelerate; packing needs neither
WARM_UP = np.random.default_rng(0).integers(1, 65, 300)  # lengths to load the compiled loops with


class Clock:
    """CPU seconds of a block, and the memory that it added at its peak (on Linux)."""

    def __enter__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts from what is held now
        self._held = self._peak_kib()
        self._cpu = time.process_time()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cpu = time.process_time() - self._cpu
        self.added_mb = (self._peak_kib() - self._held) / 1024

    @staticmethod
    def _peak_kib() -> int:
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0])


def _offsets(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


@dataclass(frozen=True)
class Rows:
    """Row r holds the sequences `order[offsets[r]:offsets[r + 1]]`; no packing has less than `bound`."""

    offsets: np.ndarray
    order: np.ndarray
    bound: int | None = None


# ---- Peers: packages from PyPI, with their own data structures


def _trl_table(lengths: np.ndarray) -> Any:
    """A column of token lists whose tokens are null, the type of no bytes: no dataset is cheaper to pack."""
    import pyarrow

    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    lists = pyarrow.LargeListArray.from_arrays(pyarrow.array(offsets), pyarrow.nulls(int(offsets[-1])))
    return pyarrow.table({"input_ids": lists})


def trl_dataset(lengths: np.ndarray, capacity: int, clock: Clock) -> Rows:
    """`pack_dataset` in its batches of 1,000 sequences.

    It tells the lengths in each row, not which sequences they are of.
    """
    import datasets
    from pyarrow import compute
    from trl import pack_dataset

    datasets.disable_progress_bars()
    dataset = datasets.Dataset(_trl_table(lengths))
    with clock:
        packed = pack_dataset(dataset, capacity, strategy="bfd")
    rows = packed.with_format("arrow").data.column("seq_lengths")
    placed = compute.list_flatten(rows).to_numpy()
    if not np.array_equal(np.bincount(placed), np.bincount(lengths)):
        sys.exit("TRL's rows hold other lengths")
    order = np.empty(len(lengths), dtype=np.int64)  # sequences of one length are alike: dealt in order
    order[np.argsort(placed, kind="stable")] = np.argsort(lengths, kind="stable")
    return Rows(_offsets(compute.list_value_length(rows).to_numpy()), order)


# ---- Peers: SPFHP and LPFHP of Krell et al. (2021, arXiv 2107.02027)


def _pack_first(counts: np.ndarray, capacity: int, longest: bool) -> list[tuple[int, tuple[int, ...]]]:
    """SPFHP, or LPFHP: lengths from long to short, each into open rows, grouped by pattern and space.

    Returns:
        how many rows follow each pattern of lengths.
    """
    groups: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in range(capacity + 1)]
    for length in range(capacity, 0, -1):
        left = int(counts[length])
        while left:
            spaces = range(length, capacity) if longest else range(capacity - 1, length - 1, -1)
            space = next((space for space in spaces if groups[space]), capacity)
            rows, pattern = groups[space].pop() if space < capacity else (left, ())
            times = min(space // length, left) if longest else 1
            taken = min(rows, left // times)
            if taken < rows and pattern:
                groups[space].append((rows - taken, pattern))
            groups[space - times * length].append((taken, pattern + (length,) * times))
            left -= taken * times
    return [group for groups_of_space in groups for group in groups_of_space]


def textbook_rows(lengths: np.ndarray, capacity: int, clock: Clock, longest: bool) -> Rows:
    """SPFHP or LPFHP, and slices of sequences for the places, random within equal lengths."""
    with clock:
        counts = np.bincount(lengths, minlength=capacity + 1)
        short = lengths.astype(np.min_scalar_type(capacity))  # up to 16 bits, numpy sorts by radix
        shuffled = np.random.default_rng(0).permutation(len(lengths))
        by_length = shuffled[np.argsort(short[shuffled], kind="stable")]
        used = _offsets(counts).tolist()
        blocks, sizes = [], []
        for rows, pattern in _pack_first(counts, capacity, longest):
            block = np.empty((rows, len(pattern)), dtype=np.int64)
            for place, length in enumerate(pattern):
                block[:, place] = by_length[used[length] : used[length] + rows]
                used[length] += rows
            blocks.append(block.ravel())
            sizes.append(np.full(rows, len(pattern)))
        return Rows(_offsets(np.concatenate(sizes)), np.concatenate(blocks))


# ---- Brimful's


def brimful_rows(lengths: np.ndarray, capacity: int, clock: Clock, plan: str) -> Rows:
    """Lengths -> histogram -> plan -> rows of indices, random within equal lengths."""
    from brimful.base.randomness import derive_key
    from brimful.packing.assignment import assign
    from brimful.packing.cutting_stock import cutting_stock
    from brimful.packing.histogram import count_lengths
    from brimful.packing.pack_first import best_fit

    make = {"cutting_stock": cutting_stock, "best_fit": best_fit}[plan]

    def pack(lengths: np.ndarray, capacity: int) -> Rows:
        made = make(count_lengths(lengths), capacity)
        return Rows(*assign(made, lengths, derive_key(0, "rows", 0)), made.lower_bound)

    pack(WARM_UP.astype(lengths.dtype), 64)
    with clock:
        return pack(lengths, capacity)


METHODS: dict[str, Callable[[np.ndarray, int, Clock], Rows]] = {
    "brimful cutting stock": partial(brimful_rows, plan="cutting_stock"),
    "brimful best-fit": partial(brimful_rows, plan="best_fit"),
    "TRL pack_dataset": trl_dataset,
    "textbook SPFHP": partial(textbook_rows, longest=False),
    "textbook LPFHP": partial(textbook_rows, longest=True),
}


def check(found: Rows, lengths: np.ndarray, capacity: int) -> int:
    """How many rows there are, if every sequence has its place and no row is too long."""
    fits = np.add.reduceat(lengths[found.order], found.offsets[:-1], dtype=np.int64) <= capacity
    once = len(found.order) == len(lengths) and (np.bincount(found.order) == 1).all()
    if not (fits.all() and once and (np.diff(found.offsets) > 0).all()):
        sys.exit("a row is too long, or a sequence is not in exactly one of them")
    return len(found.offsets) - 1


def main() -> None:
    """Pack, check, and print the result as a JSON object."""
    name, file, capacity = sys.argv[1:]
    lengths, clock = np.load(file), Clock()
    found = METHODS[name](lengths, int(capacity), clock)
    facts = {
        "cpu": clock.cpu,
        "added_mb": clock.added_mb,
        "rows": check(found, lengths, int(capacity)),
        "bound": found.bound,
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
