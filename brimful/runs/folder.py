"""A run's folder, and the trainings in it, such as trials of learning rates.

A training that has ended is not repeated. At its end it leaves a folder `result` with its metrics and the
weights that are needed later, and its checkpoints are removed. The next training always reads the weights
from that folder, even if nothing was interrupted: so an interrupted run and an uninterrupted one take the
same path and give the same bits.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypedDict

import torch
from safetensors.torch import load_file
from torch import nn

from brimful.base.console import say, warn
from brimful.base.distributed import World
from brimful.base.errors import BrimfulError
from brimful.base.storage import (
    atomic_directory,
    commit,
    read_commit,
    read_json,
    require_shape,
    sweep,
    write_tensors,
)
from brimful.base.types import Numbers
from brimful.runs.checkpoint import FORMAT, check_format
from brimful.runs.signals import StoppedError, catch_stop_signals, choose_signal

_RESULT = "result"
_RECORD = "result.json"
_WEIGHTS = "weights.safetensors"


NamedModules = Mapping[str, nn.Module]
"""Modules by the names under which a result keeps their weights."""


class _ResultRecord(TypedDict):
    identity: str
    figures: Numbers
    seconds: float
    examples: int


class ResumableTraining(Protocol):
    """The methods of `brimful.train.trainer.Trainer` that a run folder calls."""

    progress: Any

    def resume(self) -> bool: ...
    def run(self, title: str) -> Numbers: ...


@dataclass(frozen=True)
class Result:
    """The result that a training leaves when it ends.

    Attributes:
        directory: the folder of the training.
        identity: the identity of its run.
        metrics: metrics of the objective, at the end.
        seconds: duration of training, without evaluations.
        examples: number of examples that were trained on, with repetitions.
    """

    directory: Path
    identity: str
    metrics: Numbers
    seconds: float
    examples: int = 0

    @property
    def _weights(self) -> Path:
        return self.directory / _RESULT / _WEIGHTS

    def load(self, modules: NamedModules) -> None:
        """Load the weights that these modules had at the end of the training; they must have been kept."""
        tensors = load_file(self._weights)
        with torch.no_grad():
            for name, parameter in nn.ModuleDict(modules).named_parameters():
                parameter.copy_(tensors[name])

    def save(self, modules: NamedModules) -> None:
        """Keep the metrics, and the weights of these modules."""
        with atomic_directory(self.directory / _RESULT) as temporary:
            parameters = nn.ModuleDict(modules).named_parameters()
            write_tensors(
                temporary / _WEIGHTS, {name: p.detach().cpu().contiguous() for name, p in parameters}
            )
            self._commit(temporary, [temporary / _WEIGHTS])

    def forget_weights(self) -> None:
        """Keep the metrics only."""
        # The record goes first: a kill in between leaves a file without a record, never a record without a
        # file.
        self._commit(self.directory / _RESULT, [])
        self._weights.unlink(missing_ok=True)

    def _commit(self, folder: Path, files: Sequence[Path]) -> None:
        facts = {
            "format": FORMAT,
            "identity": self.identity,
            "figures": self.metrics,
            "seconds": self.seconds,
            "examples": self.examples,
        }
        commit(folder / _RECORD, files, **facts)


@dataclass(frozen=True)
class RunFolder:
    """The folder that a run works in.

    Attributes:
        path: the run directory.
        ranks: the processes of the run.
        resuming: whether the folder holds the beginning of this run.
        identity: hash of everything that decides the run's bits; empty before the run is planned. Results
            with another identity are refused.
    """

    path: Path
    ranks: World
    resuming: bool = False
    identity: str = ""

    @property
    def announces(self) -> bool:
        """Whether this process says what a new run will do."""
        return self.ranks.is_main and not self.resuming

    def train(
        self,
        directory: Path,
        title: str,
        make: Callable[[], ResumableTraining],
        keep: NamedModules,
    ) -> Result:
        """Train to the end, from the newest checkpoint if there is one. A finished training is not repeated.

        Args:
            directory: the folder of this training, the same as the trainer's.
            title: the title of the progress bar.
            make: makes the trainer, with the run's identity. It is not called for a finished training.
            keep: trained modules whose weights are needed later, by name.

        Raises:
            BrimfulError: a loss spike, or the directory belongs to another run.
            StoppedError: a signal asked any rank to stop.
        """
        has_begun = directory.is_dir()
        if has_begun and self.ranks.is_main:
            sweep(directory)
        self.ranks.barrier()
        result = self._find(directory)
        self.ranks.barrier()  # no rank changes the directory before all have looked
        if result is not None:
            if self.ranks.is_main:
                say(f"{title}: already finished")
                _remove_checkpoints(directory)
            return result
        with catch_stop_signals() as request:
            trainer = make()
            if has_begun and not trainer.resume() and self.ranks.is_main:
                say(f"{title}: no usable checkpoint: starting over")
            try:
                metrics = trainer.run(title)
            except StoppedError as stopped:
                raise StoppedError(stopped.number, f"in {title}") from stopped
            totals = trainer.progress.totals
            result = Result(directory, self.identity, metrics, totals.seconds, totals.sequences)
            if self.ranks.is_main:
                result.save(keep)
                _remove_checkpoints(directory)
            # The all-reduce is also a barrier: no rank continues before the result exists. It also counts a
            # request to stop that came after the last update.
            (votes,) = self.ranks.sum_each(request.votes())
            if number := choose_signal(votes):
                raise StoppedError(number, f"in {title}")
        return result

    def _find(self, directory: Path) -> Result | None:
        folder = directory / _RESULT
        if not folder.is_dir():
            return None
        try:
            record = read_commit(folder / _RECORD, verify=True)
        except BrimfulError as error:
            warn(f"training again: {error}")
            return None
        check_format(folder, record)
        require_shape(record, _ResultRecord, folder / _RECORD, f"remove {folder} and resume again")
        if record["identity"] != self.identity:
            raise BrimfulError(
                f"{folder} was made with another configuration or data, or by a version with other options;"
                " start a new run"
            )
        return Result(directory, self.identity, record["figures"], record["seconds"], record["examples"])


def _remove_checkpoints(directory: Path) -> None:
    shutil.rmtree(directory / "checkpoints", ignore_errors=True)


def remove_results(run: Path) -> None:
    """Remove the results that the trainings of a finished run have left for each other."""
    for record in run.rglob(f"{_RESULT}/{_RECORD}"):
        # A user's file may have the same name, but only records of trainings have these keys.
        content = read_json(record)
        if isinstance(content, dict) and content.keys() >= _ResultRecord.__required_keys__ | {"format"}:
            shutil.rmtree(record.parent, ignore_errors=True)
