"""A layer of inference on a CPU: four matrix products, and as little as possible between them.

In bfloat16, autocast converts the weights for each batch, has oneDNN lay them out again in each product, and
takes an operation of ATen for each conversion, sum, norm and activation. Here the weights are laid out once
for a run (`LaidOut`), GeLU and biases belong to the product, and a residual sum and its norm are one loop.
Numbers are rounded where autocast rounds them: products and their inputs. Where norms follow sums, the
residual stream is rounded too, since it is the output of a norm.

In float32, a loop rotates queries and keys. torch's products are MKL's, which leaves a part of an AMD
processor idle: on one core of an EPYC (Zen 4), it computes 89 to 92 Gflops a second where oneDNN computes 104
to 107 (products of 384 x 1536 and the like with 4,096 tokens). With weights that are not in the cache, MKL is
also no faster on two cores than on one: a product of 256 x 1024 on two cores of an EPYC with AVX2 took 431 us
with MKL and 228 with oneDNN for 32 rows, 392 and 326 for 64, and 970 and 938 for 256.

Least work in bfloat16, besides products and attention, for T slots of width H: 12 * T * H bytes for each sum
with its norm.
"""

import threading
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from brimful.base.errors import NotFiniteError
from brimful.base.machine import read_kernel_file
from brimful.base.types import InferencePrecision
from brimful.kernels import bfloat16
from brimful.kernels.blockwise import attention
from brimful.model.attention import CaptureFunction, Layout, SequenceLayout
from brimful.model.initial_weights import Linear
from brimful.model.int8_rounding import Steps, is_wide, round_weights
from brimful.model.layer import Layer, Norm, Rotation, select_rows
from brimful.precision.policy import has_onednn_bf16

ROWS_STEP = 32
"""oneDNN computes products whose number of rows is a multiple of this; ATen computes the others. oneDNN keeps
about 100 kB of compiled code for each shape."""

MAX_ONEDNN_ROWS = 256
"""The fewest rows of a float32 product that torch computes, unless oneDNN is faster at large products."""

MIN_COPY_TOKENS = 4096
"""Tokens in a run in bfloat16 below which laying out the weights would cost as much as it gains."""

MIN_NUMBA_TOKENS = 1 << 14
"""Tokens of a run in float32 below which the layers are plain: loading numba takes half a CPU second."""


class _Float32:
    """The operations between products in float32, or in int8 where bfloat16 is slow, as in bfloat16.py."""

    rotate = staticmethod(bfloat16.rotate)
    add = staticmethod(torch.add)

    @staticmethod
    def norm(x: Tensor, layer: nn.LayerNorm) -> Tensor:
        return layer(x)

    @staticmethod
    def norm_of_sum(x: Tensor, added: Tensor, layer: nn.LayerNorm) -> Tensor:
        return layer(x + added)

    @staticmethod
    def add_and_norm(x: Tensor, added: Tensor, layer: nn.LayerNorm) -> tuple[Tensor, Tensor]:
        total = x + added
        return total, layer(total)

    @staticmethod
    def gate(up: Tensor) -> Tensor:
        value, other = up.chunk(2, dim=-1)
        return F.gelu(value).mul_(other)


class IntegerWeights:
    """A module's weights as 8-bit integers, laid out for oneDNN, which sums products in 32 bits.

    Each channel of a product's inputs is divided by a factor of its own, by which the weights are multiplied
    (Xiao et al. 2023, "SmoothQuant", section 4). Then inputs are rounded to 256 steps of one size, which
    calibration has chosen (`Steps`). Each output of the weights has a step of its own. So the numbers of a
    text depend neither on the texts beside it nor on the number of threads. Without VNNI and AMX, weights
    have seven bits, so that no sum of two products saturates, and all but the products is in float32.

    Attributes:
        steps: the steps of the inputs.
        factors: float32 (in,), the factors of inputs before they are rounded.
    """

    @classmethod
    def of(cls, linear: Linear) -> "IntegerWeights":
        """Return the integer weights of a module, which keeps them until its weights or steps change."""
        state = (linear.steps, linear.weight.data_ptr(), linear.weight._version)
        if linear.integers is None or linear.integers[0] != state:
            linear.integers = state, cls(linear, linear.steps)
        return linear.integers[1]

    def __init__(self, linear: nn.Linear, steps: Steps) -> None:
        self.steps = steps
        weight = linear.weight.detach().float()
        if not weight.isfinite().all():  # integers would hide NaN and infinity
            raise NotFiniteError
        integers, self.sizes = round_weights(weight, steps)
        self.packed = torch.ops.onednn.qlinear_prepack(integers, None)
        self.zeros = torch.zeros(len(weight), dtype=torch.int64)
        self.bias = linear.bias
        channel_factors = torch.ones(weight.shape[1]) if steps.factors is None else steps.factors
        self.factors = (1 / (channel_factors * steps.size)).numpy()

    def round_inputs(self, x: Tensor) -> Tensor:
        """Return inputs, bfloat16 or float32 (T, in), as uint8."""
        return bfloat16.round_to_bytes(x, self.factors, self.steps.zero)

    def multiply(
        self, x: Tensor, activation: str, dtype: torch.dtype, reader: "IntegerWeights | None" = None
    ) -> Tensor:
        """Return the activation of x W' + b in `dtype`, (T, out), for x of `round_inputs`.

        Args:
            reader: the only product that reads the result; it has no factors. The result is rounded for it.
        """
        size, zero = 1.0, 0
        if reader is not None:
            size, zero, dtype = reader.steps.size, reader.steps.zero, torch.uint8
        weights = self.packed, self.sizes, self.zeros, self.bias
        return torch.ops.onednn.qlinear_pointwise(
            x, self.steps.size, self.steps.zero, *weights, size, zero, dtype, activation, [], "none"
        )


class _Active(threading.local):
    """The contexts that the thread is in, the innermost last."""

    def __init__(self) -> None:
        self.runs: list[LaidOut] = []


_ACTIVE = _Active()


class LaidOut:
    """Inside this context `forward` computes the layers. Their weights must not change meanwhile.

    Args:
        dtype: the format between products: bfloat16, or float32.
        integers: whether products whose module has `steps` are in int8.
        copies: whether weights are laid out for oneDNN. In bfloat16 this changes no bit of a product.

    Attributes:
        operations: the functions for that dtype.
        weights: the copies in `dtype`, by the identity of the module.
        finite: the identities of norms without NaN and infinity.
    """

    def __init__(
        self, dtype: torch.dtype = torch.bfloat16, *, integers: bool = False, copies: bool = True
    ) -> None:
        self.dtype, self.integers, self.copies = dtype, integers, copies
        self.operations: Any = _Float32 if dtype == torch.float32 else bfloat16
        self.weights: dict[int, tuple[nn.Module, Tensor]] = {}
        self.finite: set[int] = set()

    def __enter__(self) -> "LaidOut":
        _ACTIVE.runs.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _ACTIVE.runs.pop()

    def takes(self, x: Tensor) -> bool:
        """Whether it computes layers with this residual stream."""
        if self.dtype == torch.float32:
            has_memory = type(x) is Tensor and x.device.type == "cpu" and not torch.compiler.is_compiling()
            return has_memory and x.dtype == self.dtype and not torch.is_autocast_enabled("cpu")
        return bfloat16.autocasts(x) or bfloat16.applies(x)

    def weight(self, linear: Linear) -> Tensor:
        """Return the copy of a module's weight."""
        if id(linear) not in self.weights:
            copy = linear.weight.detach().to(self.dtype)
            if self.copies:
                copy = torch.ops.mkldnn._reorder_linear_weight(copy, MIN_COPY_TOKENS)
            self.weights[id(linear)] = linear, copy  # the module too, so that no other one gets its id
        return self.weights[id(linear)][1]

    def is_int8(self, linear: Linear) -> bool:
        """Whether a module's product is in int8."""
        return self.integers and linear.steps is not None

    def require_finite(self, *norms: nn.Module) -> None:
        """Raise NotFiniteError for a norm with NaN or infinity, which products in int8 would hide."""
        for norm in norms:
            if id(norm) not in self.finite:
                if not all(parameter.isfinite().all() for parameter in norm.parameters()):
                    raise NotFiniteError
                self.finite.add(id(norm))

    def multiply(self, x: Tensor, linear: Linear, activation: str = "none") -> Tensor:
        """Return the activation ("none" or "gelu") of x W' + b: (T, in) -> (T, out)."""
        if self.is_int8(linear):
            integers = IntegerWeights.of(linear)
            return integers.multiply(integers.round_inputs(x), activation, self.dtype)
        if len(x) % ROWS_STEP or self._leaves_to_torch(len(x)):
            bias = None if linear.bias is None else linear.bias.to(x.dtype)
            y = F.linear(x, linear.weight.to(x.dtype), bias)
            return y if activation == "none" else F.gelu(y)
        return torch.ops.mkldnn._linear_pointwise(x, self.weight(linear), linear.bias, activation, [], "none")

    def fills(self, tokens: int) -> bool:
        """Whether a batch of so many tokens is filled up to a multiple of `ROWS_STEP`."""
        return self.integers or not self._leaves_to_torch(tokens)

    def _leaves_to_torch(self, rows: int) -> bool:
        """Whether torch computes the products of `rows` rows that are not in int8."""
        if self.dtype != torch.float32 or (self.copies and onednn_is_faster()):
            return False
        return not self.copies or rows >= MAX_ONEDNN_ROWS or torch.get_num_threads() == 1

    def mlp(self, layer: Layer, y: Tensor) -> Tensor:
        """Return the feed-forward sub-layer of y, without its residual sum: (T, hidden) -> (T, hidden)."""
        if layer.gated:
            return self.multiply(self.operations.gate(self.multiply(y, layer.up)), layer.down)
        if self.is_int8(layer.up) and self.is_int8(layer.down) and layer.down.steps.factors is None:
            # oneDNN rounds the output of the first product to the input of the second.
            up, down = IntegerWeights.of(layer.up), IntegerWeights.of(layer.down)
            inner = up.multiply(up.round_inputs(y), "gelu", self.dtype, down)  # uint8 (T, inner)
            return down.multiply(inner, "none", self.dtype)
        return self.multiply(self.multiply(y, layer.up, "gelu"), layer.down)


def lays_out_bf16() -> bool:
    """Whether oneDNN lays out weights in bfloat16 here: it refuses without AVX-512 or AVX-NE-CONVERT."""
    return _has_onednn() and has_onednn_bf16()


def _has_onednn() -> bool:
    needed = ("_reorder_linear_weight", "_linear_pointwise")
    return torch.backends.mkldnn.is_available() and all(hasattr(torch.ops.mkldnn, name) for name in needed)


@cache
def onednn_is_faster() -> bool:
    """Whether oneDNN is faster than torch at large float32 products: on AMD with AVX-512, as measured."""
    return torch.backends.cpu.get_cpu_capability() == "AVX512" and has_onednn_on_amd()


@cache
def has_onednn_on_amd() -> bool:
    """Whether this is an AMD processor, and torch has the operations."""
    return "AuthenticAMD" in (read_kernel_file("proc/cpuinfo") or "") and _has_onednn()


def computes(device: torch.device, tokens: int | None, precision: InferencePrecision) -> bool:
    """Whether a run of inference has these layers.

    In 16 and 8 bits runs of any length have them, so that a text has the same result in each.

    Args:
        tokens: the run's tokens; None: a served model, whose runs share the cost of loading.
    """
    if device.type != "cpu":
        return False
    if precision == "bf16":
        return bfloat16.has_numba() and lays_out_bf16()
    if precision == "fp32":
        return bfloat16.has_numba() and (tokens is None or tokens >= MIN_NUMBA_TOKENS)
    return precision == "int8"


def products(device: torch.device, tokens: int | None, precision: InferencePrecision) -> LaidOut:
    """Return the context of a run for which `computes` is true."""
    if precision == "int8":
        return LaidOut(torch.float32 if is_wide() else torch.bfloat16, integers=True)
    if precision == "bf16":
        return LaidOut(copies=tokens is None or tokens >= MIN_COPY_TOKENS)
    return LaidOut(torch.float32, copies=has_onednn_on_amd() if tokens is None else onednn_is_faster())


def is_as_made(layer: Layer) -> bool:
    """Whether no module has hooks or a `forward` of its own, which a form that reads weights would skip."""
    return not any(
        module._forward_pre_hooks or module._forward_hooks or "forward" in module.__dict__
        for module in layer.children()
    )


def takes(layer: Layer, layout: Layout, capture: CaptureFunction | None) -> bool:
    """Whether the CPU forms can compute a layer: by sequences, with float32 weights, without capture."""
    matrices = (layer.qkv, layer.attention_out, layer.up, layer.down)
    return (
        capture is None
        and isinstance(layout, SequenceLayout)
        and layer.mlp_norm.weight.dtype == torch.float32
        and all(type(linear) is Linear for linear in matrices)  # not an adapter that replaced one
    )


def applies(
    layer: Layer, x: Tensor, layout: Layout, rotation: Rotation | None, capture: CaptureFunction | None
) -> bool:
    """Whether `forward` computes this layer: inside `LaidOut`, without gradients, captures and hooks.

    int8 has no plain form, so it computes layers with hooks too.
    """
    if not _ACTIVE.runs or torch.is_grad_enabled() or layer.training:
        return False
    run = _ACTIVE.runs[-1]
    return takes(layer, layout, capture) and run.takes(x) and (run.integers or is_as_made(layer))


def forward(
    layer: Layer,
    x: Tensor,
    layout: SequenceLayout,
    rotation: Rotation | None,
    capture: CaptureFunction | None,
    output_slots: Tensor | None,
) -> Tensor:
    """Compute `Layer.forward`: float32 if norms come first or the run is in float32, else bfloat16."""
    run = _ACTIVE.runs[-1]
    first_norm = layer.attention_norm
    if run.integers:
        run.require_finite(first_norm, layer.mlp_norm)

    def attend(y: Tensor) -> Tensor:
        """Return what attention to the inputs y adds to the residual stream: (T, hidden) -> (N, hidden)."""
        qkv = run.multiply(y, layer.qkv).view(len(y), 3, layer.heads, -1)  # (T, 3, heads, head_dim)
        if rotation is not None:
            cosine, sine = rotation
            run.operations.rotate(qkv, cosine[:, 0], sine[:, 0])
        q, k, v = qkv.unbind(1)
        attended = attention(q, k, v, layout.lengths, layer.window, 0.0).reshape(len(y), -1)
        return run.multiply(select_rows(attended, output_slots), layer.attention_out)

    with torch.autocast("cpu", enabled=False):  # casts are made here
        if layer.pre_norm:
            y = run.operations.norm(x, first_norm) if isinstance(first_norm, Norm) else x.to(run.dtype)
            x, y = run.operations.add_and_norm(select_rows(x, output_slots), attend(y), layer.mlp_norm)
            return run.operations.add(x, run.mlp(layer, y))
        assert isinstance(first_norm, Norm)
        x = x.to(run.dtype)
        y = run.operations.norm_of_sum(select_rows(x, output_slots), attend(x), first_norm)
        return run.operations.norm_of_sum(y, run.mlp(layer, y), layer.mlp_norm)
