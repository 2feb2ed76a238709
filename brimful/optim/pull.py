"""L2 pull to the starting weights, against forgetting (L2-SP: Li, Grandvalet and Davoine, 2018)."""

from typing import Any

import torch


def pull_to_start(optimizer: torch.optim.Optimizer, strength: float) -> None:
    """After each step of this optimizer, draw its parameters to what they are now.

    w becomes w - lr * strength * (w - start) with the rate of its group: a decay as AdamW's, decoupled from
    the gradient, but to the start instead of zero. The start is kept with the moments, as "start" of a
    parameter's state, so that what saves and restores those goes on with the same start.
    """
    starts = {p: p.detach().clone() for group in optimizer.param_groups for p in group["params"]}

    @torch.no_grad()
    def pull(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            moved = [p for p in group["params"] if optimizer.state.get(p)]  # the rest never had a gradient
            for parameter in moved:
                start = starts.pop(parameter, None)
                optimizer.state[parameter].setdefault("start", start)
            to = [optimizer.state[parameter]["start"] for parameter in moved]
            if moved:
                torch._foreach_lerp_(moved, to, group["lr"] * strength)

    optimizer.register_step_post_hook(pull)
