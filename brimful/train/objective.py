"""What a step's loss is. Pretraining, fine-tuning and distillation are objectives given to one Trainer.

A loss is a set of named sums. What each sum is divided by, its weight, is known from the batches before the
forward pass, so the mean over a whole update is exact however it is split into micro-batches and ranks.
"""

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn

from brimful.data.batch import PackedBatch
from brimful.distributed import World
from brimful.errors import BrimfulError
from brimful.nn.attention import Layout
from brimful.nn.encoder import Encoder
from brimful.precision.policy import DTYPES, Precision, autocast, resolve

JudgedBy = tuple[str, Literal["highest", "lowest"]]


@dataclass(frozen=True)
class Runtime:
    """Where and in which number format a step runs. `precision` is resolved, never "auto"."""

    world: World
    precision: Precision

    @classmethod
    def of(cls, world: World, precision: Precision, weights: Precision) -> "Runtime":
        """That of a run whose configuration says so.

        Args:
            precision: "auto" is the format of 16-bit weights, or what the device does fastest.
            weights: how they are kept; never "auto".

        Raises:
            BrimfulError: the device has not got that precision, or the weights have another format.
        """
        if precision == "auto" and weights != "fp32":
            precision = weights
        found = resolve(precision, world.device)
        if weights not in ("fp32", found):
            raise BrimfulError(f"trainer.weights is {weights}, which needs precision {weights}, not {found}")
        return cls(world, found)

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return self.world.device

    @property
    def dtype(self) -> torch.dtype:
        """Of the activations."""
        return DTYPES[self.precision]

    def autocast(self) -> AbstractContextManager:
        """The context of a forward pass."""
        return autocast(self.precision, self.device)


class Objective(Protocol):
    """A loss and how to judge a model by it."""

    @property
    def coefficients(self) -> dict[str, float]:
        """What each term's mean is multiplied by in the total loss."""

    @property
    def watched(self) -> tuple[str, ...]:
        """Further sums of `loss`, with weights as the terms have them, that are shown and not trained."""

    @property
    def judged_by(self) -> JudgedBy | None:
        """Which evaluation is the best: that with the highest or lowest of a figure; None: there are none."""

    compiles: ClassVar[bool]
    """Whether `loss` reads only tensors of the batch, whose shapes a stream can fix: then it is one graph."""

    def modules(self) -> dict[str, nn.Module]:
        """Trainable modules beside the encoder: heads, projections."""

    def frozen(self) -> dict[str, nn.Module]:
        """Modules that are used and not trained: a teacher."""

    def weights(self, batch: PackedBatch) -> dict[str, float]:
        """What each sum over this batch is to be divided by, from the batch alone."""

    def loss(self, encoder: Encoder, batch: PackedBatch, layout: Layout | None = None) -> dict[str, Tensor]:
        """Each sum over this batch: scalars, those of terms float32 at least.

        Args:
            layout: `encoder.prepare(batch)`, if it is at hand.
        """

    def evaluate(self, encoder: Encoder, runtime: Runtime) -> dict[str, float]:
        """Figures on held-out data, the same on every rank; empty if there is none."""


def better(judged_by: JudgedBy | None, figures: dict[str, float], than: float | None) -> float | None:
    """The figure that an evaluation is judged by, if it is a number and better than the best so far."""
    if judged_by is None or not figures:
        return None
    name, best = judged_by
    figure = figures[name]
    if not math.isfinite(figure):
        return None
    if than is None:
        return figure
    return figure if (figure > than if best == "highest" else figure < than) else None
