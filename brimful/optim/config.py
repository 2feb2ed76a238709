"""The options of optimizers."""

import math
from dataclasses import dataclass
from typing import Literal

from brimful.base.errors import BrimfulError


@dataclass(frozen=True, kw_only=True)
class DecayConfig:
    """The decays of an optimizer.

    Fine-tuning and distillation set nothing else: their AdamW has its usual constants, and other options of
    theirs set the rates.
    """

    weight_decay: float = 0.01
    """Decoupled weight decay of matrices. Vectors (biases, norms) do not decay."""
    layer_decay: float = 1.0
    """Layer-wise decay of the peak rate, for fine-tuning on few labels, such as 0.85: the head has the rate,
    the last layer the rate times this factor, each layer below it once more, the embeddings once more than
    the first. 1 = none."""

    def at(self, rate: float) -> "OptimizerConfig":
        """Return the options of AdamW with these decays and a peak rate."""
        return OptimizerConfig(**vars(self), learning_rate=rate)

    def __post_init__(self) -> None:
        _require_finite(self, "weight_decay")
        if not 0 < self.layer_decay <= 1:
            raise BrimfulError(
                f"optimizer.layer_decay is {self.layer_decay}: it must be above 0 and at most 1"
            )


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(DecayConfig):
    """The optimizer and its constants."""

    name: Literal["adamw", "lamb", "muon"] = "adamw"
    """AdamW or LAMB for everything, or Muon for the matrices inside the layers and AdamW for the rest."""
    learning_rate: float = 1e-3
    """Peak rate, except of Muon."""
    muon_learning_rate: float = 0.02
    """Peak rate of Muon."""
    beta1: float = 0.9
    """Decay of the first moment, except of Muon's."""
    beta2: float = 0.98
    """Decay of the second moment, which Muon lacks; 0.999 in NVIDIA's LAMB recipe."""
    epsilon: float = 1e-8
    """Term against division by zero, except in Muon; 1e-6 in NVIDIA's LAMB recipe."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_finite(self, "learning_rate", "muon_learning_rate")
        for name, beta in (("beta1", self.beta1), ("beta2", self.beta2)):
            if not 0 <= beta < 1:
                raise BrimfulError(f"optimizer.{name} is {beta}: it must be at least 0 and below 1")
        if not 0 < self.epsilon < math.inf:  # with 0, the first update of an unused parameter is 0 / 0
            raise BrimfulError(f"optimizer.epsilon is {self.epsilon}: it must be a number above 0")

    @property
    def summary(self) -> str:
        """The optimizer's name and constants, for the first line of a run."""
        titles = {"adamw": "AdamW", "lamb": "LAMB", "muon": "Muon and AdamW"}
        return f"{titles[self.name]} (betas {self.beta1:g} and {self.beta2:g})"


def _require_finite(config: DecayConfig, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not 0 <= value < math.inf:
            raise BrimfulError(f"optimizer.{name} is {value}: it must be a number that is not negative")
