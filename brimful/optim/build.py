"""Parameters -> optimizers: which parameter is treated how."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from brimful.errors import BrimfulError
from brimful.optim.muon import Muon


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The optimizer and its constants."""

    name: Literal["adamw", "muon"] = "adamw"
    """AdamW for all, or Muon for the matrices inside the layers and AdamW for the rest."""
    learning_rate: float = 1e-3
    """Peak rate of AdamW."""
    muon_learning_rate: float = 0.02
    """Peak rate of Muon."""
    weight_decay: float = 0.01
    """Decoupled weight decay on matrices; vectors (biases, norms) have none."""
    beta1: float = 0.9
    """AdamW's decay of the first moment."""
    beta2: float = 0.98
    """AdamW's decay of the second moment."""
    epsilon: float = 1e-8
    """AdamW's term against division by zero."""

    def __post_init__(self) -> None:
        for name in ("learning_rate", "muon_learning_rate", "weight_decay"):
            if not 0 <= getattr(self, name) < math.inf:
                raise BrimfulError(
                    f"optimizer.{name} is {getattr(self, name)}: it must be a number that is not negative"
                )
        if not 0 < self.epsilon < math.inf:  # with 0, what had no gradient yet becomes 0 / 0
            raise BrimfulError(f"optimizer.epsilon is {self.epsilon}: it must be a number above 0")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise BrimfulError(
                    f"optimizer.{name} is {getattr(self, name)}: it must be at least 0 and below 1"
                )


def build_optimizers(
    config: OptimizerConfig,
    parameters: dict[str, nn.Parameter],
    fused_blocks: dict[str, int],
    muon_dtype: torch.dtype = torch.float32,
) -> list[torch.optim.Optimizer]:
    """The optimizers of a run. Each group's peak rate is under "peak"; the trainer sets "lr" from it.

    Args:
        parameters: all trainable parameters by name.
        fused_blocks: the matrices inside the layers by name, and into how many logical matrices (along
            rows) each splits: 3 for a fused QKV weight.
        muon_dtype: what Muon's iteration computes in.
    """
    on_muon = parameters.keys() & fused_blocks.keys() if config.name == "muon" else set()

    def group(chosen: list[nn.Parameter], decay: float) -> dict:
        return {"params": chosen, "weight_decay": decay, "peak": config.learning_rate}

    rest = [p for name, p in parameters.items() if name not in on_muon]
    groups = [
        group([p for p in rest if p.ndim >= 2], config.weight_decay),
        group([p for p in rest if p.ndim < 2], 0.0),
    ]
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(
            [g for g in groups if g["params"]],
            lr=config.learning_rate,
            betas=(config.beta1, config.beta2),
            eps=config.epsilon,
            fused=True,
        )
    ]
    if on_muon:
        muon = [
            {"params": [p], "blocks": fused_blocks[name], "peak": config.muon_learning_rate}
            for name, p in parameters.items()
            if name in on_muon
        ]
        optimizers.append(
            Muon(
                muon,
                lr=config.muon_learning_rate,
                weight_decay=config.weight_decay,
                iteration_dtype=muon_dtype,
            )
        )
    return optimizers
