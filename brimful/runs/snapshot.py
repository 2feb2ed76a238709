"""The model that a run made; or, while it goes on, the one that a checkpoint of it holds."""

from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from brimful.console import say
from brimful.errors import BrimfulError
from brimful.nn.encoder import Encoder
from brimful.nn.hf_tensors import Head
from brimful.nn.interop import load_model
from brimful.runs import checkpoint
from brimful.runs.checkpoint import AVERAGE, WEIGHTS
from brimful.runs.directory import START, find_model

Step = int | Literal["best"]


class Snapshot(NamedTuple):
    """A model and where it is from.

    Attributes:
        labels: names of its classes, if it has any.
        folder: that holds it, or one of the same kind.
        facts: of a checkpoint, its `step` and whether the weights are `averaged` over updates.
    """

    encoder: Encoder
    head: Head | None
    labels: list[str] | None
    folder: Path
    facts: dict[str, Any]


def load_snapshot(run: Path, step: Step | None) -> Snapshot:
    """Read the model of a run (or of a Hugging Face folder), or of a checkpoint of a pretraining run.

    That needs nothing outside the run's directory and changes nothing in it.

    Args:
        step: of the checkpoint; "best" is that of the best evaluation.

    Raises:
        BrimfulError: there is no model, no such checkpoint, or `run` is none of `pretrain`.
    """
    if step is None:
        _check_finished(run)
        folder = find_model(run, "model")
        return Snapshot(*load_model(folder), folder, {})
    kept = [run / "encoder", run / START]
    folders = [folder for folder in kept if (folder / "config.json").is_file()]
    if not folders:
        raise BrimfulError(
            f"{run} has neither {kept[0].name}/ nor {kept[1].name}/: --step is for runs of pretrain (one that"
            " an earlier version began has them when it was resumed)"
        )
    directory = run / "checkpoints"
    step = _best(directory) if step == "best" else step
    tensors, _ = checkpoint.load(directory, step)
    encoder, head, labels = load_model(folders[0])
    model = nn.ModuleDict({"encoder": encoder} | ({} if head is None else {"head": head}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors.get(f"{AVERAGE}{name}", tensors[f"{WEIGHTS}{name}"]))
    averaged = any(name.startswith(AVERAGE) for name in tensors)
    say(f"step {step:,}: " + ("the average of the weights (optimizer.ema)" if averaged else "the weights"))
    return Snapshot(encoder, head, labels, folders[0], {"step": step, "averaged": averaged})


def _best(directory: Path) -> int:
    states = checkpoint.states(directory)
    best = states[max(states)]["best"] if states else None
    if best is None:
        raise BrimfulError(f"no checkpoint in {directory} knows of an evaluation: give --step its number")
    return int(best[0])


def _check_finished(run: Path) -> None:
    """Refuse a run of `pretrain` that has no model yet."""
    if (run / START).is_dir() and not (run / "encoder").exists():
        steps = checkpoint.steps(run / "checkpoints")
        choice = f"give --step best, or one of {', '.join(map(str, steps))}"
        raise BrimfulError(f"{run} is not finished: {choice if steps else 'it has no checkpoint yet'}")
