"""Muon: momentum whose update is orthogonalised (Jordan et al., 2024).

Five steps of a quintic Newton-Schulz iteration bring all singular values of a matrix's momentum near 1. The
update is the result times sqrt(max(1, rows / columns)), the scale of `torch.optim.Muon`. Unlike there, a
fused weight is several logical matrices, each orthogonalised separately, and matrices of the same shape are
iterated together.

Least work per step: 5 iterations of 3 products, which is 30 * n^2 * m flops for an n x m matrix (n <= m).
"""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor

from brimful.base.types import Values
from brimful.precision.gradients import grad_scale, is_skipped

_QUINTIC = (3.4445, -4.7750, 2.0315)
"""Jordan's coefficients: the steepest slope at 0 that still ends near 1, instead of converging to it."""
_ITERATIONS = 5


def orthogonalise(matrices: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Bring the singular values of (n, rows, columns) matrices near 1 (roughly 0.7 to 1.2).

    Args:
        dtype: of the products; by default the dtype of the matrices. Each matrix is first scaled to norm 1,
            so float16 holds matrices of any size.
    """
    a, b, c = _QUINTIC
    is_tall = matrices.size(-2) > matrices.size(-1)
    x = matrices.mT if is_tall else matrices  # (n, short side, long side): the Gram matrix is the small one
    # The Frobenius norm bounds the largest singular value, so that all start within 0 to 1.
    x = (x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)).to(dtype)
    for _ in range(_ITERATIONS):  # x = a x + (b G + c G^2) x with G = x x^T
        gram = x @ x.mT  # (n, short side, short side)
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return x.mT if is_tall else x


class Muon(torch.optim.Optimizer):
    """Muon for 2-D parameters. It takes scaled gradients.

    Args:
        params: groups of one parameter each. "blocks" is the number of logical matrices along its rows.
        iteration_dtype: the number format of the iteration. bfloat16 is enough, and fast on most GPUs.
    """

    _step_supports_amp_scaling = True

    def __init__(
        self,
        params: Iterable[Values],
        *,
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        iteration_dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "blocks": 1})
        self.iteration_dtype = iteration_dtype

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        if is_skipped(self):
            return
        scale = grad_scale(self)
        # Matrices of one shape are iterated in one batch: (group, weight, update) of each logical matrix.
        by_shape = defaultdict(list)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                gradient = parameter.grad if scale is None else parameter.grad / scale
                momentum = state["momentum"].lerp_(gradient, 1 - group["momentum"])
                update = gradient.lerp(momentum, group["momentum"])  # Nesterov's
                rows = parameter.size(0) // group["blocks"]
                for weight, block in zip(parameter.split(rows), update.split(rows), strict=True):
                    by_shape[block.shape].append((group, weight, block))
        for (rows, columns), entries in by_shape.items():
            stacked = torch.stack([block for _, _, block in entries])  # (matrices, rows, columns)
            updates = orthogonalise(stacked, self.iteration_dtype).float()
            # A tall matrix has fewer singular values than rows. The factor keeps the size of a row's update.
            factor = max(1.0, rows / columns) ** 0.5
            for (group, weight, _), update in zip(entries, updates, strict=True):
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(update, alpha=-group["lr"] * factor)
