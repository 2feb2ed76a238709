"""Patterns as slots: a slot holds a sequence of at most its own length, or none."""

import numpy as np

from brimful.packing.histogram import Plan

Runs = list[tuple[int, int]]
"""A pattern, or what fills the slots of a length, in order: (length, how many of it)."""

Patterns = list[tuple[Runs, int]]
"""Patterns with the number of rows of each."""


def unplaced(slots: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Sequences for which there is no slot, as few and as short as can be.

    Args:
        slots: int64 (m,), slots of each of m rising lengths.
        counts: int64 (m,), sequences of these lengths.

    Returns:
        int64 (m,), at most `counts`.
    """
    # From the longest on, sequences take any slot that is free; those that find none never will.
    free = np.cumsum((slots - counts)[::-1])
    short = np.maximum(-np.minimum.accumulate(free), 0)
    return np.diff(short, prepend=0)[::-1]


def fill_slots(patterns: Patterns, counts: np.ndarray, capacity: int, bound: int) -> Plan:
    """The plan that puts the longest sequence into the longest slot, and so on; empty slots go.

    Args:
        patterns: their slots hold all sequences.
        counts: int64 (capacity + 1,), number of sequences of each length.
        bound: the plan's lower bound.
    """
    slots: dict[int, int] = {}
    for runs, rows in patterns:
        for length, times in runs:
            slots[length] = slots.get(length, 0) + times * rows
    contents = _contents(slots, counts)

    filled: list[Runs] = []
    repeats: list[int] = []
    for runs, rows in patterns:
        while rows:
            # As many rows alike as the first run of each slot's content gives; at least one, of several runs.
            alike = min([rows, *(contents[length][-1][1] // times for length, times in runs)])
            alike = max(alike, 1)
            parts = [part for length, times in runs for part in _take(contents[length], times, alike)]
            if parts:
                filled.append(sorted(parts, reverse=True))
                repeats.append(alike)
            rows -= alike
    placed = [length for runs in filled for length, _ in runs]
    held = [n for runs in filled for _, n in runs]
    sizes = [sum(n for _, n in runs) for runs in filled]
    return Plan(
        capacity,
        np.repeat(np.array(placed, dtype=np.int32), np.array(held, dtype=np.int64)),
        np.cumsum([0, *sizes], dtype=np.int64),
        np.array(repeats, dtype=np.int64),
        bound,
    )


def _contents(slots: dict[int, int], counts: np.ndarray) -> dict[int, Runs]:
    """What fills the slots of each length: runs whose last comes first; length 0 stands for nothing."""
    lengths = np.flatnonzero(counts)
    sequences = [*zip(lengths.tolist(), counts[lengths].tolist(), strict=True)]
    contents: dict[int, Runs] = {}
    for slot in sorted(slots, reverse=True):
        room, runs = slots[slot], []
        while room:
            length, left = sequences.pop() if sequences else (0, room)
            runs.append((length, min(left, room)))
            if left > room:
                sequences.append((length, left - room))
            room -= min(left, room)
        contents[slot] = runs[::-1]
    return contents


def _take(content: Runs, times: int, rows: int) -> Runs:
    """Take `times` for each of `rows` rows; what a row gets. Several runs only where `rows` is 1."""
    taken, want = [], times * rows
    while want:
        length, left = content.pop()
        took = min(left, want)
        if left > took:
            content.append((length, left - took))
        if length:
            taken.append((length, took // rows))
        want -= took
    return taken
