"""Linear layers whose matrix products take 8-bit floats (docs/fp8.md), for any PyTorch model.

Formats are those of Micikevicius et al. 2022 ("FP8 Formats for Deep Learning", section 3): e4m3 for
activations and weights, e5m2 for gradients. Each operand has one scale, from its largest entry at the moment.
It is a power of two, so that scaling rounds nothing: a normal number is rounded in the same way whatever
stands beside it in the tensor, and its neighbours decide only what is too small to keep.

On a GPU the products are torch._scaled_mm's. The emulation rounds in the same way and multiplies in float32.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from brimful.errors import BrimfulError

FORWARD, BACKWARD = torch.float8_e4m3fn, torch.float8_e5m2
MULTIPLE = 16
"""Of it torch._scaled_mm wants all three sizes: each is summed over in one of a layer's three products."""
LEAST_FEATURES = 1024
"""Below it the traffic of rounding is estimated to cost what the products save, or more (docs/fp8.md)."""
_EXPONENT_BITS = 0x7F800000
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def supports_fp8(device: torch.device) -> bool:
    """Whether the device multiplies matrices of these formats: NVIDIA's Ada, Hopper and later."""
    if device.type != "cuda" or torch.version.cuda is None:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 9)


def fp8_linear_layers(
    model: nn.Module, *, min_features: int = LEAST_FEATURES, emulate: bool = False
) -> list[str]:
    """Let the linear layers of a model compute in fp8, in place: forward, both gradients, under autocast too.

    Parameters, their names and the state dict stay as they are. A layer takes part if it is an nn.Linear (not
    of a subclass, which may compute otherwise) with at least `min_features` inputs and outputs, both
    multiples of 16, and if its weight is not an embedding's too: scores of a vocabulary decide the loss
    directly. Of a model whose decoder has its own weight pass the part below. Embeddings and norms stay.

    Call it when the model is on its device, before it is compiled or wrapped. Layers that are moved to a CPU
    later compute there as ever, unless emulated.

    Args:
        min_features: 1 lets every layer take part whose sizes allow it.
        emulate: round as fp8 does and multiply in float32, on any device: slower, to see what fp8 does.

    Returns:
        The names of the layers that take part, as in `named_modules`.

    Raises:
        BrimfulError: a layer that would take part is on a device without fp8, and `emulate` is not set.
    """
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    chosen = {
        name: layer
        for name, layer in model.named_modules()
        if type(layer) in (nn.Linear, LinearFP8)
        and min(layer.in_features, layer.out_features) >= min_features
        and layer.in_features % MULTIPLE == layer.out_features % MULTIPLE == 0
        and id(layer.weight) not in tables
    }
    for device in {layer.weight.device for layer in chosen.values()}:
        if not (emulate or supports_fp8(device)):
            raise BrimfulError(
                f"{device} has no fp8, which Ada, Hopper and later GPUs have; use bf16, or emulate=True"
            )
    for layer in chosen.values():
        layer.__class__ = LinearFP8
        layer.emulate = emulate
    return list(chosen)


class LinearFP8(nn.Linear):
    """An nn.Linear that computes in fp8. Made by `fp8_linear_layers`."""

    emulate: bool

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in_features) -> (..., out_features)."""
        if not (self.emulate or x.is_cuda):
            return super().forward(x)
        return linear_fp8(x, self.weight, self.bias, emulate=self.emulate)


def linear_fp8(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, emulate: bool = False) -> Tensor:
    """x @ weight.T + bias with products of 8-bit floats, added up in float32.

    It is F.linear where a size (features in or out, or the rows of x) is no multiple of 16, x is empty, or
    the dtype is none of float32, bfloat16 and float16. An operand with an entry that is not finite makes all
    of its product NaN.

    Args:
        x: (..., in_features).
        weight: (out_features, in_features). Its gradient is rounded once, to the weight's dtype.
        bias: (out_features,), added in the dtype of the result.
        emulate: see `fp8_linear_layers`; without it x is to be on a GPU that has fp8.

    Returns:
        (..., out_features) in autocast's dtype, or that of x without autocast.
    """
    kind = x.device.type
    autocast = torch.is_autocast_enabled(kind)
    dtype = torch.get_autocast_dtype(kind) if autocast else x.dtype
    rows = x.shape[:-1].numel()
    sizes_suit = rows > 0 and all(size % MULTIPLE == 0 for size in (rows, *weight.shape))
    dtypes_suit = dtype in _DTYPES and (weight.dtype in _DTYPES if autocast else weight.dtype == dtype)
    if not (sizes_suit and dtypes_suit):
        return F.linear(x, weight, bias)
    out: Tensor = _Products.apply(x.to(dtype).reshape(rows, x.shape[-1]), weight, emulate)
    if x.dim() != 2:  # else a view at the end of a checkpointed block: compiled, the product would come twice
        out = out.view(*x.shape[:-1], weight.shape[0])
    return out if bias is None else out + bias.to(dtype)


class Rounded(NamedTuple):
    """A matrix in fp8.

    Attributes:
        values: float8, row-major.
        unit: float32 scalar, what a value of 1 stands for.
    """

    values: Tensor
    unit: Tensor

    def transposed(self) -> "Rounded":
        """The transpose, row-major again."""
        return Rounded(self.values.t().contiguous(), self.unit)


def to_fp8(x: Tensor, dtype: torch.dtype) -> Rounded:
    """A matrix with its largest entry in the upper half of what the format can hold, rounded to nearest even.

    Entries below about 2^-18 (e4m3) or 2^-32 (e5m2) of the largest are 0, and so are those below about
    2^-136. With an entry that is not finite all of it is NaN.
    """
    limit = torch.finfo(dtype).max
    largest = x.abs().amax().float()
    ratio = limit / largest.clamp(min=limit * 2.0**-126)  # so that its inverse is a normal number
    scale = (ratio.view(torch.int32) & _EXPONENT_BITS).view(torch.float32)
    scale = torch.where(largest.isfinite(), scale, torch.nan)
    return Rounded((x.float() * scale).to(dtype).contiguous(), scale.reciprocal())


def product(a: Rounded, b: Rounded, dtype: torch.dtype, *, emulate: bool, fast: bool = False) -> Tensor:
    """a (M, K), b (N, K) -> a @ b.T (M, N) in `dtype`.

    `fast` lets the tensor cores of Hopper add up with fewer bits than float32 has (torch._scaled_mm).
    """
    if not emulate:
        return torch._scaled_mm(
            a.values, b.values.t(), scale_a=a.unit, scale_b=b.unit, out_dtype=dtype, use_fast_accum=fast
        )
    with torch.autocast(a.values.device.type, enabled=False):
        return ((a.values.float() @ b.values.float().t()) * (a.unit * b.unit)).to(dtype)


class _Products(torch.autograd.Function):
    """x (T, K), weight (N, K) -> (T, N) in the dtype of x. For backward x and weight are kept in 8 bits."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, emulate: bool) -> Tensor:
        x8, weight8 = to_fp8(x, FORWARD), to_fp8(weight, FORWARD)
        ctx.save_for_backward(*x8, *weight8)
        ctx.emulate, ctx.weight_dtype = emulate, weight.dtype
        return product(x8, weight8, x.dtype, emulate=emulate, fast=True)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (gradient,) = gradients
        x, x_unit, weight, weight_unit = ctx.saved_tensors
        rounded = to_fp8(gradient, BACKWARD)
        of_x = of_weight = None
        if ctx.needs_input_grad[0]:
            transposed = Rounded(weight, weight_unit).transposed()
            of_x = product(rounded, transposed, gradient.dtype, emulate=ctx.emulate)
        if ctx.needs_input_grad[1]:
            transposed = Rounded(x, x_unit).transposed()
            of_weight = product(rounded.transposed(), transposed, ctx.weight_dtype, emulate=ctx.emulate)
        return of_x, of_weight, None
