"""Checkpoints: full tensors as safetensors, the rest as JSON. Each is a directory that is whole or absent."""

import os
import platform
import shutil
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple, NotRequired, TypedDict

import torch
from safetensors.torch import load_file

from brimful.base.console import say, warn
from brimful.base.distributed import World
from brimful.base.errors import BrimfulError
from brimful.base.storage import (
    atomic_directory,
    commit,
    read_commit,
    require_shape,
    sweep,
    temporary_path,
    write_tensors,
)
from brimful.base.types import Cursor, Numbers, Values
from brimful.version import VERSION

FORMAT = 2
"""The version of a checkpoint's tensors, its state, and the identity of its run; a resume needs this one."""
WEIGHTS, OPTIMIZER = "weights.", "optimizer."
"""Prefixes of tensor names."""
Tensors = dict[str, torch.Tensor]
"""Tensors by name, on the CPU."""
_TENSORS = "tensors.safetensors"
_RECORD = "checkpoint.json"


def list_steps(directory: Path) -> list[int]:
    """Return the steps of the checkpoints in a directory, also of damaged ones, ascending."""
    names = [path.name.removeprefix("step-") for path in directory.glob("step-*")]
    return sorted(map(int, filter(str.isdecimal, names)))


def save(
    directory: Path, step: int, tensors: Tensors, state: Values, keep: int, spared: Collection[int] = ()
) -> None:
    """Write `directory/step-N`, and remove checkpoints of earlier steps.

    Checkpoints of later steps stay. They exist only if the run could not read them and went back to an
    earlier one.

    Args:
        state: the rest of the training's state, as JSON values.
        keep: number of the newest checkpoints that stay, the new one included.
        spared: steps of older checkpoints that stay too.
    """
    with atomic_directory(directory / f"step-{step}") as temporary:
        write_tensors(temporary / _TENSORS, {name: tensor.contiguous() for name, tensor in tensors.items()})
        commit(temporary / _RECORD, [temporary / _TENSORS], format=FORMAT, step=step, state=state)
    older = [other for other in list_steps(directory) if other <= step][:-keep]
    for old in set(older).difference(spared):
        with suppress(OSError):
            # Renamed before it is deleted, so that a reader sees the whole folder or none.
            aside = temporary_path(directory / f"step-{old}")
            os.replace(directory / f"step-{old}", aside)
            shutil.rmtree(aside)


@dataclass(eq=False)
class Writer:
    """Writes checkpoints in a thread, one at a time, while training continues.

    The caller waits until the tensors are copied to the CPU, not for the disk. At the end of a `with` block,
    the writer waits until everything is written.

    Attributes:
        directory, keep: see `save`.
    """

    directory: Path
    keep: int
    _writing: Future[None] | None = field(default=None, init=False)

    def write(self, step: int, tensors: Tensors, state: Values, spared: Collection[int] = ()) -> None:
        """Begin to write a checkpoint of the tensors as they are now. Arguments as for `save`.

        Raises:
            BrimfulError: the previous checkpoint could not be written.
        """
        self.finish()
        # Copies, because the next update changes the tensors while the thread still writes.
        copies = {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
        thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing = thread.submit(save, self.directory, step, copies, state, self.keep, spared)
        thread.shutdown(wait=False)

    def check(self) -> None:
        """Raise the error of a write that has failed, without waiting for a write that is under way."""
        if self._writing is not None and self._writing.done():
            self.finish()

    def finish(self) -> None:
        """Wait until everything is written, and raise the error of a write that has failed."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()


class _Checkpoint(TypedDict):
    state: Values


class _AnyState(TypedDict):
    """The keys that the state of every readable version has."""

    cursor: Cursor
    best: NotRequired[tuple[int, float] | None]


class _GuardState(TypedDict):
    mean: float
    variance: float
    usual: int
    left_out: list[int]


class _State(TypedDict):
    identity: str
    versions: dict[str, str]
    cursor: Cursor
    totals: Numbers
    best: tuple[int, float] | None
    guard: _GuardState
    loss_scaling: Numbers
    ranks: NotRequired[int]


_REMEDY = "continue with the checkpoint before it"


def _read_record(path: Path, *, verify: bool) -> Values:
    return read_commit(path / _RECORD, _Checkpoint, verify=verify, remedy=_REMEDY)


def check_format(path: Path, record: Values) -> None:
    """Refuse the commit record of a checkpoint or training result that another version of Brimful wrote."""
    version_of_record = record.get("format")
    if version_of_record != FORMAT:
        raise BrimfulError(
            f"{path} was written by another version of Brimful (its format is"
            f" {version_of_record or 'older'}, and this one reads {FORMAT}): continue with that version, or"
            " start a new run"
        )


class Checkpoint(NamedTuple):
    """A training as it was after an update."""

    step: int
    tensors: Tensors
    state: Values


def load_latest(directory: Path) -> Checkpoint | None:
    """Load the newest undamaged checkpoint; None without one.

    Raises:
        BrimfulError: another version wrote it.
    """
    for step in reversed(list_steps(directory)):
        path = directory / f"step-{step}"
        try:
            record = _read_record(path, verify=True)
            tensors = load_file(path / _TENSORS)
        except (BrimfulError, OSError) as error:
            # The part after the semicolon tells the user to do what this loop does.
            warn(f"skipping a checkpoint: {str(error).partition(';')[0]}")
            continue
        check_format(path, record)
        return Checkpoint(step, tensors, record["state"])
    return None


def load(directory: Path, step: int) -> Checkpoint:
    """Load one checkpoint. Nothing on disk changes.

    Raises:
        BrimfulError: the checkpoint is missing or damaged, another version wrote it, or a run in progress has
            removed it in the meantime.
    """
    path = directory / f"step-{step}"
    try:
        record = _read_record(path, verify=True)
        check_format(path, record)
        return Checkpoint(step, load_file(path / _TENSORS), record["state"])
    except (BrimfulError, OSError) as error:
        if path.is_dir():
            raise
        steps = ", ".join(map(str, list_steps(directory)))
        existing = f"checkpoints of steps {steps}" if steps else "no checkpoint"
        raise BrimfulError(f"there is no checkpoint {path}: the run has {existing}") from error


def read_states(directory: Path) -> dict[int, Values]:
    """Return the states of the complete checkpoints that this version can read, by step.

    No tensors are read, and nothing on disk changes.
    """
    states = {}
    for step in list_steps(directory):
        path = directory / f"step-{step}"
        with suppress(BrimfulError):  # damaged, or removed meanwhile
            record = _read_record(path, verify=False)
            check_format(path, record)
            require_shape(record["state"], _AnyState, path / _RECORD, _REMEDY)
            states[step] = record["state"]
    return states


def load_for_resume(directory: Path, identity: str, world: World) -> Checkpoint | None:
    """Load the newest undamaged checkpoint of the run with this identity, the same on every rank.

    Raises:
        BrimfulError: the checkpoint is of another run, another version wrote it, or ranks see different ones.
    """
    if world.is_main and directory.is_dir():
        sweep(directory)
    world.barrier()
    checkpoint = load_latest(directory)
    step = checkpoint.step if checkpoint else -1
    # The greatest step is minus the least of the negated steps.
    if world.least(step) != -world.least(-step):
        raise BrimfulError(
            f"ranks see different checkpoints in {directory}: wait until the file system shows all of them"
            " the same, and try again"
        )
    if checkpoint is None:
        return None
    state = checkpoint.state
    require_shape(state, _State, directory / f"step-{step}" / _RECORD, f"remove that folder and {_REMEDY}")
    if state["identity"] != identity:
        raise BrimfulError(
            f"{directory} was made with another configuration or data, or by a version with other options;"
            " start a new run"
        )
    if world.is_main:
        say(f"resuming at step {step}")
        for name, now in package_versions().items():
            before = state["versions"].get(name)
            if before != now:
                warn(f"the checkpoint was made with {name} {before}, this is {now}: bits may differ")
    return checkpoint


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that decide a run's bits."""
    return {
        "python": platform.python_version(),
        "brimful": VERSION,
        "torch": version("torch"),
        "numpy": version("numpy"),
    }
