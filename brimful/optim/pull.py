"""L2 pull to the starting weights, against forgetting (L2-SP: Li, Grandvalet and Davoine, 2018)."""

from typing import Any

import torch
from torch import Tensor

from brimful.optim.scaled import is_skipped


def pull_to_start(optimizer: torch.optim.Optimizer, strength: float) -> None:
    """After each step of this optimizer, pull its parameters towards their values before the first step.

    w becomes w - lr * strength * (w - start), with the learning rate of its group: decoupled from the
    gradient like AdamW's decay, but towards the start instead of zero. The start is kept in the parameter's
    state under "start", so it is saved and restored with the moments.
    """
    starts: dict[Tensor, Tensor] = {}

    def remember(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if is_skipped(optimizer):
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and not optimizer.state.get(parameter):
                    starts[parameter] = parameter.detach().clone()

    @torch.no_grad()
    def pull(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if is_skipped(optimizer):
            return
        for group in optimizer.param_groups:
            moved = [p for p in group["params"] if optimizer.state.get(p)]  # the rest never had a gradient
            for parameter in moved:
                if parameter in starts:
                    optimizer.state[parameter]["start"] = starts.pop(parameter)
            to = [optimizer.state[parameter]["start"] for parameter in moved]
            if moved:
                torch._foreach_lerp_(moved, to, group["lr"] * strength)

    optimizer.register_step_pre_hook(remember)
    optimizer.register_step_post_hook(pull)
