"""The file of a folder that says how inference in int8 rounds the inputs of products: int8.safetensors."""

import math
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from brimful.base.errors import BrimfulError
from brimful.base.storage import write_tensors
from brimful.base.types import InferencePrecision
from brimful.model.encoder import Encoder
from brimful.model.fast_forms import SWITCH, has_fast_forms
from brimful.model.initial_weights import Linear
from brimful.model.int8_rounding import NARROW, WHOLE, Steps, find_obstacle
from brimful.precision.policy import resolve

FILE = "int8.safetensors"


def write_steps(folder: Path, encoder: Encoder) -> None:
    """Write the steps of an encoder's products, under the names of its modules."""
    tensors: dict[str, Tensor] = {}
    for name, linear in products(encoder).items():
        if linear.steps is not None:
            tensors[f"{name}.size"] = torch.tensor([linear.steps.size], dtype=torch.float64)
            tensors[f"{name}.zero"] = torch.tensor([linear.steps.zero])
            tensors[f"{name}.largest"] = torch.tensor([linear.steps.largest])
            if linear.steps.factors is not None:
                tensors[f"{name}.factors"] = linear.steps.factors
    write_tensors(folder / FILE, tensors)


def read_steps(folder: Path, encoder: Encoder) -> None:
    """Give the products of an encoder the steps that its folder has, if it has any.

    Raises:
        BrimfulError: the file is damaged, or another model's.
    """
    path = folder / FILE
    if not path.is_file():
        return
    try:
        tensors = load_file(path)
    except Exception as error:
        raise BrimfulError(f"{path} is damaged: export the model again") from error
    known = products(encoder)
    for name in {key.rpartition(".")[0] for key in tensors}:
        factors = tensors.get(f"{name}.factors")
        size, zero = (_number(tensors.get(f"{name}.{part}")) for part in ("size", "zero"))
        largest = _number(tensors.get(f"{name}.largest", torch.tensor(WHOLE)))  # not in files of 0.2.0
        fits = name in known and 0 < size < math.inf and 0 <= zero <= 255 and largest in (NARROW, WHOLE)
        if fits and factors is not None:
            right = factors.dtype == torch.float32 and factors.shape == (known[name].in_features,)
            fits = right and bool(((factors > 0) & factors.isfinite()).all())
        if not fits:
            raise BrimfulError(f"{path} is not this model's ({name}): export the model again")
        known[name].steps = Steps(size, int(zero), factors, int(largest))


def _number(tensor: Tensor | None) -> float:
    return math.nan if tensor is None or tensor.numel() != 1 else tensor.item()


def calibrated_precision(
    asked: InferencePrecision, encoder: Encoder, device: torch.device, named: object = "the encoder"
) -> InferencePrecision:
    """The number format of a model's inference, however much it reads: int8 where it is asked for, or `auto`
    is and the encoder has steps and the device computes with them; else as `resolve`.

    Args:
        device: that will compute.
        named: the folder, for errors.

    Raises:
        BrimfulError: the encoder or the device has not what the format needs.
    """
    if asked not in ("auto", "int8"):
        return resolve(asked, device)
    steps = [linear.steps for linear in products(encoder).values() if linear.steps is not None]
    if not steps:
        if asked == "int8":
            raise BrimfulError(
                f"{named} is not calibrated for int8: `brimful export --format int8 --calibrate TEXTS` writes"
                " a folder that is"
            )
        return resolve(asked, device)
    need = int8_needs(device, max(each.largest for each in steps))
    if need is not None and asked == "int8":
        raise BrimfulError(f"int8 needs {need}; leave --precision out")
    return resolve(asked, device) if need else "int8"


def int8_needs(device: torch.device, largest: int = NARROW) -> str | None:
    """What inference in int8 needs and is not here; None: nothing.

    Args:
        largest: integer of the weights.
    """
    if device.type != "cpu":
        return "a CPU"
    return find_obstacle(largest) if has_fast_forms() else f"{SWITCH}=on"


def forget_steps(encoder: Encoder) -> None:
    """Take the steps from an encoder whose weights will change."""
    for linear in products(encoder).values():
        linear.steps = None


def products(encoder: Encoder) -> dict[str, Linear]:
    """The matrices of the layers, by name."""
    return {
        f"layers.{index}.{part}": getattr(layer, part)
        for index, layer in enumerate(encoder.layers)
        for part in ("qkv", "attention_out", "up", "down")
    }
