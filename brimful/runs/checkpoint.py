"""Checkpoints: full tensors as safetensors, the rest as JSON. Each is a directory that is whole or absent."""

import os
import platform
import re
import shutil
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, NotRequired, TypedDict

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
from brimful.version import VERSION

FORMAT = 2
"""The version of a checkpoint's tensors, its state, and the identity of its run; a resume needs this one."""
READABLE = (1, FORMAT)
"""Versions with the same tensors and state. In version 1 identity was made in another way."""
WEIGHTS, OPTIMIZER = "weights.", "optimizer."
"""Prefixes of tensor names."""
_TENSORS = "tensors.safetensors"
_RECORD = "checkpoint.json"


def list_steps(directory: Path) -> list[int]:
    """The steps of the checkpoints in a directory, also of damaged ones, ascending."""
    found = (re.fullmatch(r"step-(\d+)", path.name) for path in directory.glob("step-*"))
    return sorted(int(match[1]) for match in found if match)


def save(
    directory: Path,
    step: int,
    tensors: dict[str, torch.Tensor],
    state: dict[str, Any],
    keep: int,
    spared: Collection[int] = (),
) -> None:
    """Write `directory/step-N`. Of the checkpoints up to it, keep the newest `keep` and the steps `spared`.

    Checkpoints of later steps stay. They exist only if the run could not read them and went back to an
    earlier one.
    """
    with atomic_directory(directory / f"step-{step}") as temporary:
        write_tensors(temporary / _TENSORS, {name: tensor.contiguous() for name, tensor in tensors.items()})
        commit(temporary / _RECORD, [temporary / _TENSORS], format=FORMAT, step=step, state=state)
    rotated = [other for other in list_steps(directory) if other <= step][:-keep]
    for old in {*rotated}.difference(spared):
        with suppress(OSError):
            aside = temporary_path(directory / f"step-{old}")
            os.replace(directory / f"step-{old}", aside)  # a reader sees all of it or nothing
            shutil.rmtree(aside)


@dataclass(eq=False)
class Writer:
    """Writes checkpoints in a thread, one at a time, while training continues.

    The caller waits until the tensors are copied to the CPU, not for the disk. As a context manager it waits
    at its end until everything is written.

    Attributes:
        directory, keep: see `save`.
    """

    directory: Path
    keep: int
    _writing: Future[None] | None = field(default=None, init=False)

    def write(
        self,
        step: int,
        tensors: dict[str, torch.Tensor],
        state: dict[str, Any],
        spared: Collection[int] = (),
    ) -> None:
        """Begin to write a checkpoint of the tensors as they are now.

        Args:
            step, tensors, state, spared: see `save`.

        Raises:
            BrimfulError: the checkpoint before could not be written.
        """
        self.finish()
        copies = {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
        thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing = thread.submit(save, self.directory, step, copies, state, self.keep, spared)
        thread.shutdown(wait=False)

    def check(self) -> None:
        """Raise the error of a write that has failed. Does not wait for a write that is under way."""
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
    state: dict[str, Any]


class _Known(TypedDict):
    cursor: dict[str, Any]
    best: NotRequired[tuple[int, float] | None]


class _GuardState(TypedDict):
    mean: float
    variance: float
    usual: int
    left_out: list[int]


class _State(TypedDict):
    identity: str
    versions: dict[str, str]
    cursor: dict[str, Any]
    totals: dict[str, float]
    best: tuple[int, float] | None
    guard: _GuardState
    loss_scaling: dict[str, float]
    ranks: NotRequired[int]


_REMEDY = "continue with the checkpoint before it"


def _record(path: Path, *, verify: bool) -> dict[str, Any]:
    return read_commit(path / _RECORD, _Checkpoint, verify=verify, remedy=_REMEDY)


def check_format(path: Path, record: dict[str, Any], readable: Collection[int] = (FORMAT,)) -> None:
    """Refuse what another version of Brimful wrote.

    Args:
        record: the commit record of a checkpoint or of a training's result.
    """
    if (found := record.get("format")) not in readable:
        raise BrimfulError(
            f"{path} was written by another version of Brimful (its format is {found or 'older'}, and"
            f" this one reads {FORMAT}): continue with that version, or start a new run"
        )


def load_latest(directory: Path) -> tuple[int, dict[str, torch.Tensor], dict[str, Any]] | None:
    """The newest undamaged checkpoint, to resume from, as (step, tensors on the CPU, state), or None.

    Raises:
        BrimfulError: another version wrote it.
    """
    for step in reversed(list_steps(directory)):
        path = directory / f"step-{step}"
        try:
            record = _record(path, verify=True)
            tensors = load_file(path / _TENSORS)
        except (BrimfulError, OSError) as error:
            what, _, _ = str(error).partition(";")  # the rest says what to do, which is done here
            warn(f"skipping a checkpoint: {what}")
            continue
        check_format(path, record)
        return step, tensors, record["state"]
    return None


def load(directory: Path, step: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors, on the CPU, and the state of one checkpoint. Nothing on disk changes.

    Raises:
        BrimfulError: the checkpoint is missing or damaged, another version wrote it, or a run that is under
            way has removed it meanwhile.
    """
    path = directory / f"step-{step}"
    if path.is_dir():
        try:
            record = _record(path, verify=True)
            check_format(path, record, READABLE)
            return load_file(path / _TENSORS), record["state"]
        except (BrimfulError, OSError) as error:
            if path.is_dir():
                raise
            raise BrimfulError(f"the run has removed {path} meanwhile: {_there(directory)}") from error
    raise BrimfulError(f"there is no checkpoint {path}: {_there(directory)}")


def _there(directory: Path) -> str:
    found = list_steps(directory)
    return f"the run has those of steps {', '.join(map(str, found))}" if found else "the run has none"


def read_states(directory: Path) -> dict[int, dict[str, Any]]:
    """The states of the complete checkpoints that this version can read, by step.

    No tensors are read, and nothing on disk changes.
    """
    found = {}
    for step in list_steps(directory):
        with suppress(BrimfulError):  # damaged, or removed meanwhile
            record = _record(path := directory / f"step-{step}", verify=False)
            check_format(path, record, READABLE)
            require_shape(record["state"], _Known, path / _RECORD, _REMEDY)
            found[step] = record["state"]
    return found


def load_for_resume(
    directory: Path, identity: str, world: World
) -> tuple[int, dict[str, torch.Tensor], dict[str, Any]] | None:
    """The newest undamaged checkpoint as (step, tensors on the CPU, state), the same on every rank, or None.

    Args:
        identity: of the run that resumes.

    Raises:
        BrimfulError: the checkpoint is of another run, another version wrote it, or ranks see different ones.
    """
    if world.is_main and directory.is_dir():
        sweep(directory)
    world.barrier()
    found = load_latest(directory)
    step = found[0] if found else -1
    if world.least(step) != -world.least(-step):
        raise BrimfulError(
            f"ranks see different checkpoints in {directory}: wait until the file system shows all of them"
            " the same, and try again"
        )
    if found is None:
        return None
    require_shape(found[2], _State, directory / f"step-{step}" / _RECORD, f"remove that folder and {_REMEDY}")
    if found[2]["identity"] != identity:
        raise BrimfulError(
            f"{directory} was made with another configuration or data, or by a version with other options;"
            " start a new run"
        )
    if world.is_main:
        say(f"resuming at step {step}")
        for name, now in versions().items():
            before = found[2]["versions"].get(name)
            if before != now:
                warn(f"the checkpoint was made with {name} {before}, this is {now}: bits may differ")
    return found


def versions() -> dict[str, str]:
    """The versions of the packages that decide a run's bits."""
    packages = {name: version(name) for name in ("torch", "numpy")}
    return {"python": platform.python_version(), "brimful": VERSION, **packages}
