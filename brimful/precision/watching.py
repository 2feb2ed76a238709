"""Gradients counted in bins by their size, and saturated to the range of float16.

A loss scaler needs the number of gradients near the end of float16's range. Each watched gradient
adds its counts to one small float32 tensor per device, the counter. The counter's values are the ends of the
bins, and its gradient is how many numbers fell into each bin. So autograd itself sums the counts over tensors
and micro-batches, a compiled step keeps them, and nothing waits for the host. The counter is not a parameter:
`.half()`, optimizers, checkpoints and DDP do not see it. A process has one set of counts.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from brimful.base.types import Values
from brimful.precision.gradients import require_dense
from brimful.precision.policy import BIN_EDGE, LARGEST

LOWER, UPPER, CLIPPED, NAN = range(4)
"""The bins: up to the edge, up to `LARGEST`, beyond it, and NaN."""

_counters: dict[torch.device, Tensor] = {}


def counter(device: torch.device) -> Tensor:
    """Return the device's counter, a leaf: float32 (4,), the ends of the bins; its gradient is the counts."""
    if device not in _counters:
        ends = torch.tensor([BIN_EDGE, LARGEST, torch.inf, torch.nan], device=device)
        # Its gradient exists from the start and is never replaced, so that CUDA graphs can add to it.
        ends.grad = torch.zeros_like(ends)
        _counters[device] = ends.requires_grad_()
    return _counters[device]


counter(torch.device("cpu"))


def take_counts(device: torch.device) -> Tensor:
    """Return the counts on all devices of this process since the last call: float32 (4,) on `device`."""
    counts = counter(device).grad
    assert counts is not None
    total = counts.clone()
    for other, ends in _counters.items():
        # A CPU that has counted nothing costs no copy to the device.
        if other != device and ends.grad is not None and (other.type != "cpu" or ends.grad.any()):
            total += ends.grad.to(device)
    forget_counts()
    return total


def forget_counts() -> None:
    """Drop the counts on all devices of this process."""
    for ends in _counters.values():
        if ends.grad is not None:
            ends.grad.zero_()


def saturate(gradient: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """Clamp a gradient to +-65504, replace NaN by 0, and count how many numbers were in each bin.

    Returns:
        the gradient in the same dtype (`gradient` itself where a cheap test shows that nothing has to
        change); and the counts: float32 (4,).
    """
    # On a CPU the extremes are nearly always enough. On other devices the host would wait for them.
    if gradient.device.type == "cpu" and not torch.compiler.is_compiling():
        extremes = _extremes(gradient).abs().float()
        if (extremes <= LARGEST).all():
            above = gradient.new_zeros((), dtype=torch.float32)
            if (extremes > ends[LOWER]).any():  # gt_ in place: a sum of booleans is five times as slow
                above = gradient.abs().float().gt_(ends[LOWER]).sum()
            return gradient, torch.stack([gradient.numel() - above, above, *above.new_zeros(2)])
    # Compiled code sums float32 four times as fast as booleans. NaN fails all tests, so each count includes
    # the ones after it.
    size = gradient.abs().float()
    tests = (size <= ends[LOWER], size <= LARGEST, size == size)
    above, beyond, nan = (torch.where(test, 0.0, 1.0).sum(dtype=torch.float32) for test in tests)
    counts = torch.stack([gradient.numel() - above, above - beyond, beyond - nan, nan])
    limit = _limit(gradient.dtype)
    return torch.where(gradient == gradient, gradient, 0.0).clamp(-limit, limit), counts


def saturate_and_count(gradient: Tensor, padding: int = 0) -> Tensor:
    """Saturate a gradient and add its counts to the counter, where autograd can't.

    Args:
        padding: how many of its numbers are zeros that stand for no gradient.
    """
    saturate_here = saturate if gradient.device.type == "cpu" else _compiled_saturate()
    saturated, bin_counts = saturate_here(gradient, counter(gradient.device))
    if padding:
        bin_counts[LOWER] -= padding
    _add_counts(bin_counts)
    return saturated


@cache
def _compiled_saturate() -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return `saturate` in two kernels instead of ten; gradients of all sizes share one compilation."""
    from brimful.base.torch_compile import Compiled  # only GPUs need it

    return Compiled(saturate, "the count of gradients", dynamic=True)


def mend(gradient: Tensor) -> None:
    """Saturate in place a gradient that was counted and may have overflowed since; count the overflow."""
    if gradient.device.type == "cpu" and torch.isfinite(_extremes(gradient)).all():
        return
    clipped = gradient.isinf().sum(dtype=torch.float32)
    nan = gradient.isnan().sum(dtype=torch.float32)
    zero = torch.zeros_like(nan)
    _add_counts(torch.stack([zero, zero, clipped, nan]))
    limit = _limit(gradient.dtype)
    gradient.nan_to_num_(0.0, limit, -limit)


def _add_counts(counts: Tensor) -> None:
    total = counter(counts.device).grad
    assert total is not None
    total += counts


def _extremes(tensor: Tensor) -> Tensor:
    """Return the minimum and maximum, or NaN twice if the tensor has one: the cheapest test on a CPU."""
    return torch.stack(torch.aminmax(tensor)) if tensor.numel() else torch.zeros(2)


def _limit(dtype: torch.dtype) -> float:
    # bfloat16 would round 65504 up, out of float16's range; 65280 is its next number below.
    return 65280.0 if dtype == torch.bfloat16 else LARGEST


class _Watch(torch.autograd.Function):
    """The identity. Its backward saturates the gradient, and gives the counter the counts as its gradient."""

    @staticmethod
    def forward(ctx, tensor: Tensor, ends: Tensor) -> Tensor:
        ctx.save_for_backward(ends)
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Any:
        return saturate(gradient, *ctx.saved_tensors)


def watch(tensor: Tensor) -> Tensor:
    """Return the tensor, whose gradient will be saturated and counted. Do not change it in place."""
    if not (tensor.requires_grad and torch.is_grad_enabled()):
        return tensor
    return _Watch.apply(tensor, counter(tensor.device))


def watch_modules(model: nn.Module, *, parameters: bool = True) -> None:
    """Watch a whole model: all parameters, and the inputs of each module that has parameters of its own.

    The gradient of a parameter is counted and saturated in each backward pass, before it is accumulated,
    reduced or compressed. Call this after the model is moved to its device and before it first runs compiled,
    before or after DDP. A second call changes nothing. Modules with parameters must not change their input in
    place.

    Args:
        parameters: False leaves the parameters to the caller, who counts and saturates the gradients of each
            backward pass with `saturate_and_count`, and `mend`s their sums.

    Raises:
        BrimfulError: a parameter is sharded or complex.
    """
    for parameter in model.parameters():
        require_dense(parameter)
        counter(parameter.device)  # made now, since a compiled step or a CUDA graph cannot make it
        if not parameters:
            count_elsewhere([parameter])
        elif parameter.requires_grad and not is_watched(parameter):
            parameter.register_hook(_count_parameter)
    for module in model.modules():
        if getattr(module, "_inputs_are_watched", False):
            continue
        module._inputs_are_watched = True  # type: ignore[assignment]  # a copy of the module has it too
        if next(module.parameters(recurse=False), None) is not None:
            module.register_forward_pre_hook(_watch_inputs, with_kwargs=True)


def is_watched(parameter: Tensor) -> bool:
    """Whether a parameter's gradients are counted in each backward pass."""
    # A copied or unpickled parameter has no hooks.
    return _count_parameter in (parameter._backward_hooks or {}).values()


def is_counted_elsewhere(parameter: Tensor) -> bool:
    """Whether the caller of `watch_modules` counts and saturates a parameter's gradients."""
    return getattr(parameter, "_is_counted_elsewhere", False)


def count_elsewhere(parameters: Iterable[Tensor], elsewhere: bool = True) -> None:
    """Leave parameters to the caller, as `watch_modules(parameters=False)` does. False undoes it."""
    for parameter in parameters:
        parameter._is_counted_elsewhere = elsewhere  # type: ignore[attr-defined]


def _watch_inputs(module: nn.Module, args: tuple, kwargs: Values) -> tuple[Any, Any]:
    # Attention tests whether query, key and value are the same tensor, so each has one watched tensor. (They
    # are compared, not looked up by `id`: Dynamo would compile for the identity of each batch's tensors.)
    watched: list[tuple[Tensor, Tensor]] = []
    args = _watch_input(args, watched)
    return args, {name: _watch_input(value, watched) for name, value in kwargs.items()}


def _watch_input(value: Any, watched: list[tuple[Tensor, Tensor]]) -> Any:
    # Not a function within the hook: if it calls itself, it holds the inputs until Python looks for cycles.
    if type(value) is tuple:  # the arguments, and e.g. the state of an LSTM
        return tuple(_watch_input(part, watched) for part in value)
    if not isinstance(value, Tensor) or not value.requires_grad:
        return value
    for tensor, result in watched:
        if tensor is value:
            return result
    result = watch(value)
    watched.append((value, result))
    return result


def _count_parameter(gradient: Tensor) -> Tensor:
    require_dense(gradient)
    return saturate_and_count(gradient)
