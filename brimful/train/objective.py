"""What a step's loss is. Pretraining, fine-tuning and distillation are objectives given to one Trainer.

A loss is a set of named sums. What each sum is divided by, its weight, is known from the batches before the
forward pass, so the mean over a whole update is exact however it is split into micro-batches and ranks.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from brimful.data.batch import PackedBatch
from brimful.distributed import World
from brimful.nn.attention import Layout
from brimful.nn.encoder import Encoder
from brimful.precision.policy import Precision, autocast


@dataclass(frozen=True)
class Runtime:
    """Where and in which number format a step runs. `precision` is resolved, never "auto"."""

    world: World
    precision: Precision

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return self.world.device

    @property
    def dtype(self) -> torch.dtype:
        """Of the activations."""
        return torch.bfloat16 if self.precision == "bf16" else torch.float32

    def autocast(self) -> AbstractContextManager:
        """The context of a forward pass."""
        return autocast(self.precision, self.device)


class Objective(Protocol):
    """A loss and how to judge a model by it."""

    coefficients: ClassVar[dict[str, float]]
    """What each term's mean is multiplied by in the total loss."""
    compiles: ClassVar[bool]
    """Whether `loss` reads only tensors of the batch, whose shapes a stream can fix: then it is one graph."""

    def modules(self) -> dict[str, nn.Module]:
        """Trainable modules beside the encoder: heads, projections."""

    def frozen(self) -> dict[str, nn.Module]:
        """Modules that are used and not trained: a teacher."""

    def weights(self, batch: PackedBatch) -> dict[str, float]:
        """What each term's sum over this batch is to be divided by, from the batch alone."""

    def loss(self, encoder: Encoder, batch: PackedBatch, layout: Layout | None = None) -> dict[str, Tensor]:
        """Each term's sum over this batch: scalars, float32 at least.

        Args:
            layout: `encoder.prepare(batch)`, if it is at hand.
        """

    def evaluate(self, encoder: Encoder, runtime: Runtime) -> dict[str, float]:
        """Figures on held-out data, the same on every rank; empty if there is none."""
