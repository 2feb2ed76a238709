"""Calibration: how inference in int8 rounds the inputs of products, found on texts.

Each channel is divided by a factor that lies between the largest input and the largest weight that it meets
(Xiao et al. 2023, "SmoothQuant", section 4, with alpha 0.5). Then one step of all channels is searched for
whose squared error is least: the largest inputs may be cut off.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from brimful.data.batch import PackedBatch
from brimful.hf.int8_steps import products
from brimful.model.encoder import Encoder
from brimful.model.fast_forms import use_plain_forms
from brimful.model.inference import evaluation_mode
from brimful.model.initial_weights import Linear
from brimful.model.int8_rounding import Steps, find_largest_weight, round_weights

ROWS = 256
"""Inputs of a batch that are kept, evenly spread over it."""
MOST_ROWS = 8192
SMALLEST = 1e-5
"""Of what factors are made."""
FRACTIONS = torch.linspace(1.0, 0.3, 15).tolist()
"""Of the range of the inputs, that steps are tried for."""


@dataclass
class Inputs:
    """What a product has read.

    Attributes:
        largest: float32 (in,), the largest absolute value of each channel.
        rows: some of the inputs.
    """

    largest: Tensor
    rows: list[Tensor] = field(default_factory=list)

    def add(self, x: Tensor) -> None:
        """Take in float32 (T, in)."""
        self.largest = torch.maximum(self.largest, x.abs().amax(0))
        if sum(map(len, self.rows)) < MOST_ROWS:
            self.rows.append(x[:: max(1, len(x) // ROWS)][:ROWS].clone())


def calibrate(encoder: Encoder, batches: Iterable[PackedBatch]) -> dict[str, float]:
    """Give the products of an encoder their `steps`.

    Args:
        encoder: on the CPU, in float32.
        batches: of texts like those that it will read.

    Returns:
        By the name of each product, what rounding its inputs and weights loses: the error of its outputs on
        kept inputs, in units of their size (root mean squares).
    """
    found = {name: Inputs(torch.zeros(linear.in_features)) for name, linear in products(encoder).items()}
    hooks = [
        linear.register_forward_pre_hook(lambda _, given, inputs=found[name]: inputs.add(given[0].float()))
        for name, linear in products(encoder).items()
    ]
    try:
        with torch.inference_mode(), use_plain_forms(), evaluation_mode(encoder):
            for batch in batches:
                encoder(batch)
    finally:
        for hook in hooks:
            hook.remove()
    losses = {}
    for name, linear in products(encoder).items():
        x = torch.cat(found[name].rows)
        folds = name.endswith(".down") and not encoder.config.gated  # its inputs are rounded by oneDNN
        factors = None if folds else _factors(found[name].largest, linear)
        linear.steps = replace(_steps(x, factors), largest=find_largest_weight())
        losses[name] = _loss(x, linear)
    return losses


def _factors(largest: Tensor, linear: nn.Linear) -> Tensor:
    weights = linear.weight.detach().abs().amax(0).clamp_min(SMALLEST)
    factors = (largest.clamp_min(SMALLEST) / weights).sqrt()
    return factors / factors.mean()


def _steps(x: Tensor, factors: Tensor | None) -> Steps:
    """The steps with the least squared error."""
    scaled = x if factors is None else x / factors
    low, high = min(0.0, float(scaled.min())), max(0.0, float(scaled.max()))
    if low == high:
        return Steps(1.0, 0, factors)
    tried = []
    below = FRACTIONS if low < -0.2 * high else [1.0]  # behind GeLU almost nothing is negative
    for above, under in ((above, under) for above in FRACTIONS for under in below):
        size = (high * above - low * under) / 255
        zero = min(max(round(-low * under / size), 0), 255)
        tried.append((float((_rounded(scaled, size, zero) - scaled).square().mean()), size, zero))
    return Steps(*min(tried)[1:], factors)


def _rounded(x: Tensor, size: float, zero: int) -> Tensor:
    return ((x / size + zero).round().clamp(0, 255) - zero) * size


def _loss(x: Tensor, linear: Linear) -> float:
    weight, steps = linear.weight.detach(), linear.steps
    integers, sizes = round_weights(weight, steps)
    inputs = _rounded(x if steps.factors is None else x / steps.factors, steps.size, steps.zero)
    exact = x @ weight.t()
    error = inputs @ (integers * sizes[:, None]).t() - exact
    return float(error.norm() / exact.norm().clamp_min(torch.finfo(torch.float32).tiny))
