"""The clock of a training, and the weights that it leaves on its way."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brimful.errors import BrimfulError
from brimful.storage import write_json

FEWEST = 6
"""Updates of a pilot: compiling slows the first one down, and another one if shapes change."""
NUMBER = 8
"""Points of a training, the last one at its end."""


class EnoughError(Exception):
    """A pilot has run long enough to know its pace."""


def seconds_per_update(points: Sequence[Mapping[str, Any]]) -> float:
    """Of a training, after its first point: without its start-up."""
    first, last = points[0], points[-1]
    return float(last["seconds"] - first["seconds"]) / max(1, last["updates"] - first["updates"])


@dataclass(frozen=True)
class Length:
    """How long a training is: one of three.

    Attributes:
        updates: their number.
        seconds: on its clock, the start-up included.
        pilot: seconds after the first update, and after `FEWEST`.
    """

    updates: int | None = None
    seconds: float | None = None
    pilot: float | None = None


@dataclass
class Points:
    """Counts seconds from the start of the process, without those that writing weights takes.

    Attributes:
        folder: gets a folder with a model, and a JSON file beside it, for each point; nothing from a pilot.
        started: `time.monotonic()` of the parent before it started this process (one clock on Linux).
        reached: seconds, updates, tokens and flops of each point; a pilot has one after each update.
        training_since: when the first update ended: what comes before is the start-up, compiling included.
    """

    folder: Path
    started: float
    length: Length
    reached: list[dict[str, Any]] = field(default_factory=list)
    away: float = 0.0
    training_since: float | None = None

    @property
    def seconds(self) -> float:
        """On the clock now."""
        return time.monotonic() - self.started - self.away

    def done(self, updates: int) -> float:
        """The proportion of the training that is done, of its updates or of its seconds after the start-up; 0
        in a pilot."""
        if self.length.updates is not None:
            return updates / self.length.updates
        if self.length.seconds is None or self.training_since is None:
            return 0.0
        whole = self.length.seconds - self.training_since
        return min(1.0, (self.seconds - self.training_since) / whole)

    def after(
        self, save: Callable[[Path], None], updates: int, tokens: int, flops: int, *, last: bool
    ) -> None:
        """An update has ended: make a point if one is due. The clock stands still while `save` writes the
        model to a folder.

        Args:
            updates: so far, as `tokens` and `flops`.
            last: the training ends here.

        Raises:
            EnoughError: this is a pilot, and it has run long enough.
            BrimfulError: the start-up took all seconds.
        """
        stopped = time.monotonic()
        point = {"seconds": self.seconds, "updates": updates, "tokens": tokens, "flops": flops}
        if self.training_since is None:
            self.training_since = point["seconds"]
            if self.length.seconds is not None and point["seconds"] >= self.length.seconds:
                raise BrimfulError(
                    f"it needs {point['seconds']:.0f} s to start, and {self.length.seconds:g} s leave no time"
                    " to train: give more seconds"
                )
        pilot = self.length.pilot
        if pilot is not None:
            self.reached.append(point)
            if updates >= FEWEST and point["seconds"] - self.training_since > pilot:
                raise EnoughError
        elif last or self._is_due(updates):
            self.reached.append(point)
            path = self.folder / f"{updates:07d}"
            save(path)
            write_json(path.with_suffix(".json"), point)
            self.away += time.monotonic() - stopped

    def _is_due(self, updates: int) -> bool:
        number = len(self.reached) + 1
        return number < NUMBER and self.done(updates) >= number / NUMBER

    @property
    def pace(self) -> float:
        """Updates a second of a pilot, without the first third of its updates."""
        first = self.reached[len(self.reached) // 3]
        last = self.reached[-1]
        return (last["updates"] - first["updates"]) / max(1e-9, last["seconds"] - first["seconds"])
