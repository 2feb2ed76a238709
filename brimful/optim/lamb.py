"""LAMB: Adam's direction, with a length relative to the matrix's own (You et al., 2020, algorithm 2).

A matrix w becomes w - lr * |w| / |u| * u, where u = m / (sqrt(v) + epsilon) + weight_decay * w, with
bias-corrected moments m and v. The trust ratio |w| / |u| is 1 if either norm is zero. A fused weight is
several matrices, each with its own ratio. Vectors (biases, norms) have no ratio and take AdamW's step, as in
NVIDIA's recipe for BERT. That recipe first clips the whole gradient, which the trainer does here.

Floor: AdamW reads four numbers per parameter (weight, gradient, moments) and writes three. |u| is known only
at the end of a matrix, so u is written, and read again with w: ten moves instead of seven, or 1.43 times the
time where memory bandwidth is the limit. These kernels of torch make 14 moves, on a CPU some of them within
the cache.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from brimful.base.types import Values
from brimful.precision.gradients import grad_scale, is_skipped


class LogicalMatrix(NamedTuple):
    """A parameter or one logical matrix of it, its gradient and moments; all of one shape except `step`.

    Attributes:
        step: the number of this step, from 1: a float32.
    """

    weight: Tensor
    gradient: Tensor
    first_moment: Tensor
    second_moment: Tensor
    step: Tensor

    def split(self, matrices: int) -> list["LogicalMatrix"]:
        """Return views of the logical matrices of a fused weight, which are stacked along its rows."""
        rows = len(self.weight) // matrices
        parts = zip(*(tensor.split(rows) for tensor in self[:-1]), strict=True)
        return [LogicalMatrix(w, g, m, v, self.step) for w, g, m, v in parts]


def lamb_(
    matrices: Sequence[LogicalMatrix],
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
        scale: the loss scale, by which gradients are divided first, in place.
        together: run each operation on all matrices, which saves launches and does not wait for norms. Else
            run all operations on one matrix after the other, which uses the cache and needs room for one
            update.
    """
    # AdamW's own kernel computes u. From a "weight" of -decay * w, a step of rate 1 without decay leaves
    # -decay * w - m / (sqrt(v) + eps) = -u.
    constants: Values = {"lr": 1.0, "betas": betas, "eps": eps, "weight_decay": 0.0, "scale": scale}
    weights = [matrix.weight for matrix in matrices]
    if together:
        updates = torch._foreach_mul(weights, -weight_decay)
        _adamw([m._replace(weight=u) for m, u in zip(matrices, updates, strict=True)], **constants)
        weight_norms = torch.stack(torch._foreach_norm(weights))  # (matrices,)
        update_norms = torch.stack(torch._foreach_norm(updates))
        both = (weight_norms > 0) & (update_norms > 0)
        ratios = torch.where(both, weight_norms / update_norms, 1.0)
        torch._foreach_addcmul_(weights, updates, (lr * ratios).unbind())
        return
    # One buffer, as large as the largest matrix, holds each update in turn and so stays in the cache.
    buffer = torch.empty_like(max(weights, key=torch.numel)).view(-1)
    for matrix in matrices:
        weight = matrix.weight
        update = buffer[: weight.numel()].view(weight.shape)
        torch.mul(weight, -weight_decay, out=update)
        _adamw([matrix._replace(weight=update)], **constants)
        weight_norm, update_norm = _norm(weight), _norm(update)
        weight.add_(update, alpha=lr * weight_norm / update_norm if weight_norm and update_norm else lr)


def _norm(matrix: Tensor) -> float:
    # By rows: on a CPU torch's norm of ten million float32 numbers is off by 5e-4.
    return torch.linalg.vector_norm(torch.linalg.vector_norm(matrix, dim=-1), dtype=torch.float64).item()


def _adamw(
    blocks: Iterable[LogicalMatrix], *, betas: tuple[float, float], scale: Tensor | None, **constants: float
) -> None:
    """Make AdamW's step (Loshchilov & Hutter 2019) by torch's fused kernel, with lr, eps and weight_decay."""
    weights, gradients, first_moments, second_moments, steps = map(list, zip(*blocks, strict=True))
    beta1, beta2 = betas
    options: Values = {"amsgrad": False, "maximize": False, "grad_scale": scale, **constants}
    # The empty list is for AMSGrad.
    torch._fused_adamw_(
        weights, gradients, first_moments, second_moments, [], steps, beta1=beta1, beta2=beta2, **options
    )


class Lamb(torch.optim.Optimizer):
    """LAMB for contiguous float32 parameters, whose state has AdamW's keys. It takes scaled gradients.

    Args:
        params: parameters or groups. A group's "blocks" is the number of logical matrices, along the rows, in
            each of its parameters.
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
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        if is_skipped(self):
            return
        for group in self.param_groups:
            constants = {name: group[name] for name in ("lr", "betas", "eps", "weight_decay")}
            constants["scale"] = grad_scale(self)
            steps, vectors, matrices = [], [], []
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                block = self._block(parameter)
                steps.append(block.step)
                if parameter.ndim < 2:
                    vectors.append(block)
                else:
                    matrices += block.split(group["blocks"])
            if steps:
                torch._foreach_add_(steps, 1)
            if vectors:
                _adamw(vectors, **constants)
            if matrices:
                # The loop over matrices reads two norms on the host, for which a GPU would wait.
                lamb_(matrices, **constants, together=matrices[0].weight.device.type != "cpu")

    def _block(self, parameter: Tensor) -> LogicalMatrix:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        assert parameter.grad is not None
        gradient = parameter.grad.contiguous()  # the fused kernel reads memory in order
        return LogicalMatrix(parameter, gradient, state["exp_avg"], state["exp_avg_sq"], state["step"])
