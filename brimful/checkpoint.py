"""Checkpoints: full tensors as safetensors, the rest as JSON, each a directory that is whole or absent."""

import re
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from brimful.console import warn
from brimful.errors import BrimfulError
from brimful.storage import atomic_directory, commit, read_commit, sweep, write_tensors

_TENSORS = "tensors.safetensors"
_RECORD = "checkpoint.json"


def _steps(directory: Path) -> list[int]:
    found = (re.fullmatch(r"step-(\d+)", path.name) for path in directory.glob("step-*"))
    return sorted(int(match[1]) for match in found if match)


def save(
    directory: Path, step: int, tensors: dict[str, torch.Tensor], state: dict[str, Any], keep: int
) -> None:
    """Write `directory/step-N` and remove all but the newest `keep` checkpoints."""
    with atomic_directory(directory / f"step-{step}") as temporary:
        write_tensors(temporary / _TENSORS, {name: tensor.contiguous() for name, tensor in tensors.items()})
        commit(temporary / _RECORD, [temporary / _TENSORS], step=step, state=state)
    for old in _steps(directory)[:-keep]:
        shutil.rmtree(directory / f"step-{old}", ignore_errors=True)


class Writer:
    """Writes checkpoints in a thread while training goes on, one at a time. A context that ends when all are
    written.

    The caller waits for a copy of the tensors in memory only, which is held until they are written.

    Args:
        directory, keep: as `save` takes them.
    """

    def __init__(self, directory: Path, keep: int) -> None:
        self.directory = directory
        self.keep = keep
        self._writing: Future[None] | None = None

    def write(self, step: int, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        """Begin to write a checkpoint of the tensors as they are now.

        Raises:
            BrimfulError: the one before could not be written.
        """
        self.finish()
        copies = {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
        thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing = thread.submit(save, self.directory, step, copies, state, self.keep)
        thread.shutdown(wait=False)

    def check(self) -> None:
        """Raise the error of a write that has failed; do not wait for one that goes on."""
        if self._writing is not None and self._writing.done():
            self.finish()

    def finish(self) -> None:
        """Wait until all is written; raises what went wrong."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()


def load_latest(directory: Path) -> tuple[int, dict[str, torch.Tensor], dict[str, Any]] | None:
    """The newest undamaged checkpoint as (step, tensors on the CPU, state); None if there is none."""
    if directory.is_dir():
        sweep(directory)
    for step in reversed(_steps(directory)):
        path = directory / f"step-{step}"
        try:
            record = read_commit(path / _RECORD, verify=True)
        except BrimfulError as error:
            warn(f"skipping a checkpoint: {error}")
            continue
        return step, load_file(path / _TENSORS), record["state"]
    return None


def states(directory: Path) -> dict[int, dict[str, Any]]:
    """The states of the checkpoints that are there in full, by step. Nothing is changed, no tensor read."""
    found = {}
    for step in _steps(directory):
        with suppress(BrimfulError):  # damaged, or removed meanwhile
            found[step] = read_commit(directory / f"step-{step}" / _RECORD)["state"]
    return found
