"""What bench/packing measures: other ways to turn lengths into rows of sequence indices, and Brimful's.

Each is a function of the lengths and the capacity that does its work between the start and the stop of a
clock: inputs in the form that it likes are made before, its output is read after. It returns rows of indices,
or, where the histogram is all that it packs, patterns of lengths and how many rows follow each.

This file runs in a process for each measurement, the peers in a virtual environment of their own: it imports
nothing of Brimful before one of Brimful's is asked for. It checks what came out, and prints the figures.

    python bench/packing/peers.py GROUP METHOD LENGTHS.npy CAPACITY
"""

import json
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

REQUIREMENTS = [
    "binpacking==2.0.1",
    "datasets==5.2.0",
    "numpy==2.4.6",
    "prtpy==0.8.3",
    "pyarrow==26.0.1",
    "scipy==1.17.1",
    "transformers==5.23.0",
]
WITHOUT_DEPENDENCIES = ["trl==1.16.0"]  # it asks for torch by way of accelerate; packing needs neither
WARM_UP = np.random.default_rng(0).integers(1, 65, 300)  # lengths to load the compiled loops with


class Clock:
    """CPU and wall seconds of a block, and the memory that it added at its peak (on Linux)."""

    def __enter__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from what is held now
        self._held = self._peak_kib()
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cpu, self.wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
        self.peak_mb = self._peak_kib() / 1024
        self.added_mb = self.peak_mb - self._held / 1024

    @staticmethod
    def _peak_kib() -> int:
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0])


def _offsets(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


@dataclass(frozen=True)
class Rows:
    """Row r holds the sequences `order[offsets[r]:offsets[r + 1]]`."""

    offsets: np.ndarray
    order: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[Collection[int]]) -> "Rows":
        """From a list of rows."""
        sizes = np.fromiter(map(len, rows), np.int64, len(rows))
        return cls(_offsets(sizes), np.fromiter(chain.from_iterable(rows), np.int64))


@dataclass(frozen=True)
class Patterns:
    """`repeats[i]` rows follow `patterns[i]`; a place stays empty where no sequence is left for it."""

    patterns: list[tuple[int, ...]]
    repeats: list[int]
    lower_bound: int | None = None


# ---- Peers: packages from PyPI, with their own data structures


def _trl_table(lengths: np.ndarray) -> Any:
    """A column of token lists whose tokens are null, the type of no bytes: no dataset is cheaper to pack."""
    import pyarrow

    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    lists = pyarrow.LargeListArray.from_arrays(pyarrow.array(offsets), pyarrow.nulls(int(offsets[-1])))
    return pyarrow.table({"input_ids": lists})


def trl_dataset(lengths: np.ndarray, capacity: int, clock: Clock, batch: int | None = None) -> Rows:
    """`pack_dataset` in batches of sequences, or in one.

    It tells the lengths in each row, not which sequences they are of.
    """
    import datasets
    from pyarrow import compute
    from trl import pack_dataset

    datasets.disable_progress_bars()
    dataset = datasets.Dataset(_trl_table(lengths))
    with clock:
        packed = pack_dataset(dataset, capacity, strategy="bfd", map_kwargs={"batch_size": batch})
    rows = packed.with_format("arrow").data.column("seq_lengths")
    placed = compute.list_flatten(rows).to_numpy()
    if not np.array_equal(np.bincount(placed), np.bincount(lengths)):
        sys.exit("TRL's rows hold other lengths")
    order = np.empty(len(lengths), dtype=np.int64)  # sequences of one length are alike: dealt in order
    order[np.argsort(placed, kind="stable")] = np.argsort(lengths, kind="stable")
    return Rows(_offsets(compute.list_value_length(rows).to_numpy()), order)


def trl_no_tokens(lengths: np.ndarray, capacity: int, clock: Clock) -> Rows:
    """What `pack_dataset` does, all sequences at once, but for the tokens.

    Its function sees empty token lists, is told the lengths, and moves no tokens when it has packed.
    """
    from types import SimpleNamespace
    from unittest import mock

    import pyarrow
    from pyarrow import compute
    from trl import data_utils

    true_lengths, no_tokens = pyarrow.array(lengths), pyarrow.nulls(int(lengths.sum(dtype=np.int64)))
    empty = pyarrow.LargeListArray.from_arrays(np.zeros(len(lengths) + 1, dtype=np.int64), no_tokens)
    orders: list[list[int]] = []

    def take(table: Any, indices: list[int]) -> Any:
        orders.append(indices)
        return pyarrow.table({"input_ids": empty, "seq_lengths": compute.take(table["seq_lengths"], indices)})

    seen = vars(compute) | {"list_value_length": lambda _: true_lengths, "take": take}
    with mock.patch.object(data_utils, "pc", SimpleNamespace(**seen)), clock:
        packed = data_utils._pack_bfd(pyarrow.table({"input_ids": empty}), capacity)
    sizes = np.diff(packed.column("seq_lengths").chunk(0).offsets.to_numpy())
    return Rows(_offsets(sizes), np.array(orders[0]))


def binpacking(lengths: np.ndarray, capacity: int, clock: Clock) -> Rows:
    """`to_constant_volume`: puts each sequence into the fullest bin with room, after a look at all bins."""
    from binpacking import to_constant_volume

    weights = dict(enumerate(lengths.tolist()))
    with clock:
        bins = to_constant_volume(weights, capacity)
    return Rows.of(bins)


def prtpy(lengths: np.ndarray, capacity: int, clock: Clock) -> Rows:
    """First-fit decreasing, looking through all bins."""
    from prtpy import pack, packing

    items = dict(enumerate(lengths.tolist()))
    with clock:
        bins = pack(packing.first_fit_decreasing, capacity, items)
    return Rows.of(bins)


# ---- Peers: first-fit decreasing as it is written down


def first_fit_scan(lengths: np.ndarray, capacity: int, clock: Clock) -> Rows:
    """First-fit decreasing in numpy: compare the space of all bins, take the first that is enough."""
    with clock:
        space = np.full(len(lengths), capacity, dtype=np.int32)
        bins: list[list[int]] = []
        for index in np.argsort(-lengths, kind="stable").tolist():
            length = lengths[index]
            # One bin more than there are: the empty one always fits.
            chosen = int((space[: len(bins) + 1] >= length).argmax())
            if chosen == len(bins):
                bins.append([])
            bins[chosen].append(index)
            space[chosen] -= length
    return Rows.of(bins)


def first_fit_tree(lengths: np.ndarray, capacity: int, clock: Clock) -> Rows:
    """First-fit decreasing with a tree over the bins, whose nodes hold the largest space below them."""
    with clock:
        leaves = 1 << (len(lengths) - 1).bit_length()
        space = [capacity] * (2 * leaves)
        bins: list[list[int]] = []
        order = np.argsort(-lengths, kind="stable")
        for index, length in zip(order.tolist(), lengths[order].tolist(), strict=True):
            node = 1
            while node < leaves:
                node *= 2
                if space[node] < length:
                    node += 1
            if node - leaves == len(bins):
                bins.append([])
            bins[node - leaves].append(index)
            space[node] -= length
            while node > 1:
                node //= 2
                left, right = space[2 * node], space[2 * node + 1]
                largest = left if left >= right else right
                if space[node] == largest:
                    break
                space[node] = largest
    return Rows.of(bins)


# ---- Peers: the algorithms of Krell et al. (2021, arXiv 2107.02027), from the paper


def _pack_first(counts: np.ndarray, capacity: int, longest: bool) -> Patterns:
    """SPFHP, or LPFHP: lengths from long to short, each into open rows, grouped by pattern and space."""
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
    flat = [group for groups_of_space in groups for group in groups_of_space]
    return Patterns([pattern for _, pattern in flat], [rows for rows, _ in flat])


def textbook_rows(
    lengths: np.ndarray, capacity: int, clock: Clock, longest: bool, shuffle: bool = True
) -> Rows:
    """SPFHP or LPFHP, and slices of sequences for the places: random within equal lengths, or in order."""
    with clock:
        counts = np.bincount(lengths, minlength=capacity + 1)
        found = _pack_first(counts, capacity, longest)
        short = lengths.astype(np.min_scalar_type(capacity))  # up to 16 bits, numpy sorts by radix
        if shuffle:
            shuffled = np.random.default_rng(0).permutation(len(lengths))
            by_length = shuffled[np.argsort(short[shuffled], kind="stable")]
        else:
            by_length = np.argsort(short, kind="stable")
        used = _offsets(counts).tolist()
        blocks, sizes = [], []
        for pattern, rows in zip(found.patterns, found.repeats, strict=True):
            block = np.empty((rows, len(pattern)), dtype=np.int64)
            for place, length in enumerate(pattern):
                block[:, place] = by_length[used[length] : used[length] + rows]
                used[length] += rows
            blocks.append(block.ravel())
            sizes.append(np.full(rows, len(pattern)))
        return Rows(_offsets(np.concatenate(sizes)), np.concatenate(blocks))


def textbook_plan(lengths: np.ndarray, capacity: int, clock: Clock, longest: bool) -> Patterns:
    """SPFHP or LPFHP on the histogram."""
    counts = np.bincount(lengths, minlength=capacity + 1)
    with clock:
        return _pack_first(counts, capacity, longest)


def textbook_nnlshp(lengths: np.ndarray, capacity: int, clock: Clock) -> Patterns:
    """NNLSHP at depth 3: scipy's solver on the matrix of all rows of up to 3 lengths without padding.

    Errors on lengths up to 8 weigh 0.09 as much; counts are rounded, and a sequence that is left over gets a
    row with one of the length that fills it up.
    """
    from scipy.optimize import nnls

    counts = np.bincount(lengths, minlength=capacity + 1)
    with clock:
        patterns = [
            tuple(length for length in (a, b, capacity - a - b) if length)
            for a in range(capacity // 3 + 1)
            for b in range(a, (capacity - a) // 2 + 1)
        ]
        matrix = np.zeros((capacity + 1, len(patterns)))
        for column, pattern in enumerate(patterns):
            for length in pattern:
                matrix[length, column] += 1
        weights = np.where(np.arange(capacity + 1) <= 8, 0.09, 1.0)
        fit, _ = nnls(weights[:, None] * matrix, weights * counts)
        repeats = np.rint(fit).astype(np.int64)
        missing = counts - (matrix @ repeats).astype(np.int64)
        found = Patterns([*patterns], repeats.tolist())
        for length in np.flatnonzero(missing > 0).tolist():
            pair = (length, capacity - length) if length < capacity else (length,)
            found.patterns.append(pair)
            found.repeats.append(int(missing[length]))
    return found


# ---- Brimful's


def brimful_rows(lengths: np.ndarray, capacity: int, clock: Clock, plan: str) -> Rows:
    """Lengths -> histogram -> plan -> rows of indices, random within equal lengths."""
    from brimful import packing
    from brimful.randomness import derive_key

    make = getattr(packing, plan)

    def pack(lengths: np.ndarray, capacity: int) -> tuple[np.ndarray, np.ndarray]:
        made = make(packing.count_lengths(lengths), capacity)
        return packing.assign(made, lengths, derive_key(0, "rows", 0))

    pack(WARM_UP.astype(lengths.dtype), 64)
    with clock:
        offsets, order = pack(lengths, capacity)
    return Rows(offsets, order)


def brimful_online(lengths: np.ndarray, capacity: int, clock: Clock) -> Rows:
    """A stream, a buffer of 1,024 sequences; the histogram is not known."""
    from brimful.packing import pack_stream

    stream = lengths.tolist()
    with clock:
        rows = list(pack_stream(stream, capacity))
    return Rows.of(rows)


def brimful_plan(
    lengths: np.ndarray, capacity: int, clock: Clock, plan: str, depth: int | None = None
) -> Patterns:
    """A plan on the histogram."""
    from brimful import packing

    make, counts = getattr(packing, plan), packing.count_lengths(lengths)
    make(packing.count_lengths(WARM_UP), 64, depth)
    with clock:
        found = make(counts, capacity, depth)
    return Patterns(found.patterns, found.repeats.tolist(), found.lower_bound)


@dataclass(frozen=True)
class Method:
    """A way to pack.

    Attributes:
        run: what it does.
        brimful: it is Brimful's.
        most: sequences that it can be asked to pack; beyond, it takes hours or more memory than there is.
    """

    run: Callable[[np.ndarray, int, Clock], Rows | Patterns]
    brimful: bool = False
    most: int | None = None


# By what comes out. The first of each group is what the others are compared with.
GROUPS = {
    "rows of sequence indices": {
        "brimful cutting stock": Method(partial(brimful_rows, plan="cutting_stock"), brimful=True),
        "brimful best-fit": Method(partial(brimful_rows, plan="best_fit"), brimful=True),
        "brimful online": Method(brimful_online, brimful=True, most=1_000_000),
        "TRL pack_dataset": Method(partial(trl_dataset, batch=1000)),
        "TRL pack_dataset, one batch": Method(trl_dataset, most=1_000_000),
        "TRL pack_dataset, no tokens": Method(trl_no_tokens),
        "numpy first-fit, scan": Method(first_fit_scan, most=1_000_000),
        "numpy first-fit, tree": Method(first_fit_tree),
        "binpacking": Method(binpacking, most=20_000),
        "prtpy first-fit": Method(prtpy, most=20_000),
        "textbook SPFHP": Method(partial(textbook_rows, longest=False)),
        "textbook LPFHP": Method(partial(textbook_rows, longest=True)),
        "textbook LPFHP, unshuffled": Method(partial(textbook_rows, longest=True, shuffle=False)),
    },
    "plan": {
        "brimful cutting stock": Method(partial(brimful_plan, plan="cutting_stock"), brimful=True),
        "brimful best-fit (LPFHP)": Method(partial(brimful_plan, plan="lpfhp"), brimful=True),
        "brimful SPFHP": Method(partial(brimful_plan, plan="spfhp"), brimful=True),
        "textbook SPFHP": Method(partial(textbook_plan, longest=False)),
        "textbook LPFHP": Method(partial(textbook_plan, longest=True)),
    },
    "plan of at most 3 in a row": {
        "brimful cutting stock": Method(partial(brimful_plan, plan="cutting_stock", depth=3), brimful=True),
        "brimful NNLSHP": Method(partial(brimful_plan, plan="nnlshp", depth=3), brimful=True),
        "textbook NNLSHP": Method(textbook_nnlshp),
    },
}


def check(found: Rows | Patterns, lengths: np.ndarray, capacity: int) -> int:
    """How many rows there are, if every sequence has its place and no row is too long."""
    if isinstance(found, Rows):
        fits = np.add.reduceat(lengths[found.order], found.offsets[:-1], dtype=np.int64) <= capacity
        once = len(found.order) == len(lengths) and (np.bincount(found.order) == 1).all()
        if not (fits.all() and once and (np.diff(found.offsets) > 0).all()):
            sys.exit("a row is too long, or a sequence is not in exactly one of them")
        return len(found.offsets) - 1
    places = np.zeros(capacity + 1, dtype=np.int64)
    for pattern, rows in zip(found.patterns, found.repeats, strict=True):
        np.add.at(places, list(pattern), rows)
    if (places < np.bincount(lengths, minlength=capacity + 1)).any():
        sys.exit("a sequence has no place")
    if any(sum(pattern) > capacity for pattern in found.patterns) or min(found.repeats) < 0:
        sys.exit("a row is too long")
    return sum(found.repeats)


def main() -> None:
    """Pack, check, and print the result as a JSON object."""
    group, name, file, capacity = sys.argv[1:]
    lengths, clock = np.load(file), Clock()
    found = GROUPS[group][name].run(lengths, int(capacity), clock)
    facts = {
        "cpu": clock.cpu,
        "wall": clock.wall,
        "peak_mb": clock.peak_mb,
        "added_mb": clock.added_mb,
        "rows": check(found, lengths, int(capacity)),
    }
    if isinstance(found, Patterns) and found.lower_bound is not None:
        facts["lower_bound"] = found.lower_bound
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
