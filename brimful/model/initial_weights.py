"""Initial weights of matrices, and modules whose weights come from a file and so need no initial ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

_initializes: ContextVar[bool] = ContextVar("initializes", default=True)


@contextmanager
def skip_initial_weights() -> Iterator[None]:
    """Inside this context new matrices draw no random numbers and hold whatever is in their memory.

    The memory is not touched, so the operating system gives no page to it before the real weights are
    written.
    """
    token = _initializes.set(False)
    try:
        yield
    finally:
        _initializes.reset(token)


class Linear(nn.Linear):
    """torch's Linear, whose initial weights `skip_initial_weights` leaves out.

    Attributes:
        steps: the rounding of the inputs in int8 inference (`model.int8_rounding.Steps`); None: not in int8.
        integers: the weights in the form for int8 inference, kept for its next run.
    """

    steps: Any = None
    integers: Any = None

    def reset_parameters(self) -> None:
        if _initializes.get():
            super().reset_parameters()


class Embedding(nn.Embedding):
    """torch's Embedding, whose initial weights `skip_initial_weights` leaves out."""

    def reset_parameters(self) -> None:
        if _initializes.get():
            super().reset_parameters()


@torch.no_grad()
def fill_normal(weight: Tensor, std: float, *, truncated: bool) -> None:
    """Fill a matrix from a normal distribution, unless initial weights are skipped.

    Args:
        truncated: whether numbers beyond two standard deviations are drawn again.
    """
    if not _initializes.get():
        return
    weight.normal_(std=std)
    if not truncated or weight.is_meta:
        return
    # Only the numbers outside are drawn again, 1.05 draws for each number in all. torch.nn.init.trunc_normal_
    # draws the whole matrix again each time, and does it differently in each version of torch.
    numbers = weight.view(-1)
    outside = (numbers.abs() > 2 * std).nonzero()[:, 0]
    while len(outside):
        drawn = numbers.new_empty(len(outside)).normal_(std=std)
        numbers[outside] = drawn
        outside = outside[drawn.abs() > 2 * std]
