"""The interface of a step's loss: pretraining, fine-tuning and distillation are objectives of one Trainer.

A loss is a set of named terms, each a sum with a normalizer. The normalizer is known from the batch before
the forward pass, so the mean over a whole update is exact however it is split into micro-batches and ranks.
"""

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from brimful.base.distributed import World
from brimful.base.errors import BrimfulError
from brimful.base.types import Precision, PrimaryMetric
from brimful.data.batch import PackedBatch
from brimful.model.attention import Layout
from brimful.model.encoder import Encoder
from brimful.precision.policy import DTYPES, autocast, resolve
from brimful.train.config import TrainerConfig, check_precision


@dataclass(frozen=True)
class Runtime:
    """Where and in which number format a step runs. `precision` is resolved, never "auto"."""

    world: World
    precision: Precision

    @classmethod
    def of(cls, world: World, precision: Precision, config: TrainerConfig | None = None) -> "Runtime":
        """Resolve the precision of a run.

        Args:
            config: names the number formats; None means float32 parameters.
            precision: "auto" is the format of 16-bit parameters, or else the device's fastest format.

        Raises:
            BrimfulError: the device does not have the precision, the parameters or the residual stream have
                another 16-bit format, or a loss scale is given without fp16.
        """
        config = config or TrainerConfig()
        weights = config.weights
        if precision == "auto" and weights != "fp32":
            precision = weights
        precision = resolve(precision, world.device)
        if weights not in ("fp32", precision):
            raise BrimfulError(
                f"trainer.weights is {weights}, which needs precision {weights}, not {precision}"
            )
        check_precision(config, precision)
        return cls(world, precision)

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return self.world.device

    @property
    def dtype(self) -> torch.dtype:
        """The format of activations."""
        return DTYPES[self.precision]

    def autocast(self) -> AbstractContextManager:
        """The context of a forward pass."""
        return autocast(self.precision, self.device)


class Objective:
    """A loss and the way to evaluate a model trained with it. Each loss is a subclass.

    Attributes:
        coefficients: what each term's mean is multiplied by in the loss.
        watched: other sums that `loss` returns. They have normalizers like the terms, but are only logged.
        primary_metric: the primary metric and its direction; None: there are no metrics.
        compiles: whether `loss` reads only tensors of the batch, whose shapes a stream can fix, so that it
            can be one compiled graph.
    """

    coefficients: dict[str, float]
    watched: tuple[str, ...] = ()
    primary_metric: PrimaryMetric | None = None
    compiles = False

    def modules(self) -> dict[str, nn.Module]:
        """Trainable modules other than the encoder, such as heads and projections."""
        raise NotImplementedError

    def frozen(self) -> dict[str, nn.Module]:
        """Modules that are used but not trained, such as a teacher."""
        return {}

    def normalizers(self, batch: PackedBatch) -> dict[str, float]:
        """The divisor of each sum over this batch, computed from the batch alone."""
        raise NotImplementedError

    def loss(self, encoder: Encoder, batch: PackedBatch, layout: Layout | None = None) -> dict[str, Tensor]:
        """Each sum over this batch, as a scalar. The terms are float32 or wider.

        Args:
            layout: `encoder.prepare(batch)`, if the caller has it.
        """
        raise NotImplementedError

    def evaluate(self, encoder: Encoder, runtime: Runtime) -> dict[str, float]:
        """Metrics on held-out data, the same on every rank; empty without held-out data."""
        return {}


def is_better(value: float, best: float | None, primary_metric: PrimaryMetric) -> bool:
    """Whether the primary metric is finite and better than the best so far; None: it is the first."""
    if not math.isfinite(value):
        return False
    if best is None:
        return True
    return value > best if primary_metric[1] == "highest" else value < best
