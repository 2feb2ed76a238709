"""Where else the lines of metrics.jsonl are shown: TensorBoard, always, and Weights & Biases, if asked.

Both get the numbers as they are written there, under the same names. A run that goes on from an earlier step
shows no step twice.
"""

import secrets
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from brimful.console import warn
from brimful.errors import BrimfulError
from brimful.storage import cannot_write


class Board(Protocol):
    """Shows figures by step."""

    def begin(self, step: int) -> None:
        """Go on after `step` updates: what was shown of later ones will be shown again."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Show the figures of a step."""

    def close(self) -> None:
        """Nothing more will come."""


class TensorBoard:
    """Event files in a folder; each `begin` starts another, which withdraws what later steps showed before.

    TensorBoard drops what has the step of a START in a later file, or a higher one. Events are written where
    they are made, not in a thread as SummaryWriter does: a full disk is seen, and a line is some hundred
    bytes.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._writer: Any = None

    def begin(self, step: int) -> None:
        try:
            from tensorboardX.event_file_writer import EventsWriter
            from tensorboardX.proto.event_pb2 import SessionLog
        except ImportError:
            warn("no TensorBoard: it needs tensorboardX, which is not installed")
            return
        self.close()
        number = len(list(self.directory.glob("events.*")))  # files of one second need names of their own
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
    """A run of a W&B project. Resumed, it is the same one, and W&B leaves out the steps that it has.

    Its own settings are W&B's environment variables; WANDB_MODE=offline sends nothing.

    Args:
        directory: of the run; wandb/ in it is W&B's.
        about: its configuration, JSON values.
    """

    def __init__(self, project: str, directory: Path, about: Mapping[str, Any]) -> None:
        self.project = project
        self.directory = directory
        self.about = about
        self._run: Any = None

    def begin(self, step: int) -> None:
        import wandb

        if self._run is not None:  # it was only put back
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


def boards(directory: Path, project: str, about: Mapping[str, Any]) -> list[Board]:
    """Those of the run in `directory`: TensorBoard, and W&B if it has a project there."""
    found: list[Board] = [TensorBoard(directory / "tensorboard")]
    require_wandb(project)
    if project:
        found.append(WeightsAndBiases(project, directory, about))
    return found


def require_wandb(project: str) -> None:
    """Refuse a project where W&B is not installed.

    Raises:
        BrimfulError: it is not.
    """
    if project and find_spec("wandb") is None:
        raise BrimfulError("trainer.wandb needs W&B: pip install 'brimful[wandb]'")
