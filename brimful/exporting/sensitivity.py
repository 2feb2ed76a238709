"""Which layers lose most in eight bits: each alone is rounded, in the model itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from brimful.exporting.padded import PaddedModel
from brimful.exporting.padded_batches import Inputs

NAMED = 3
"""Layers that a message names."""


def layers_that_lose(model: PaddedModel, texts: list[Inputs]) -> list[tuple[str, float]]:
    """The matrix products of a model, by how far outputs are from those in float32 if its weights (by output)
    and inputs (by tensor) have eight bits: the root mean square of the difference over that of the outputs.

    Args:
        texts: batches; a few dozen texts are enough.

    Returns:
        names as in the encoder and head, and the differences, the largest first.
    """
    exact = _outputs(model, texts)
    scale = exact.square().mean().sqrt().clamp_min(1e-12)
    found = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            with _rounded(module):
                difference = (_outputs(model, texts) - exact).square().mean().sqrt()
            found.append((name.removeprefix("encoder."), float(difference / scale)))
    return sorted(found, key=lambda each: -each[1])


def described(found: list[tuple[str, float]]) -> str:
    """The first of them in a clause of a message."""
    names = ", ".join(f"{name} ({lost:.3f})" for name, lost in found[:NAMED])
    return f". Alone in eight bits these layers change the outputs most: {names}"


def _outputs(model: PaddedModel, texts: list[Inputs]) -> Tensor:
    """The outputs of real tokens or texts, one after the other."""
    found = []
    with torch.inference_mode():
        for inputs in texts:
            given = {name: torch.from_numpy(array) for name, array in inputs.items()}
            outputs = model(**given)
            real = given["attention_mask"].bool()
            found.append((outputs[real] if outputs.ndim == 3 else outputs).flatten())
    return torch.cat(found)


@contextmanager
def _rounded(linear: nn.Linear) -> Iterator[None]:
    weight = linear.weight.data
    size = weight.abs().amax(1, keepdim=True).clamp_min(1e-12) / 127
    linear.weight.data = (weight / size).round() * size
    handle = linear.register_forward_pre_hook(_round_input)
    try:
        yield
    finally:
        handle.remove()
        linear.weight.data = weight


def _round_input(module: nn.Module, given: tuple[Any, ...]) -> tuple[Tensor]:
    (x,) = given
    low, high = x.amin().clamp(max=0), x.amax().clamp(min=0)
    size = ((high - low) / 255).clamp_min(1e-12)
    zero = (-low / size).round()
    return ((((x / size).round() + zero).clamp(0, 255) - zero) * size,)
