"""LAMB: Adam's direction, as long as the matrix that it changes asks for (You et al., 2020, algorithm 2).

A matrix w becomes w - lr * |w| / |u| * u, where u = m / (sqrt(v) + epsilon) + weight_decay * w and the
moments m and v are freed of their bias. |w| / |u|, the trust ratio, is 1 where either is zero. A fused weight
is several matrices, each with its own ratio. Vectors (biases, norms) have none: theirs is AdamW's step. So it
is in NVIDIA's recipe for BERT. Clipping the whole gradient, which that does first, is left to the trainer.

Floor: AdamW reads four numbers for each parameter (weight, gradient, moments) and writes three. |u| is known
at the end of a matrix only, so u is written, and read again with w when w is written: ten moves to seven, or
1.43 times as long, where memory is what takes the time. These kernels of torch make 14 moves, on a CPU some
of them within the cache.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from brimful.optim.scaled import grad_scale, is_skipped


class Block(NamedTuple):
    """A parameter, or one logical matrix of it, and what a step needs; all of one shape but the last."""

    weight: Tensor
    gradient: Tensor
    first_moment: Tensor
    second_moment: Tensor
    step: Tensor
    """The number of this step, from 1: a float32."""

    def split(self, matrices: int) -> list["Block"]:
        """The logical matrices of a fused weight, which lie in it along its rows."""
        rows = len(self.weight) // matrices
        parts = zip(*(tensor.split(rows) for tensor in self[:-1]), strict=True)
        return [Block(w, g, m, v, self.step) for w, g, m, v in parts]


def lamb_(
    matrices: Sequence[Block],
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    scale: Tensor | None = None,
    together: bool = False,
) -> None:
    """Update contiguous matrices and their moments in place; they are on one device and have one dtype.

    Args:
        scale: what gradients are divided by first, in place, if they are scaled.
        together: whether each operation takes all matrices in turn, which saves launches and waits for no
            norm, or each matrix all operations, which finds it in the cache and needs room for one update.
    """
    weights = [matrix.weight for matrix in matrices]
    if together:
        updates = torch._foreach_mul(weights, -weight_decay)
        blocks = [matrix._replace(weight=u) for matrix, u in zip(matrices, updates, strict=True)]
        _adamw(blocks, lr=1.0, betas=betas, eps=eps, scale=scale)
        lengths, others = (torch.stack(torch._foreach_norm(each)) for each in (weights, updates))
        ratios = torch.where((lengths > 0) & (others > 0), lengths / others, torch.ones_like(lengths))
        torch._foreach_addcmul_(weights, updates, (lr * ratios).unbind())
        return
    room = torch.empty_like(max(weights, key=torch.numel)).view(-1)
    for matrix in matrices:
        weight = matrix.weight
        update = room[: weight.numel()].view(weight.shape)
        torch.mul(weight, -weight_decay, out=update)
        _adamw([matrix._replace(weight=update)], lr=1.0, betas=betas, eps=eps, scale=scale)
        length, other = _norm(weight), _norm(update)
        weight.add_(update, alpha=lr * length / other if length and other else lr)


def _norm(matrix: Tensor) -> float:
    """By rows, since on a CPU torch's norm of ten million float32 numbers misses 5e-4 of it."""
    return torch.linalg.vector_norm(torch.linalg.vector_norm(matrix, dim=-1), dtype=torch.float64).item()


def _adamw(
    blocks: Iterable[Block],
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float = 0.0,
    scale: Tensor | None = None,
) -> None:
    """AdamW's step; with lr 1 on what is -decay * w it leaves LAMB's update, -u."""
    weights, gradients, first_moments, second_moments, steps = map(list, zip(*blocks, strict=True))
    torch._fused_adamw_(
        weights,
        gradients,
        first_moments,
        second_moments,
        [],
        steps,
        lr=lr,
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=weight_decay,
        eps=eps,
        amsgrad=False,
        maximize=False,
        grad_scale=scale,
    )


class Lamb(torch.optim.Optimizer):
    """LAMB for contiguous parameters in float32; their state has AdamW's keys. It takes scaled gradients.

    Args:
        params: parameters or groups; "blocks" of a group says into how many logical matrices each of its
            parameters splits by rows.
        weight_decay: inside the trust ratio for matrices, decoupled for vectors.
    """

    _step_supports_amp_scaling = True

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "blocks": 1}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        if is_skipped(self):
            return
        for group in self.param_groups:
            constants = {name: group[name] for name in ("lr", "betas", "eps", "weight_decay")}
            constants["scale"] = grad_scale(self)
            blocks = [self._block(p) for p in group["params"] if p.grad is not None]
            vectors = [block for block in blocks if block.weight.ndim < 2]
            matrices = [m for block in blocks if block.weight.ndim >= 2 for m in block.split(group["blocks"])]
            if blocks:
                torch._foreach_add_([block.step for block in blocks], 1)
            if vectors:
                _adamw(vectors, **constants)
            if matrices:
                lamb_(matrices, **constants, together=matrices[0].weight.device.type != "cpu")

    def _block(self, parameter: Tensor) -> Block:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        assert parameter.grad is not None
        gradient = parameter.grad.contiguous()
        return Block(parameter, gradient, state["exp_avg"], state["exp_avg_sq"], state["step"])
