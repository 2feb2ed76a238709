"""An update on any number of ranks: what each computes, sends, and waits for."""

from collections.abc import Callable
from dataclasses import dataclass

from brimful.estimates.links import Links, Traffic

BACKWARD = 2 / 3
"""Of a pass."""


@dataclass(frozen=True)
class UpdateTime:
    """An update on some ranks.

    Attributes:
        rows: of the update.
        micro_batches: of the rank that has most.
        compute: seconds of passes and step.
        exposed: seconds in which ranks only wait for their links.
        traffic: of each rank.
    """

    ranks: int
    rows: int
    micro_batches: int
    compute: float
    exposed: float
    traffic: Traffic

    @property
    def seconds(self) -> float:
        """Of the update."""
        return self.compute + self.exposed


def update_time(
    ranks: int,
    rows: int,
    each: int,
    one_pass: float,
    step: float,
    sent: Traffic,
    links: Links,
    overlap: float,
) -> UpdateTime:
    """The time of an update.

    Args:
        each: rows of a micro-batch.
        one_pass: seconds of forward and backward over a micro-batch.
        step: seconds of the optimizers' step.
        sent: the traffic of a rank.
        overlap: share of a backward pass that hides traffic.
    """
    micro_batches = -(-rows // (each * ranks))
    hides = overlap * one_pass * BACKWARD
    hidden = links.seconds(sent.hidden, sent.collectives, ranks)
    last = links.seconds(sent.last, 1, ranks)
    exposed = max(last, hidden - hides)
    return UpdateTime(ranks, rows, micro_batches, micro_batches * one_pass + step, exposed, sent)


def powers(most: int) -> list[int]:
    """1, 2, 4 ... up to `most`."""
    return [1 << n for n in range(most.bit_length())]


def scaling(
    time_of: Callable[[int, int], UpdateTime], ranks: int, rows: int, tokens_per_row: float, most: int = 1024
) -> list[dict[str, float | None]]:
    """A row for each number of ranks up to `most`: powers of two, and `ranks`.

    Args:
        time_of: the time of an update, from its rows and the number of ranks.
        ranks, rows: of the run.

    Returns:
        For each number: tokens a second and efficiency (against one rank) of updates that grow with the
        ranks, as many rows on each as in the run, and of the run's own update, None where it has fewer rows
        than there are ranks.
    """
    per_rank = -(-rows // ranks)
    alone = time_of(1, per_rank)
    base = per_rank / alone.seconds
    same = rows / time_of(1, rows).seconds
    found: list[dict[str, float | None]] = []
    for count in sorted({*powers(most), ranks}):
        grown = time_of(count, per_rank * count)
        speed = per_rank * count / grown.seconds
        row: dict[str, float | None] = {
            "ranks": count,
            "update_seconds": grown.seconds,
            "exposed_seconds": grown.exposed,
            "tokens_per_second": tokens_per_row * speed,
            "efficiency": speed / (base * count),
            "same_update_tokens_per_second": None,
            "same_update_efficiency": None,
        }
        if rows >= count:
            own = rows / time_of(count, rows).seconds
            row["same_update_tokens_per_second"] = tokens_per_row * own
            row["same_update_efficiency"] = own / (same * count)
        found.append(row)
    return found
