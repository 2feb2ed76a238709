"""What a run tells: metrics.jsonl and the boards beside it, spikes.jsonl, and the note of the progress."""

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from brimful.console import warn
from brimful.data.rows import Cursor
from brimful.train.boards import Board
from brimful.train.metrics import MetricsLog, Totals, Window

SPIKES = "spikes.jsonl"


@dataclass(frozen=True)
class Spike:
    """An update that is not to be trusted.

    Attributes:
        update: its number, from 0.
        cursor: what its batch can be made again from.
        loss, norm: of the whole update and of its gradient.
        mean, deviation: of the losses before it.
    """

    update: int
    cursor: Cursor
    loss: float
    norm: float
    mean: float
    deviation: float

    @property
    def what(self) -> str:
        """What is wrong with it, in words."""
        if math.isfinite(self.loss) and math.isfinite(self.norm):
            usual = f"{self.mean:.4g} with a deviation of {self.deviation:.2g}"
            return f"the loss is {self.loss:.4g} at step {self.update + 1}, and before it {usual}"
        return f"the loss is not a finite number at step {self.update + 1}"


class Journal:
    """Writes the lines of one run, on the main rank; elsewhere nothing.

    Args:
        directory: of the run.
        boards: where the lines of metrics.jsonl are shown too.
        peak: flops a second that all devices together can reach, if that is known.
        shows: a command that shows the batch of an update, but for its number.
    """

    def __init__(
        self,
        directory: Path,
        boards: Sequence[Board] = (),
        *,
        peak: float | None = None,
        writes: bool,
        shows: str = "",
    ) -> None:
        self.directory = directory
        self.boards = boards if writes else ()
        self.peak = peak
        self.writes = writes
        self.shows = shows
        self.metrics = MetricsLog(directory / "metrics.jsonl")
        self.spikes = MetricsLog(directory / SPIKES)

    def begin(self, step: int) -> None:
        """Go on after `step` updates: what was written of later ones will be written again."""
        if self.writes:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.metrics.rewind(step or -1)
        for board in self.boards:
            board.begin(step)

    def close(self) -> None:
        """The boards get no more lines, metrics.jsonl may."""
        with ExitStack() as closing:  # all of them, also where one fails
            for board in self.boards:
                closing.callback(board.close)

    def _write(self, step: int, values: dict[str, Any]) -> None:
        if self.writes:
            self.metrics.write(step=step, **values)
        for board in self.boards:
            board.write(step, values)

    def training(
        self,
        step: int,
        losses: dict[str, float],
        watched: dict[str, float],
        window: Window,
        totals: Totals,
        rate: float,
        by_source: dict[str, int],
        scaling: dict[str, float],
    ) -> str:
        """A line about the updates of a window; returns the note for the progress."""
        seconds = window.totals.seconds
        mfu = {"mfu": window.totals.flops / seconds / self.peak} if self.peak else {}
        values = {
            **{f"loss.{term}": value for term, value in losses.items()},
            **watched,
            "learning_rate": rate,
            "gradient_norm": float(window.norms[-1]),
            **scaling,
            "tokens": totals.tokens,
            "tokens_per_second": totals.tokens_per_second,
            "seconds": totals.seconds,
            "fill": window.totals.fill,
            "data_wait": window.waited / seconds,
            **mfu,
            **{f"tokens.{name}": n for name, n in by_source.items() if len(by_source) > 1},
        }
        self._write(step, values)
        shown = [f"{term} {value:.3f}" for term, value in losses.items()]
        shown += [f"{name.replace('_', ' ')} {value:.1%}" for name, value in watched.items()]
        shown += [f"rate {rate:.2e}", f"{totals.tokens_per_second:,.0f} tokens/s"]
        shown += [f"{window.totals.fill:.1%} of slots real", *(f"MFU {value:.1%}" for value in mfu.values())]
        return f"loss {', '.join(shown)}"

    def evaluation(self, step: int, figures: dict[str, float]) -> None:
        """A line of the objective's figures."""
        if figures:
            self._write(step, {f"validation.{name}": value for name, value in figures.items()})

    def batch_of(self, spike: Spike) -> str:
        """Where its batch is to be seen."""
        if not self.shows:
            return f"{self.directory / SPIKES} names the batch"
        return f"the batch: {self.shows} {spike.update + 1}"

    def spike(self, spike: Spike, action: str) -> None:
        """A line about an update that is not to be trusted, and what is done about it."""
        if self.writes:
            if action != "stop":  # which is an error of its own
                warn(f"{spike.what}: {action} ({self.batch_of(spike)})")
            self.spikes.write(**asdict(spike) | {"update": spike.update + 1, "action": action})
