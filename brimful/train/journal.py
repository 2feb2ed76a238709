"""What a run writes while it trains: metrics.jsonl and its sinks, spikes.jsonl, and the progress note."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from brimful.base.console import warn
from brimful.base.types import SpikePolicy
from brimful.train.guard import Spike
from brimful.train.metrics import MetricsLog, Totals, Window
from brimful.train.sinks import Sink

SPIKES = "spikes.jsonl"


class Journal:
    """Writes a run's lines on the main rank, and nothing on other ranks.

    Args:
        directory: of the run.
        sinks: where the lines of metrics.jsonl go too.
        peak: flops per second that all devices together can reach, if known.
        writes: whether this is the main rank.
        shows: a command that shows the batch of an update, without the update's number.

    Attributes:
        note: what the progress bar shows.
    """

    def __init__(
        self,
        directory: Path,
        sinks: Sequence[Sink] = (),
        *,
        peak: float | None = None,
        writes: bool,
        shows: str = "",
    ) -> None:
        self.directory = directory
        self.sinks = sinks if writes else ()
        self.peak = peak
        self.writes = writes
        self.shows = shows
        self.metrics = MetricsLog(directory / "metrics.jsonl")
        self.spikes = MetricsLog(directory / SPIKES, "update")
        self.note = ""

    def begin(self, step: int) -> None:
        """Continue after `step` updates. Lines of later updates are dropped; they will be written again."""
        if self.writes:
            self.directory.mkdir(parents=True, exist_ok=True)
            for log in (self.metrics, self.spikes):
                log.rewind(step or -1)
        for sink in self.sinks:
            sink.begin(step)

    def close(self) -> None:
        """Close the sinks, all of them even if one fails. metrics.jsonl may get more lines."""
        with ExitStack() as closing:
            for sink in self.sinks:
                closing.callback(sink.close)

    def _write(self, step: int, values: dict[str, Any]) -> None:
        if self.writes:
            self.metrics.write(step=step, **values)
        for sink in self.sinks:
            sink.write(step, values)

    def training(
        self,
        step: int,
        losses: Mapping[str, float],
        watched: Mapping[str, float],
        window: Window,
        totals: Totals,
        learning_rate: float,
        by_source: Mapping[str, int],
        scaling: Mapping[str, float],
        pace: Mapping[str, float],
        processors: Mapping[str, float],
    ) -> None:
        """Write a line about the updates of a window, and make the progress note from it.

        Args:
            losses, watched: means over the window.
            by_source: real tokens of each source so far.
            scaling: the metrics of loss scaling.
            pace: how ranks keep pace.
            processors: who had the cores.
        """
        seconds = window.totals.seconds
        mfu = {"mfu": window.totals.flops / seconds / self.peak} if self.peak else {}
        values = {
            **{f"loss.{term}": value for term, value in losses.items()},
            **watched,
            "learning_rate": learning_rate,
            "gradient_norm": float(window.norms[-1]),
            **scaling,
            "tokens": totals.tokens,
            "tokens_per_second": totals.tokens_per_second,
            "seconds": totals.seconds,
            "fill": window.totals.fill,
            "data_wait": window.waited / seconds,
            **pace,
            **processors,
            **mfu,
            **{f"tokens.{name}": n for name, n in by_source.items() if len(by_source) > 1},
        }
        self._write(step, values)
        shown = [f"{term} {value:.3f}" for term, value in losses.items()]
        shown += [f"{name.replace('_', ' ')} {value:.1%}" for name, value in watched.items()]
        shown += [f"rate {learning_rate:.2e}", f"{totals.tokens_per_second:,.0f} tokens/s"]
        shown += [f"{window.totals.fill:.1%} of slots real", *(f"MFU {value:.1%}" for value in mfu.values())]
        if pace.get("lag", 0.0) >= 0.01:
            shown.append(f"{pace['lag']:.1%} waits for rank {pace['slowest_rank']}")
        self.note = f"loss {', '.join(shown)}"

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write a line of validation metrics, if there are any."""
        if metrics:
            self._write(step, {f"validation.{name}": value for name, value in metrics.items()})

    def batch_of(self, spike: Spike) -> str:
        """Where a person can see the batch of a spike."""
        if not self.shows:
            return f"{self.directory / SPIKES} names the batch"
        return f"the batch: {self.shows} {spike.update + 1}"

    def spike(self, spike: Spike, action: SpikePolicy) -> None:
        """Write a line about a spike and what is done about it."""
        if self.writes:
            if action != "stop":  # the error message says it
                warn(f"{spike.what}: {action} ({self.batch_of(spike)})")
            self.spikes.write(**asdict(spike) | {"update": spike.update + 1, "action": action})
