"""Calls that take turns."""

import time
from collections.abc import Callable, Mapping


def alternated(
    work: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    warm_up: int = 1,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, list[float]]:
    """The seconds of each call in each round (A B A B), without the first `warm_up` rounds.

    Args:
        clock: CPU time by default, so that other work on the machine counts little.
    """
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(warm_up + rounds):
        for name, call in work.items():
            started = clock()
            call()
            if turn >= warm_up:
                seconds[name].append(clock() - started)
    return seconds
