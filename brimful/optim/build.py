"""Builds optimizers: which parameter belongs to which group of which optimizer."""

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from brimful.optim.config import OptimizerConfig


def build_optimizers(
    config: OptimizerConfig,
    parameters: dict[str, nn.Parameter],
    fused_blocks: dict[str, int],
    muon_dtype: torch.dtype = torch.float32,
    depths: Mapping[str, int] | None = None,
) -> list[torch.optim.Optimizer]:
    """The optimizers of a run. Each group has its peak rate under "peak"; the trainer sets "lr" from it.

    Args:
        parameters: all trainable parameters by name.
        fused_blocks: the matrices inside the layers by name, with the number of logical matrices in each,
            along its rows: 3 for a fused QKV weight. Other matrices count as one.
        muon_dtype: the number format of Muon's iteration.
        depths: how far below the head a parameter stands, by name: its rate is the peak rate times
            `config.layer_decay` to this power. 0 for other names.
    """

    def decay(name: str) -> float:
        return config.layer_decay ** (depths or {}).get(name, 0)

    on_muon = parameters.keys() & fused_blocks.keys() if config.name == "muon" else set()
    groups: dict[tuple[int, bool, float], list[nn.Parameter]] = defaultdict(list)
    for name, parameter in parameters.items():
        if name not in on_muon:
            blocks = fused_blocks.get(name, 1) if config.name == "lamb" else 1
            groups[blocks, parameter.ndim >= 2, decay(name)].append(parameter)
    kind: Any = partial(torch.optim.AdamW, fused=True)
    if config.name == "lamb":
        from brimful.optim.lamb import Lamb

        kind = Lamb
    optimizers: list[torch.optim.Optimizer] = [
        kind(
            [
                {
                    "params": chosen,
                    "blocks": blocks,
                    "weight_decay": config.weight_decay if decays else 0.0,
                    "peak": config.learning_rate * factor,
                }
                for (blocks, decays, factor), chosen in groups.items()
            ],
            lr=config.learning_rate,
            betas=(config.beta1, config.beta2),
            eps=config.epsilon,
        )
    ]
    if on_muon:
        from brimful.optim.muon import Muon

        muon = [
            {"params": [p], "blocks": fused_blocks[name], "peak": config.muon_learning_rate * decay(name)}
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
