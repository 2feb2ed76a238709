"""The files that a run writes while it trains: metrics.jsonl, TensorBoard's files of the same numbers, and
spikes.jsonl; and the note of its progress bar."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from brimful.base.console import warn
from brimful.base.distributed import World
from brimful.base.environment import describe_missing
from brimful.base.storage import make_write_error
from brimful.base.types import Numbers, SpikePolicy, Values
from brimful.train.guard import Spike
from brimful.train.metrics import MetricsLog, Totals, Window

SPIKES = "spikes.jsonl"
MAX_WAIT_FRACTION = 0.1
"""The fraction of the time from which on waits for data are worth a warning."""
MIN_WARNED_SECONDS = 60.0
"""The shortest training with such a warning, in seconds."""


class TensorBoard:
    """Event files in a folder. Each `begin` starts another file.

    In a new file a START event makes TensorBoard drop what earlier files hold of this step and later ones.
    Events are written at once, not in a thread as SummaryWriter does, so a full disk is noticed; a line is a
    few hundred bytes.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._writer: Any = None

    def begin(self, step: int) -> None:
        """Continue after `step` updates. Metrics of later steps will come again."""
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import SessionLog

        self.close()
        number = len(list(self.directory.glob("events.*")))  # keeps files of the same second apart
        with self._one_line():
            self.directory.mkdir(parents=True, exist_ok=True)
            self._writer = EventsWriter(str(self.directory / "events"), f".{number}")
        if number:
            self._write(step + 1 if step else 0, session_log=SessionLog(status=SessionLog.START))

    def write(self, step: int, values: Numbers) -> None:
        """Show the metrics of a step, once it has begun."""
        if self._writer:
            from tensorboardX.proto.summary_pb2 import Summary

            scalars = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
            self._write(step, summary=Summary(value=scalars))

    def _write(self, step: int, **content: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        with self._one_line():
            self._writer.write_event(Event(wall_time=time.time(), step=step, **content))
            self._writer.flush()

    def close(self) -> None:
        """Close the file; nothing more will come."""
        if self._writer:
            writer, self._writer = self._writer, None  # a second call, after an error, closes nothing
            with self._one_line():
                writer.close()

    @contextmanager
    def _one_line(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise make_write_error(self.directory, error) from error


class Journal:
    """Writes a run's lines on the main rank, and nothing on other ranks.

    Args:
        directory: the folder of the run.
        peak: flops per second that all devices together can reach; None if unknown.
        shows: a command that shows the batch of an update; the update's number follows it.

    Attributes:
        note: the text below the progress bar.
    """

    def __init__(self, directory: Path, world: World, *, peak: float | None = None, shows: str = "") -> None:
        self.directory = directory
        self.world = world
        self.writes = world.is_main
        self.board = None
        if self.writes and describe_missing("TensorBoard", "tensorboardX") is None:
            self.board = TensorBoard(directory / "tensorboard")
        self.peak = peak
        self.shows = shows
        self.metrics = MetricsLog(directory / "metrics.jsonl")
        self.spikes = MetricsLog(directory / SPIKES, "update")
        self.note = ""
        self._seconds = self._waited_seconds = 0.0

    def begin(self, step: int) -> None:
        """Continue after `step` updates. Lines of later updates are dropped; they will be written again."""
        if self.writes:
            self.directory.mkdir(parents=True, exist_ok=True)
            for log in (self.metrics, self.spikes):
                log.rewind(step or -1)
        if self.board:
            self.board.begin(step)

    def close(self) -> None:
        """Close TensorBoard's file. metrics.jsonl may get more lines."""
        if self.board:
            self.board.close()

    def _write(self, step: int, values: Values) -> None:
        if self.writes:
            self.metrics.write(step=step, **values)
        if self.board:
            self.board.write(step, values)

    def write_training(
        self,
        step: int,
        losses: Numbers,
        watched: Numbers,
        window: Window,
        totals: Totals,
        learning_rate: float,
        by_source: Mapping[str, int],
        scaling: Numbers,
    ) -> None:
        """Write a line about the updates of a window, and make the progress note from it.

        Args:
            losses, watched: means over the window.
            by_source: real tokens of each source so far.
            scaling: the metrics of loss scaling.
        """
        seconds = window.totals.seconds
        values = {f"loss.{term}": value for term, value in losses.items()}
        values |= {
            **watched,
            "learning_rate": learning_rate,
            "gradient_norm": float(window.norms[-1]),
            **scaling,
            "tokens": totals.tokens,
            "tokens_per_second": totals.tokens_per_second,
            "seconds": totals.seconds,
            "fill": window.totals.fill,
            "data_wait": window.waited / seconds,
        }
        if self.peak:
            values["mfu"] = window.totals.flops / seconds / self.peak
        if len(by_source) > 1:
            values |= {f"tokens.{name}": tokens for name, tokens in by_source.items()}
        self._write(step, values)
        self._seconds += seconds
        self._waited_seconds += window.waited
        note = [f"{term} {value:.3f}" for term, value in losses.items()]
        note += [f"{name.replace('_', ' ')} {value:.1%}" for name, value in watched.items()]
        note.append(f"rate {learning_rate:.2e}, {totals.tokens_per_second:,.0f} tokens/s")
        note.append(f"{window.totals.fill:.1%} of slots real")
        if self.peak:
            note.append(f"MFU {values['mfu']:.1%}")
        self.note = f"loss {', '.join(note)}"

    def warn_of_waits(self, title: str) -> None:
        """Warn of a training of a minute or more that has waited long for data.

        Args:
            title: the title of the training.
        """
        if not self.writes or self._seconds < MIN_WARNED_SECONDS:
            return
        fraction = self._waited_seconds / self._seconds
        if fraction >= MAX_WAIT_FRACTION:
            warn(f"{title}: {fraction:.0%} of its time it waited for data: give each rank more CPU cores")

    def write_evaluation(self, step: int, metrics: Numbers) -> None:
        """Write a line of validation metrics, if there are any."""
        if metrics:
            self._write(step, {f"validation.{name}": value for name, value in metrics.items()})

    def locate_batch(self, spike: Spike) -> str:
        """Return a clause on where a person can see the batch of a spike."""
        if not self.shows:
            return f"{self.directory / SPIKES} names the batch"
        return f"the batch: {self.shows} {spike.update + 1}"

    def write_spike(self, spike: Spike, action: SpikePolicy) -> None:
        """Write a line about a spike and what is done about it."""
        if self.writes:
            if action != "stop":  # or the run's error message says it
                warn(f"{spike.description}: {action} ({self.locate_batch(spike)})")
            self.spikes.write(**asdict(spike) | {"update": spike.update + 1, "action": action})
