"""Runs of several trainings, such as trials and stages: one that has ended is not done again.

A training that ends leaves a folder `result` with its figures, and with the weights that are needed later;
its checkpoints go. What comes next reads the weights from there even where nothing was interrupted, so that
there is one way on, and it has the same bits.
"""

import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import load_file
from torch import nn

from brimful.console import say, warn
from brimful.distributed import World
from brimful.errors import BrimfulError
from brimful.runs.checkpoint import FORMAT, check_format
from brimful.runs.directory import INPUTS, finish_run
from brimful.runs.signals import StoppedError, stop_request
from brimful.storage import atomic_directory, commit, read_commit, sweep, write_tensors

_RESULT = "result"
_RECORD = "result.json"
_WEIGHTS = "weights.safetensors"


class Training(Protocol):
    """What a stage runs: a `train.trainer.Trainer`."""

    totals: Any

    def resume(self) -> bool: ...
    def run(self, title: str) -> dict[str, float]: ...


@dataclass(frozen=True)
class Result:
    """What a training left when it ended.

    Attributes:
        directory: of the training.
        identity: of its run.
        figures: the objective's, at its end.
        seconds: that it took, evaluations not counted.
    """

    directory: Path
    identity: str
    figures: dict[str, float]
    seconds: float

    @property
    def _weights(self) -> Path:
        return self.directory / _RESULT / _WEIGHTS

    def load(self, modules: Mapping[str, nn.Module]) -> None:
        """Give these modules, which the training was told to keep, the weights that they had at its end."""
        tensors = load_file(self._weights)
        with torch.no_grad():
            for name, parameter in nn.ModuleDict(modules).named_parameters():
                parameter.copy_(tensors[name])

    def save(self, modules: Mapping[str, nn.Module]) -> None:
        """Keep the figures, and the weights of these modules."""
        with atomic_directory(self.directory / _RESULT) as temporary:
            if modules:
                parameters = nn.ModuleDict(modules).named_parameters()
                tensors = {name: p.detach().cpu().contiguous() for name, p in parameters}
                write_tensors(temporary / _WEIGHTS, tensors)
            self._commit(temporary, [temporary / _WEIGHTS] if modules else [])

    def forget_weights(self) -> None:
        """Keep the figures only."""
        self._commit(self.directory / _RESULT, [])
        self._weights.unlink(missing_ok=True)

    def _commit(self, folder: Path, files: Sequence[Path]) -> None:
        facts = {
            "format": FORMAT,
            "identity": self.identity,
            "figures": self.figures,
            "seconds": self.seconds,
        }
        commit(folder / _RECORD, files, **facts)


@dataclass(frozen=True)
class Stages:
    """The trainings of a run.

    Attributes:
        run: its directory.
        identity: a hash of all that decides the run; what another left is refused.
    """

    run: Path
    identity: str
    world: World

    def train(
        self,
        directory: Path,
        title: str,
        make: Callable[[], Training],
        keep: Mapping[str, nn.Module],
    ) -> Result:
        """Train to the end, from the newest checkpoint if there is one; or find that it was done.

        Args:
            directory: of this training: the trainer's own.
            title: of the progress that is shown.
            make: the trainer, with the run's identity; called only where there is something left to do.
            keep: what it trains and whose weights are needed later, by name.

        Raises:
            BrimfulError: the loss is not a finite number, or another run left what is there.
            StoppedError: a signal asked for it, on any rank.
        """
        begun = directory.is_dir()
        if begun and self.world.is_main:
            sweep(directory)
        self.world.barrier()
        result = self._find(directory)
        self.world.barrier()  # all ranks have found the same before one changes it
        if result is not None:
            if self.world.is_main:
                say(f"{title}: done before")
                _remove_checkpoints(directory)
            return result
        with stop_request() as request:
            trainer = make()
            if begun and not trainer.resume() and self.world.is_main:
                say(f"{title}: no usable checkpoint: starting over")
            try:
                figures = trainer.run(title)
            except StoppedError as stopped:
                raise self._stopped(stopped.exit_code - 128, title) from stopped
            result = Result(directory, self.identity, figures, trainer.totals.seconds)
            if self.world.is_main:
                result.save(keep)
                _remove_checkpoints(directory)
            # Ranks meet here when the result is there; a request that came after the last update counts too.
            if any(self.world.sum([request.number])):
                raise self._stopped(request.number or signal.SIGTERM, title)
        return result

    def _find(self, directory: Path) -> Result | None:
        folder = directory / _RESULT
        if not folder.is_dir():
            return None
        try:
            record = read_commit(folder / _RECORD, verify=True)
        except BrimfulError as error:
            warn(f"training once more: {error}")
            return None
        check_format(folder, record)
        if record["identity"] != self.identity:
            raise BrimfulError(f"{folder} was made with another configuration or data; start a new run")
        return Result(directory, self.identity, record["figures"], record["seconds"])

    def _stopped(self, number: int, title: str) -> StoppedError:
        name = signal.Signals(number).name
        return StoppedError(f"stopped by {name} in {title}; go on with --resume {self.run}", number)


def _remove_checkpoints(directory: Path) -> None:
    shutil.rmtree(directory / "checkpoints", ignore_errors=True)


def finish_stages(run: Path, summary: dict[str, Any]) -> None:
    """Write summary.json, and then remove what was kept to go on with: a kill in between costs only space."""
    finish_run(run, summary)
    for folder in run.rglob(_RESULT):
        shutil.rmtree(folder, ignore_errors=True)
    (run / INPUTS).unlink(missing_ok=True)
