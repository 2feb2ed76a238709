"""int8.safetensors: the steps by which inference in int8 rounds the inputs of products."""

import math
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from brimful.base.errors import BrimfulError
from brimful.base.types import InferencePrecision
from brimful.model.encoder import Encoder
from brimful.model.fast_forms import SWITCH, has_fast_forms
from brimful.model.initial_weights import Linear
from brimful.model.int8_rounding import NARROW, WHOLE, Steps, find_obstacle
from brimful.precision.policy import resolve

FILE, FACTORS = "int8.safetensors", ".factors"


def read_steps(folder: Path, encoder: Encoder) -> None:
    """Load the steps in a folder, if there are any, into the products of its encoder.

    Raises:
        BrimfulError: the file is damaged, another model's, or of 0.2.0.
    """
    path = folder / FILE
    if not path.is_file():
        return
    linears = products(encoder)
    try:
        tensors = load_file(path)
        for name in tensors:
            if name.endswith(FACTORS):
                continue
            size, zero, largest = tensors[name].tolist()
            factors = tensors.get(name + FACTORS, torch.ones(linears[name].in_features))
            is_range = 0 < size < math.inf and 0 <= zero <= 255 and largest in (NARROW, WHOLE)
            is_whole = factors.dtype == torch.float32 and bool(((factors > 0) & (factors < math.inf)).all())
            if not is_range or not is_whole or factors.shape != (linears[name].in_features,):
                raise ValueError(name)
            linears[name].steps = Steps(size, int(zero), tensors.get(name + FACTORS), int(largest))
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        reason = f"{path} is damaged, of 0.2.0, or not this model's"
        raise BrimfulError(f"{reason}: remove it, or export the run again") from error


def calibrated_precision(
    requested: InferencePrecision, encoder: Encoder, device: torch.device, named: object = "the encoder"
) -> InferencePrecision:
    """Choose the number format of a model's inference, for any amount of text.

    The format is int8 if int8 or `auto` is requested, the encoder has steps, and the device computes with
    them; otherwise it is the choice of `resolve`.

    Args:
        device: the device that will compute.
        named: the name of the model in errors.

    Raises:
        BrimfulError: int8 is requested, and the encoder has no steps or the device cannot compute in int8.
    """
    if requested not in ("auto", "int8"):
        return resolve(requested, device)
    all_steps = [linear.steps for linear in products(encoder).values() if linear.steps is not None]
    if all_steps:
        need = lacks_for_int8(device, max(steps.largest for steps in all_steps))
        if need is None:
            return "int8"
        if requested == "int8":
            raise BrimfulError(f"int8 needs {need}; leave --precision out")
    elif requested == "int8":
        raise BrimfulError(
            f"{named} is not calibrated for int8: `brimful export --format int8 --calibrate TEXTS` writes a"
            " calibrated folder"
        )
    return resolve(requested, device)


def lacks_for_int8(device: torch.device, largest: int = NARROW) -> str | None:
    """Return in words what a device lacks for inference in int8; None if it lacks nothing.

    Args:
        largest: the largest integer of the weights.
    """
    if device.type != "cpu":
        return "a CPU"
    return find_obstacle(largest) if has_fast_forms() else f"{SWITCH}=on"


def forget_steps(encoder: Encoder) -> None:
    """Remove the steps of an encoder whose weights will change."""
    for linear in products(encoder).values():
        linear.steps = None  # calibrated for other weights


def products(encoder: Encoder) -> dict[str, Linear]:
    """Return the matrices of the layers, by name."""
    linears = {}
    for index, layer in enumerate(encoder.layers):
        for part in ("qkv", "attention_out", "up", "down"):
            linears[f"layers.{index}.{part}"] = getattr(layer, part)
    return linears
