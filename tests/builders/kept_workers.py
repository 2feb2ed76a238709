"""Worker processes of `prepare` that one test hands on to the next: starting one costs more than most of the
corpora that tests prepare."""

import os
import sys
from typing import Any, ClassVar

from brimful.corpus.engines.local_pool import LocalPool


def _surroundings() -> tuple[Any, ...]:
    """What a worker has from the moment when it was started."""
    of_no_matter = ("PYTEST_CURRENT_TEST", "COLUMNS")
    environment = {name: value for name, value in os.environ.items() if name not in of_no_matter}
    return os.getcwd(), list(sys.path), environment


class KeptPool(LocalPool):
    """A pool that leaves its idle workers to the next pool with the same surroundings."""

    kept: ClassVar[list[Any]] = []
    started_in: ClassVar[tuple[Any, ...] | None] = None

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self._surroundings = _surroundings()
        if self._surroundings == KeptPool.started_in:
            while KeptPool.kept and len(self._idle) < slots:
                self._idle.append(KeptPool.kept.pop())

    def close(self) -> None:
        self.stop()
        if self._surroundings != KeptPool.started_in:
            end_kept()
            KeptPool.started_in = self._surroundings
        KeptPool.kept += self._idle
        self._idle = []


def end_kept() -> None:
    while KeptPool.kept:
        KeptPool.kept.pop().kill()
