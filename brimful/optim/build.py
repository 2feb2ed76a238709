"""The optimizers of a run: which parameter belongs to which group of which optimizer."""

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from brimful.base.types import Values
from brimful.optim.config import OptimizerConfig


def build_optimizers(
    config: OptimizerConfig,
    parameters: dict[str, nn.Parameter],
    fused_blocks: dict[str, int],
    muon_dtype: torch.dtype = torch.float32,
    depths: Mapping[str, int] | None = None,
) -> list[torch.optim.Optimizer]:
    """Return the optimizers of a run. A group has its peak rate under "peak"; the trainer sets "lr" from it.

    Args:
        parameters: all trainable parameters by name.
        fused_blocks: the matrices inside the layers by name, with the number of logical matrices in each,
            along its rows: 3 for a fused QKV weight. Other matrices count as one.
        muon_dtype: the number format of Muon's iteration.
        depths: the depth of each parameter below the head, by name; other names have 0. The rate of a
            parameter is the peak rate times `config.layer_decay` to the power of its depth.
    """
    depths = depths or {}
    groups: dict[tuple[int, bool, float], list[nn.Parameter]] = defaultdict(list)
    muon_groups: list[Values] = []
    for name, parameter in parameters.items():
        decay = config.layer_decay ** depths.get(name, 0)
        blocks = fused_blocks.get(name, 1)
        if config.name == "muon" and name in fused_blocks:
            peak = config.muon_learning_rate * decay
            muon_groups.append({"params": [parameter], "blocks": blocks, "peak": peak})
            continue
        if config.name != "lamb":  # AdamW treats each number by itself, so it needs no logical matrices
            blocks = 1
        groups[blocks, parameter.ndim >= 2, decay].append(parameter)
    adam_groups: list[Values] = []
    for (blocks, is_matrix, decay), members in groups.items():
        adam_groups.append(
            {
                "params": members,
                "blocks": blocks,
                # Vectors (biases, norms) do not decay, as in BERT's code (Devlin et al. 2018).
                "weight_decay": config.weight_decay if is_matrix else 0.0,
                "peak": config.learning_rate * decay,
            }
        )
    make_optimizer: Any = partial(torch.optim.AdamW, fused=True)
    if config.name == "lamb":
        from brimful.optim.lamb import Lamb

        make_optimizer = Lamb
    betas = config.beta1, config.beta2
    optimizers = [make_optimizer(adam_groups, lr=config.learning_rate, betas=betas, eps=config.epsilon)]
    if muon_groups:
        from brimful.optim.muon import Muon

        rate, decay = config.muon_learning_rate, config.weight_decay
        optimizers.append(Muon(muon_groups, lr=rate, weight_decay=decay, iteration_dtype=muon_dtype))
    return optimizers
