"""Calibration: choose on sample texts how inference in int8 rounds the inputs of products.

Each channel is divided by a factor that lies between the largest input and the largest weight that it meets
(Xiao et al. 2023, "SmoothQuant", section 4, with alpha 0.5). All channels share the step with the least
squared error, so the largest inputs may be clipped.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import product

import torch
from torch import Tensor, nn

from brimful.base.types import Numbers
from brimful.data.batch import PackedBatch
from brimful.hf.int8_steps import products
from brimful.model.encoder import Encoder
from brimful.model.fast_forms import use_plain_forms
from brimful.model.inference import evaluation_mode
from brimful.model.initial_weights import Linear
from brimful.model.int8_rounding import Steps, find_largest_weight, round_weights

BATCH_ROWS = 256
"""The most inputs of a batch that are kept, evenly spread over the batch."""
PRODUCT_ROWS = 8192
"""The number of kept inputs of a product from which on further batches add no more."""
SMALLEST_VALUE = 1e-5
"""The lower bound of the values from which a factor is computed, so that channels of zeros get a factor."""
FRACTIONS = torch.linspace(1.0, 0.3, 15).tolist()
"""The fractions of the range of the inputs that a step may cover."""


@dataclass
class Inputs:
    """The inputs of a product."""

    largest: Tensor  # float32 (in,), the largest absolute value of each channel
    rows: list[Tensor] = field(default_factory=list)  # some of the inputs

    def add(self, x: Tensor) -> None:
        """Update `largest` with inputs, float32 (T, in), and keep some of them."""
        self.largest = torch.maximum(self.largest, x.abs().amax(0))
        if sum(map(len, self.rows)) < PRODUCT_ROWS:
            # A copy: a view would keep the whole batch in memory.
            self.rows.append(x[:: max(1, len(x) // BATCH_ROWS)][:BATCH_ROWS].clone())


def calibrate(encoder: Encoder, batches: Iterable[PackedBatch]) -> Numbers:
    """Give the products of an encoder their `steps`.

    Args:
        encoder: on the CPU, in float32.
        batches: batches of texts like those that it will read.

    Returns:
        The loss of each product by name: the error that rounding its inputs and weights causes in its outputs
        on the kept inputs, relative to the size of these outputs (root mean squares).
    """
    inputs = {}
    with ExitStack() as hooks, torch.inference_mode(), use_plain_forms(), evaluation_mode(encoder):
        for name, linear in products(encoder).items():
            inputs[name] = Inputs(torch.zeros(linear.in_features))

            def add(_: nn.Module, arguments: tuple[Tensor], to: Inputs = inputs[name]) -> None:
                to.add(arguments[0].float())

            hooks.enter_context(linear.register_forward_pre_hook(add))
        for batch in batches:
            encoder(batch)
    losses = {}
    for name, linear in products(encoder).items():
        x = torch.cat(inputs[name].rows)
        is_folded = name.endswith(".down") and not encoder.config.gated  # oneDNN rounds them without factors
        factors = None if is_folded else _find_factors(inputs[name].largest, linear)
        linear.steps = replace(_find_steps(x, factors), largest=find_largest_weight())
        losses[name] = _measure_loss(x, linear)
    return losses


def _find_factors(largest: Tensor, linear: nn.Linear) -> Tensor:
    """Return the factor of each channel, float32 (in,): equation 4 of SmoothQuant, with a mean of 1."""
    weights = linear.weight.detach().abs().amax(0).clamp_min(SMALLEST_VALUE)
    factors = (largest.clamp_min(SMALLEST_VALUE) / weights).sqrt()
    return factors / factors.mean()


def _find_steps(x: Tensor, factors: Tensor | None) -> Steps:
    """Return the steps with the least squared error on inputs (T, in)."""
    scaled = x if factors is None else x / factors
    low, high = min(0.0, float(scaled.min())), max(0.0, float(scaled.max()))
    if low == high:
        return Steps(1.0, 0, factors)
    candidates = []
    below = FRACTIONS if low < -0.2 * high else [1.0]  # after GeLU, inputs are hardly ever far below 0
    for above, under in product(FRACTIONS, below):
        size = (high * above - low * under) / 255
        zero = min(max(round(-low * under / size), 0), 255)
        error = float((_round_inputs(scaled, size, zero) - scaled).square().mean())
        candidates.append((error, size, zero))
    _, size, zero = min(candidates)
    return Steps(size, zero, factors)


def _round_inputs(x: Tensor, size: float, zero: int) -> Tensor:
    return ((x / size + zero).round().clamp(0, 255) - zero) * size


def _measure_loss(x: Tensor, linear: Linear) -> float:
    weight, steps = linear.weight.detach(), linear.steps
    integers, sizes = round_weights(weight, steps)  # (out, in) and (out,)
    inputs = _round_inputs(x if steps.factors is None else x / steps.factors, steps.size, steps.zero)
    exact = x @ weight.t()
    error = inputs @ (integers * sizes[:, None]).t() - exact
    return float(error.norm() / exact.norm().clamp_min(torch.finfo(torch.float32).tiny))
