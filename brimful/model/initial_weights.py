"""Matrices that draw initial weights, and modules whose weights come from elsewhere and are not drawn."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

_draws = ContextVar("draws", default=True)


@contextmanager
def skip_initial_weights() -> Iterator[None]:
    """Modules made inside draw no random numbers: matrices hold whatever is in their memory.

    That memory is not touched, so it takes no room until it is written. Norms and rotary tables are made as
    ever.
    """
    token = _draws.set(False)
    try:
        yield
    finally:
        _draws.reset(token)


@torch.no_grad()
def draw(tensor: Tensor, distribution: Callable[[Tensor], object]) -> None:
    """Fill a tensor by `distribution`, a function that writes in place; see `skip_initial_weights`."""
    if _draws.get():
        distribution(tensor)


class Linear(nn.Linear):
    """torch's, whose first random weights can be left out.

    Attributes:
        steps: how inference in int8 rounds the inputs (`model.int8_rounding.Steps`); None: it does not.
        integers: its weights as inference in int8 has laid them out, which it keeps.
    """

    steps: Any = None
    integers: Any = None

    def reset_parameters(self) -> None:
        """Draw weights as torch does, if weights are drawn."""
        if _draws.get():
            super().reset_parameters()


class Embedding(nn.Embedding):
    """torch's, whose first random weights can be left out."""

    def reset_parameters(self) -> None:
        """Draw weights as torch does, if weights are drawn."""
        if _draws.get():
            super().reset_parameters()


def draw_normal(weight: Tensor, std: float, *, truncated: bool) -> None:
    """Fill a matrix from a normal distribution, truncated at two standard deviations if asked for."""
    if truncated:
        draw(weight, lambda matrix: _truncated_normal(matrix, std))
    else:
        draw(weight, lambda matrix: nn.init.normal_(matrix, std=std))


def _truncated_normal(matrix: Tensor, std: float) -> None:
    """Draw again what is outside, until nothing is: 1.05 draws for each number.

    torch.nn.init draws the whole matrix again each time, in another way in each version.
    """
    matrix.normal_(std=std)
    if matrix.is_meta:
        return
    numbers = matrix.view(-1)
    outside = (numbers.abs() > 2 * std).nonzero()[:, 0]
    while len(outside):
        drawn = numbers.new_empty(len(outside)).normal_(std=std)
        numbers[outside] = drawn
        outside = outside[drawn.abs() > 2 * std]
