"""How ranks keep pace: which one is the slowest, how long the others wait for it, and how long sums take.

Ranks go from update to update together, so a rank that needs more time for its own work spends less time in
sums over ranks. The time in sums is measured, by each rank's own clock and as durations only: on a CPU that
of the main thread, on CUDA that of the stream of the computation, which waits for the sums of gradients.

On a CPU a rank may also wait for a core, which others have.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import torch

from brimful.base.distributed import World
from brimful.base.environment import number_of
from brimful.base.resources import CoreWatch


class Pace:
    """How long this rank summed over ranks, or waited to, and had no cores, since the last metrics."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._cuda = world.device.type == "cuda"
        self._seconds = 0.0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._cores = CoreWatch(number_of("LOCAL_WORLD_SIZE", 1) if world.size > 1 else 1)

    @contextmanager
    def summing(self, *, gradients: bool = False) -> Iterator[None]:
        """A context in which this rank sums over ranks.

        Args:
            gradients: whether it sums gradients. On CUDA, where the host runs ahead, only these count.
        """
        if self.world.size == 1 or (self._cuda and not gradients):
            yield
        elif self._cuda:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            yield
            end.record()
            self._events.append((begin, end))
        else:
            started = time.perf_counter()
            yield
            self._seconds += time.perf_counter() - started

    def metrics(self, seconds: float) -> dict[str, float]:
        """See `compare`, and on a CPU `CoreUse`. All ranks call it, after their devices have done their work.

        Args:
            seconds: of training since the last line of metrics.
        """
        cores = {} if self._cuda else asdict(self._cores.look(torch.get_num_threads()))
        if self.world.size == 1:
            return cores
        own = self._seconds + sum(begin.elapsed_time(end) for begin, end in self._events) / 1e3
        self._seconds, self._events = 0.0, []
        before = [0.0] * self.world.rank
        after = [0.0] * (self.world.size - self.world.rank - 1)
        numbers = self.world.sum([*before, own, *after, *before, seconds, *after])
        return compare(numbers[: self.world.size], numbers[self.world.size :]) | cores


def compare(summing: list[float], seconds: list[float]) -> dict[str, float]:
    """How ranks keep pace.

    Args:
        summing: each rank's seconds in sums over ranks.
        seconds: each rank's seconds in all.

    Returns:
        slowest_rank: the rank with the most time outside of sums.
        lag: how much more that is than the mean of all ranks, as a proportion of the time: what a rank waits
            for the slowest one.
        communication: the proportion of the time that the slowest rank spends in sums, in which it waits for
            nobody.
    """
    own = [each - inside for each, inside in zip(seconds, summing, strict=True)]
    slowest = max(range(len(own)), key=own.__getitem__)
    mean = sum(seconds) / len(seconds)
    return {
        "slowest_rank": slowest,
        "lag": (own[slowest] - sum(own) / len(own)) / mean,
        "communication": summing[slowest] / seconds[slowest],
    }
