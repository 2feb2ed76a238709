"""Gradients counted in bins of size, and kept within what float16 holds.

What a loss scaler needs to know is how many gradients come near the end of float16's range. Each watched
gradient adds its counts to one small float32 tensor per device, the counter: its values are where the bins
end, and its gradient is how many numbers fell into each. So autograd sums the counts itself, over tensors
and micro-batches, a compiled step keeps them, and nothing waits for the host. The counter is no parameter:
`.half()`, optimizers, checkpoints, DDP and FSDP2 don't see it. A process has one set of counts.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from brimful.precision.policy import BIN_EDGE, LARGEST

LOWER, UPPER, CLIPPED, NAN = range(4)
"""The bins: to the edge, to `LARGEST`, beyond it, and what is no number."""

_counters: dict[torch.device, Tensor] = {}


def counter(device: torch.device) -> Tensor:
    """The leaf of this device: float32 (4,), its values the ends of the bins, its gradient the counts."""
    if device not in _counters:
        edge = next(iter(_counters.values()))[LOWER].item() if _counters else BIN_EDGE
        ends = torch.tensor([edge, LARGEST, torch.inf, torch.nan], device=device)
        # Its gradient is there from the start, and stays, so that CUDA graphs may add to it.
        ends.grad = torch.zeros_like(ends)
        _counters[device] = ends.requires_grad_()
    return _counters[device]


counter(torch.device("cpu"))


def set_bin_edge(edge: float) -> None:
    """End the lower bin at `edge`, and forget what was counted."""
    with torch.no_grad():
        for ends in _counters.values():
            if ends[LOWER] != edge:  # a forward pass before it may have kept it for its backward pass
                ends[LOWER] = edge
    take_counts(torch.device("cpu"))


def take_counts(device: torch.device) -> Tensor:
    """What was counted on all devices of this process since the last call: float32 (4,) on `device`."""
    gradients = [ends.grad for ends in _counters.values() if ends.grad is not None]
    counts = torch.stack([gradient.to(device) for gradient in gradients]).sum(0)
    for gradient in gradients:
        gradient.zero_()
    return counts


def saturate(gradient: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """What is beyond +-65504 becomes +-65504, what is no number 0; and how many were in each bin.

    Returns:
        a gradient of the same dtype, `gradient` itself where nothing had to change and that was cheap to
        know; float32 (4,).
    """
    # A look at the extremes is nearly always enough; on other devices the host would wait for it.
    if gradient.device.type == "cpu" and not torch.compiler.is_compiling():
        extremes = _extremes(gradient).abs().float()
        if (extremes <= LARGEST).all():
            above = gradient.new_zeros((), dtype=torch.float32)
            if (extremes > ends[LOWER]).any():  # in place, since a sum of booleans is five times as slow
                above = gradient.abs().float().gt_(ends[LOWER]).sum()
            return gradient, torch.stack([gradient.numel() - above, above, *above.new_zeros(2)])
    # Comparisons become numbers before they are summed: compiled code sums those four times as fast.
    size = gradient.abs().float()
    tests = (size <= ends[LOWER], size <= LARGEST, size == size)
    above, beyond, nan = (torch.where(test, 0.0, 1.0).sum(dtype=torch.float32) for test in tests)
    counts = torch.stack([gradient.numel() - above, above - beyond, beyond - nan, nan])
    limit = _limit(gradient.dtype)
    return torch.where(gradient == gradient, gradient, 0.0).clamp(-limit, limit), counts


def saturate_and_count(gradient: Tensor) -> Tensor:
    """`saturate`, where autograd can't sum the counts."""
    saturated, counts = saturate(gradient, counter(gradient.device))
    _add(counts)
    return saturated


def mend(gradient: Tensor) -> Tensor:
    """A gradient that was counted before and has overflowed since, as a sum may: only that is counted."""
    if gradient.device.type == "cpu" and torch.isfinite(_extremes(gradient)).all():
        return gradient
    infinite, nan = (mask.sum(dtype=torch.float32) for mask in (gradient.isinf(), gradient.isnan()))
    none = torch.zeros_like(nan)
    _add(torch.stack([none, none, infinite, nan]))
    limit = _limit(gradient.dtype)
    return gradient.nan_to_num(0.0, limit, -limit)


def _add(counts: Tensor) -> None:
    total = counter(counts.device).grad
    assert total is not None
    total += counts


def _extremes(tensor: Tensor) -> Tensor:
    """Its least and its greatest number, or twice NaN if it has one; the cheapest look on a CPU."""
    return torch.stack(torch.aminmax(tensor)) if tensor.numel() else torch.zeros(2)


def _limit(dtype: torch.dtype) -> float:
    return 65280.0 if dtype == torch.bfloat16 else LARGEST  # bfloat16 would round 65504 up, out of the range


class _Watch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, ends: Tensor) -> Tensor:
        ctx.save_for_backward(ends)
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return saturate(gradient, *ctx.saved_tensors)


def watch(tensor: Tensor) -> Tensor:
    """The tensor, whose gradient is counted and saturated on its way back. Don't change it in place.

    A complex tensor is left alone.
    """
    if not (tensor.requires_grad and torch.is_grad_enabled()) or tensor.is_complex():
        return tensor
    return _Watch.apply(tensor, counter(tensor.device))


def watch_modules(model: nn.Module) -> None:
    """Watch a whole model: what goes into each module that has parameters of its own, and all parameters.

    The gradient of a parameter is counted and saturated in each backward pass, before it is accumulated,
    reduced or compressed. Call it once the model is on its device and FSDP2's `fully_shard` is done, and
    before the model first runs compiled; before or after DDP. What is watched already stays as it is.
    Modules with parameters must not change their input in place; complex tensors are left alone.
    """
    for parameter in model.parameters():
        counter(parameter.device)
        if not isinstance(parameter, DTensor):
            _watch_parameter(parameter)
    for module in model.modules():
        if getattr(module, "_inputs_are_watched", False):
            continue
        module._inputs_are_watched = True  # type: ignore[assignment]  # which a copy of it has too
        if next(module.parameters(recurse=False), None) is not None:
            module.register_forward_pre_hook(_watch_inputs, with_kwargs=True)
        if isinstance(module, FSDPModule):
            module.register_forward_pre_hook(_UnshardedParameters(module))


def is_watched(parameter: Tensor) -> bool:
    """Whether its gradients are counted in each backward pass."""
    hooks = (parameter._backward_hooks or {}).values()  # which a copy or an unpickled parameter doesn't have
    return _count_parameter in hooks or getattr(parameter, "_shard_is_watched", False)


def _watch_inputs(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    watched: dict[int, Tensor] = {}  # attention asks whether query, key and value are the same tensor

    def once(value: Any) -> Any:
        if type(value) is tuple:  # as the state of an LSTM is
            return tuple(once(part) for part in value)
        if not isinstance(value, Tensor):
            return value
        if id(value) not in watched:
            watched[id(value)] = watch(value)
        return watched[id(value)]

    return tuple(once(value) for value in args), {name: once(value) for name, value in kwargs.items()}


def _watch_parameter(parameter: Tensor) -> None:
    if parameter.requires_grad and not parameter.is_complex() and not is_watched(parameter):
        parameter.register_hook(_count_parameter)


def _count_parameter(gradient: Tensor) -> Tensor | None:
    if gradient.is_sparse or isinstance(gradient, DTensor):
        return None
    return saturate_and_count(gradient)


class _UnshardedParameters:
    """FSDP2 differentiates whole parameters, which it makes in the first forward pass, not its shards."""

    def __init__(self, module: nn.Module) -> None:
        self.sharded = dict(module.named_parameters())

    @torch.compiler.disable
    def __call__(self, module: nn.Module, args: tuple) -> None:
        for name, parameter in module.named_parameters():
            if parameter.requires_grad and not isinstance(parameter, DTensor):
                _watch_parameter(parameter)
                self.sharded[name]._shard_is_watched = True  # type: ignore[attr-defined]
