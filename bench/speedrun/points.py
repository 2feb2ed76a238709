"""The clock of a training, and the weights that it leaves on its way."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brimful.storage import write_json

FEWEST = 6
"""Updates of a pilot: compiling slows the first one down, and another one if shapes change."""


class EnoughError(Exception):
    """A pilot has run long enough to know its pace."""


def seconds_per_update(points: Sequence[Mapping[str, Any]]) -> float:
    """Of a training, after its first point: without its start-up."""
    first, last = points[0], points[-1]
    return float(last["seconds"] - first["seconds"]) / max(1, last["updates"] - first["updates"])


@dataclass
class Points:
    """Counts seconds from the start of the process, without those that writing weights takes.

    Attributes:
        folder: gets a folder with a model, and a JSON file beside it, for each point.
        started: `time.monotonic()` of the parent before it started this process (one clock on Linux).
        pilot: seconds after the first update, and after `FEWEST`, after which a pilot ends; None: this is no
            pilot.
        reached: seconds, updates, tokens and flops of each point.
        training_since: when the first update ended: what comes before is the start-up, compiling included.
    """

    folder: Path
    started: float
    pilot: float | None = None
    reached: list[dict[str, Any]] = field(default_factory=list)
    away: float = 0.0
    training_since: float | None = None

    @property
    def seconds(self) -> float:
        """On the clock now."""
        return time.monotonic() - self.started - self.away

    def add(self, save: Callable[[Path], None], updates: int, tokens: int, flops: int) -> None:
        """A point: the clock stands still while `save` writes the model to a folder.

        Raises:
            EnoughError: this is a pilot, and it has run long enough.
        """
        stopped = time.monotonic()
        point = {"seconds": self.seconds, "updates": updates, "tokens": tokens, "flops": flops}
        self.reached.append(point)
        if self.training_since is None and updates:
            self.training_since = point["seconds"]
        if self.pilot is None:
            path = self.folder / f"{updates:07d}"
            save(path)
            write_json(path.with_suffix(".json"), point)
            self.away += time.monotonic() - stopped
        elif updates >= FEWEST and point["seconds"] - (self.training_since or 0.0) > self.pilot:
            raise EnoughError

    @property
    def pace(self) -> float:
        """Updates a second of a pilot, without the first third of its updates."""
        first = self.reached[len(self.reached) // 3]
        last = self.reached[-1]
        return (last["updates"] - first["updates"]) / max(1e-9, last["seconds"] - first["seconds"])
