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
from brimful.base.types import Numbers, Precision, PrimaryMetric
from brimful.data.batch import PackedBatch
from brimful.model.attention import Layout
from brimful.model.encoder import Encoder
from brimful.precision.policy import DTYPES, autocast, resolve
from brimful.train.config import TrainerConfig

Modules = dict[str, nn.Module]
Sums = dict[str, Tensor]
"""The sums of a loss by name, as scalars on the device."""


@dataclass(frozen=True)
class Runtime:
    """The ranks, the device and the number format of a step. `precision` is resolved, never "auto"."""

    world: World
    precision: Precision

    @classmethod
    def of(cls, world: World, precision: Precision, config: TrainerConfig | None = None) -> "Runtime":
        """Resolve the precision of a run.

        Args:
            precision: "auto" is the format of 16-bit parameters, or else the device's fastest format.
            config: the formats of parameters and residual stream, and the loss scale; by default float32.

        Raises:
            BrimfulError: the device does not have the precision, the parameters or the residual stream have
                another 16-bit format, or a loss scale is given without fp16.
        """
        config = config or TrainerConfig()
        if precision == "auto" and config.weights != "fp32":
            precision = config.weights
        precision = resolve(precision, world.device)
        for name, value in (("weights", config.weights), ("residual", config.residual)):
            if value not in ("auto", "fp32", precision):
                raise BrimfulError(
                    f"trainer.{name} is {value}, which needs precision {value}, not {precision}"
                )
        if precision != "fp16" and config.loss_scale != TrainerConfig.loss_scale:
            raise BrimfulError(
                f"trainer.loss_scale does nothing with precision {precision}: only fp16 scales the loss;"
                " leave it out, or set precision fp16"
            )
        return cls(world, precision)

    @property
    def device(self) -> torch.device:
        """The device of this rank's tensors."""
        return self.world.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of activations."""
        return DTYPES[self.precision]

    def autocast(self) -> AbstractContextManager:
        """Return the context of a forward pass."""
        return autocast(self.precision, self.device)


class Objective:
    """A loss and the way to evaluate a model trained with it. Each loss is a subclass.

    Attributes:
        coefficients: the factor of each term's mean in the loss.
        watched: the names of other sums that `loss` returns. They have normalizers like the terms, and are
            logged.
        primary_metric: the primary metric and its direction; None without metrics.
        compiles: whether `loss` can be one compiled graph, since it reads only tensors of the batch, whose
            shapes a stream can fix.
    """

    coefficients: Numbers
    watched: tuple[str, ...] = ()
    primary_metric: PrimaryMetric | None = None
    compiles = False

    def modules(self) -> Modules:
        """Return the trainable modules besides the encoder, such as heads and projections, by name."""
        raise NotImplementedError

    def frozen(self) -> Modules:
        """Return the modules that are used and not trained, such as a teacher, by name."""
        return {}

    def normalizers(self, batch: PackedBatch) -> Numbers:
        """Return the divisor of each sum over this batch, computed from the batch alone."""
        raise NotImplementedError

    def loss(self, encoder: Encoder, batch: PackedBatch, layout: Layout | None = None) -> Sums:
        """Return each sum over this batch, as a scalar. The terms are float32 or wider.

        Args:
            layout: `encoder.prepare(batch)`, if the caller has it.
        """
        raise NotImplementedError

    def evaluate(self, encoder: Encoder, runtime: Runtime) -> Numbers:
        """Return metrics on held-out data, the same on every rank; empty without held-out data."""
        return {}


def is_better(value: float, best: float | None, primary_metric: PrimaryMetric) -> bool:
    """Whether a value of the primary metric is finite and better than the best so far, if there is one."""
    if not math.isfinite(value):
        return False
    if best is None:
        return True
    return value > best if primary_metric[1] == "highest" else value < best
