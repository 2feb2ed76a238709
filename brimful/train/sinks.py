"""Where the lines of metrics.jsonl go too: TensorBoard if its writer is installed, W&B on request.

Both get the same numbers under the same names. A resumed run shows no step twice.
"""

import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from brimful.base.errors import BrimfulError
from brimful.base.extras import missing, require
from brimful.base.storage import cannot_write


class Sink(Protocol):
    """Takes metrics by step."""

    def begin(self, step: int) -> None:
        """Continue after `step` updates. Metrics of later steps will come again."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Take the metrics of a step."""

    def close(self) -> None:
        """Nothing more will come."""


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
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import SessionLog

        self.close()
        number = len(list(self.directory.glob("events.*")))  # keeps files of the same second apart
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._writer = EventsWriter(str(self.directory / "events"), f".{number}")
        except OSError as error:
            raise cannot_write(self.directory, error) from error
        if number:
            self._write(step + 1 if step else 0, session_log=SessionLog(status=SessionLog.START))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        if self._writer:
            from tensorboardX.proto.summary_pb2 import Summary

            scalars = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
            self._write(step, summary=Summary(value=scalars))

    def _write(self, step: int, **content: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        try:
            self._writer.write_event(Event(wall_time=time.time(), step=step, **content))
            self._writer.flush()
        except OSError as error:
            raise cannot_write(self.directory, error) from error

    def close(self) -> None:
        if self._writer:
            writer, self._writer = self._writer, None
            try:
                writer.close()
            except OSError as error:
                raise cannot_write(self.directory, error) from error


class WeightsAndBiases:
    """A run in a W&B project. A resumed run continues it; W&B ignores the steps that it already has.

    W&B's own settings are its environment variables; WANDB_MODE=offline sends nothing.

    Args:
        directory: of the run. W&B writes to wandb/ in it.
        about: the run's configuration: JSON values.
    """

    def __init__(self, project: str, directory: Path, about: Mapping[str, Any]) -> None:
        self.project = project
        self.directory = directory
        self.about = about
        self._run: Any = None

    def begin(self, step: int) -> None:
        import wandb

        if self._run is not None:  # the run only went back to a checkpoint
            return
        name = self.directory / "wandb" / "brimful-run"
        try:
            name.parent.mkdir(parents=True, exist_ok=True)
            if not (step and name.exists()):
                name.write_text(secrets.token_hex(8))
            identifier = name.read_text()
        except OSError as error:
            raise cannot_write(name, error) from error
        try:
            self._run = wandb.init(
                project=self.project,
                dir=str(self.directory),
                id=identifier,
                name=self.directory.name,
                resume="allow",
                config=dict(self.about),
            )
        except Exception as error:
            raise BrimfulError(f"W&B refused the run: {error}; leave out trainer.wandb") from error

    def write(self, step: int, values: Mapping[str, float]) -> None:
        if self._run is not None:
            self._run.log(dict(values), step=step)

    def close(self) -> None:
        if self._run is not None:
            run, self._run = self._run, None
            run.finish()


def sinks(directory: Path, project: str, about: Mapping[str, Any]) -> list[Sink]:
    """The sinks of the run in `directory`: TensorBoard if it is installed, and W&B if a project is given."""
    found: list[Sink] = []
    if missing("TensorBoard", "tensorboardX") is None:
        found.append(TensorBoard(directory / "tensorboard"))
    require_wandb(project)
    if project:
        found.append(WeightsAndBiases(project, directory, about))
    return found


def require_wandb(project: str) -> None:
    """Check that W&B is installed if a project is given.

    Raises:
        BrimfulError: it is not installed.
    """
    if project:
        require("trainer.wandb", "wandb")
