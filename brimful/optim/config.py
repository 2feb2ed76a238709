"""The options of optimizers."""

from dataclasses import dataclass
from typing import Literal

from brimful.base.errors import require_range


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
        require_range(self, "at least 0 and below infinity", "weight_decay", group="optimizer.")
        require_range(self, "above 0 and at most 1", "layer_decay", group="optimizer.")


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
        rates = ("learning_rate", "muon_learning_rate")
        require_range(self, "at least 0 and below infinity", *rates, group="optimizer.")
        require_range(self, "at least 0 and below 1", "beta1", "beta2", group="optimizer.")
        # With 0, the first update of an unused parameter would be 0 / 0.
        require_range(self, "above 0 and below infinity", "epsilon", group="optimizer.")

    @property
    def summary(self) -> str:
        """The optimizer's name and constants, for the first line of a run."""
        titles = {"adamw": "AdamW", "lamb": "LAMB", "muon": "Muon and AdamW"}
        return f"{titles[self.name]} (betas {self.beta1:g} and {self.beta2:g})"
