"""What a trace says: of the scales of a run, as powers of two, and of its losses.

A trace has, for each update, the exponent of the scale that its loss was multiplied by. "Near" is within a
factor of 4.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Literal

NEAR = 2.0
"""Octaves: a factor of 4."""
BEFORE = 20
"""So many updates before a shock have the scale that is to come back."""
MARGIN = 0.05
"""A run has stalled if its final loss is within this proportion of its first loss."""

Outcome = Literal["learned", "stalled", "diverged"]


def turn(trace: Sequence[float]) -> int | None:
    """The first update whose scale moved against the first move: the wrong start is over.

    None where it never did.
    """
    first = 0.0
    for update in range(1, len(trace)):
        move = trace[update] - trace[update - 1]
        if move * first < 0:
            return update
        first = first or move
    return None


def steady_part(trace: Sequence[float]) -> Sequence[float]:
    """The last third, or what follows the turn if that is later."""
    return trace[max(turn(trace) or 0, 2 * len(trace) // 3) :]


def steady(trace: Sequence[float]) -> float:
    """The equilibrium: the median of the steady part."""
    return statistics.median(steady_part(trace))


def oscillation(trace: Sequence[float]) -> float:
    """The farthest from the equilibrium in the steady part, in octaves."""
    middle = steady(trace)
    return max(abs(exponent - middle) for exponent in steady_part(trace))


def near_share(trace: Sequence[float]) -> float:
    """The share of the steady part that is near the equilibrium."""
    middle, part = steady(trace), steady_part(trace)
    return sum(abs(exponent - middle) <= NEAR for exponent in part) / len(part)


def recovery(trace: Sequence[float], start: int, end: int) -> int | None:
    """Updates from the end of a shock until the scale is near its value before the shock.

    Before it: the median over `BEFORE` updates. 0 where the scale never left; None where it never came back.

    Args:
        start, end: the first update of the shock, and the first after it.
    """
    before = statistics.median(trace[max(0, start - BEFORE) : start])
    back = (update for update in range(end, len(trace)) if abs(trace[update] - before) <= NEAR)
    return next((update - end for update in back), None)


def outcome(start: float, final: float | None) -> Outcome:
    """What became of a run.

    Args:
        start, final: mean losses; the final one is None or not finite where weights were not finite.
    """
    if final is None or not math.isfinite(final) or final > (1 + MARGIN) * start:
        return "diverged"
    return "learned" if final < (1 - MARGIN) * start else "stalled"
