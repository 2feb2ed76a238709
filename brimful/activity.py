"""What this process is doing: its update, the stage of it, and the collective in which it waits for others.

The main thread writes attributes, which costs less than a microsecond; brimful/ranks/heartbeat.py reads
them in another thread and tells the other ranks.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

PATIENT = frozenset({"start-up", "compilation", "evaluation", "checkpoint", "after training"})
"""Stages that may take any time, as long as the process is alive."""


class Activity:
    """The activity of one process.

    Attributes:
        update: the update that is being made, from 1; 0 outside of training.
        stage: a part of an update (see train/profiling.py), or one of `PATIENT`.
        began: when the stage began, by `time.monotonic`.
        collective: where it waits for other ranks, in words; "" where it does not.
        collectives: how many collectives it has entered. All ranks enter the same ones in the same order.
        entered: when it entered the last one.
        limit: seconds in a collective after which a missing rank ends the run; 0 = none.
    """

    def __init__(self) -> None:
        self.update = 0
        self.stage = "start-up"
        self.began = self.entered = time.monotonic()
        self.collective = ""
        self.collectives = 0
        self.limit = 600.0

    def begin(self, stage: str) -> None:
        """Another stage begins."""
        self.stage = stage
        self.began = time.monotonic()


now = Activity()
"""Of this process."""


@contextmanager
def training() -> Iterator[None]:
    """A context in which a trainer counts updates."""
    yield
    now.update = 0  # after an error, the place where it happened stays
    now.begin("after training")


class Collective:
    """A context in which this rank waits for all others.

    Args:
        what: in words that follow "in": "the sum of gradients".
    """

    __slots__ = ("what",)

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        now.collectives += 1
        now.entered = time.monotonic()
        now.collective = self.what

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        now.collective = ""
