"""The model of a finished run, or of a checkpoint of a run of pretrain."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from brimful.base.errors import BrimfulError
from brimful.base.types import Step, Values
from brimful.hf.folders import load_model
from brimful.hf.model_folder import ModelFolder
from brimful.hf.tensor_names import Head
from brimful.model.encoder import Encoder
from brimful.runs import checkpoint
from brimful.runs.checkpoint import WEIGHTS
from brimful.runs.start_checks import START


class Snapshot(NamedTuple):
    """A model and its origin.

    Attributes:
        labels: the names of the head's outputs; None if they have no names.
        folder: a folder with this model, or with another checkpoint of its run.
        facts: the `step` of the checkpoint; empty for a finished run.
    """

    encoder: Encoder
    head: Head | None
    labels: list[str] | None
    folder: ModelFolder
    facts: Values


def load_snapshot(run: Path, step: Step | None) -> Snapshot:
    """Read the model of a run (or of a Hugging Face folder), or of a checkpoint of a run.

    This needs nothing outside the run's directory and changes nothing in it.

    Args:
        step: the step of the checkpoint; "best" is the checkpoint of the best evaluation.

    Raises:
        BrimfulError: there is no model or no such checkpoint, or `step` is given and `run` is not a run of
            `pretrain`.
    """
    if step is None:
        _check_finished(run)
        folder = ModelFolder.open(run, "model")
        return Snapshot(*load_model(folder), folder, {})
    directory = run / "checkpoints"
    # A checkpoint holds tensors only: the shape of the model comes from a folder of the run.
    folder = ModelFolder(run / ("encoder" if (run / "encoder/config.json").is_file() else START))
    if not folder.config_file.is_file():
        raise BrimfulError(
            f"{run} has neither encoder/ nor {START}/: --step is for runs of pretrain (one that an earlier"
            " version began has them once it is resumed)"
        )
    if step == "best":
        step = _find_best(directory)
        if step is None:
            raise BrimfulError(f"{directory} has no checkpoint of the best evaluation: give --step a number")
    tensors = checkpoint.load(directory, step).tensors
    encoder, head, labels = load_model(folder)
    model = nn.ModuleDict({"encoder": encoder})
    if head is not None:
        model["head"] = head
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[f"{WEIGHTS}{name}"])
    return Snapshot(encoder, head, labels, folder, {"step": step})


def _find_best(directory: Path) -> int | None:
    """Return the step of the best evaluation; None without an evaluation, or if its checkpoint is gone."""
    states = checkpoint.read_states(directory)
    # The newest checkpoint knows of all evaluations before it.
    best = states[max(states)].get("best") if states else None
    return int(best[0]) if best and int(best[0]) in states else None


def _check_finished(run: Path) -> None:
    """Refuse a run that has no model yet, and name the checkpoints that can be exported."""
    if not (run / START).is_dir() or (run / "encoder").exists():
        return
    directory = run / "checkpoints"
    steps = [str(step) for step in checkpoint.list_steps(directory)]
    if not steps:
        raise BrimfulError(f"{run} is not finished: it has no checkpoint yet")
    best = "" if _find_best(directory) is None else "best, or "
    raise BrimfulError(f"{run} is not finished: give --step {best}one of {', '.join(steps)}")
