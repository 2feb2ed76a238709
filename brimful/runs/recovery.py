"""The checkpoint that a run goes on from, the same one on every rank."""

from pathlib import Path
from typing import Any

from torch import Tensor

from brimful.console import say
from brimful.distributed import World
from brimful.errors import BrimfulError
from brimful.runs import checkpoint
from brimful.runs.directory import warn_of_versions
from brimful.storage import sweep


def newest_checkpoint(
    directory: Path, identity: str, world: World
) -> tuple[int, dict[str, Tensor], dict[str, Any]] | None:
    """The newest undamaged checkpoint as (step, tensors on the CPU, state); None if there is none.

    Args:
        identity: of the run.

    Raises:
        BrimfulError: it is of another run, another version of Brimful wrote it, or ranks see different ones.
    """
    if world.is_main and directory.is_dir():
        sweep(directory)
    world.barrier()
    found = checkpoint.load_latest(directory)
    step = found[0] if found else -1
    if world.least(step) != -world.least(-step):
        raise BrimfulError(
            f"ranks see different checkpoints in {directory}: wait until the file system shows all of them"
            " the same, and try again"
        )
    if found is None:
        return None
    if found[2]["identity"] != identity:
        raise BrimfulError(f"{directory} was made with another configuration or data; start a new run")
    if world.is_main:
        say(f"resuming at step {step}")
        warn_of_versions(found[2]["versions"])
    return found
