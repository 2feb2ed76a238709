"""Loops over bfloat16 numbers on a CPU, each of which reads and writes its numbers once.

ATen takes several operations for the same work; each of them converts, reads and writes all numbers.

The loops see bfloat16 as the upper halves of float32, in int16. They compute in float32 and round to nearest
even at the end, as ATen does. NaN gives NaN.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from brimful.base.compiled import compiled, compiled_floats, compiled_fused

Array = np.ndarray
"""The memory of a tensor: bfloat16 as int16."""
MIN_EXPONENT = np.float32(-80.0)
"""An exponent of 2 whose power is as good as 0. Products with that power are still normal numbers, which CPUs
multiply faster than subnormal ones."""
LOG2_E = np.float32(1.4426950408889634)
_TO_INTEGER = np.float32(12582912.0)
"""1.5 * 2 ** 23: adding a small number rounds it to an integer, which the lower bits of the sum hold."""
_EXP2 = tuple(np.float32(c) for c in (0.6931242, 0.24024099, 0.055906426, 0.009582853))
"""Coefficients of (2 ** x - 1) / x for |x| <= 0.5, of the lowest relative error of 2 ** x."""

_NORMAL = np.float32(0.3)
_TAIL = tuple(
    np.float32(c) for c in (0.12020399, 0.11240642, 0.14935364, -0.02633003, 0.22412396, -0.07975581)
)
"""Coefficients of P(X > t) * exp(t * t / 2), X normal, in powers of 1 / (1 + 0.3 * t) from the first on:
relative error below 5e-6 for 0 <= t <= 11."""
_DENSITY = np.float32(0.3989422804014327)
"""1 / sqrt(2 * pi)."""
_LARGEST_INPUT = np.float32(20.0)
"""The largest |x| in a product with a power of 2: those powers never become 0, even for an infinite x."""
_LN_2 = np.float32(0.6931471805599453)
_LARGEST_EXPONENT = np.float32(100.0)
"""The largest exponent of 2, below the overflow of `exp2`. Only scores of 30,000 have rounding errors so
large that an exponent reaches it."""
_MINUS_INFINITY = np.int16(-128)
"""The bits of minus infinity in bfloat16."""


@intrinsic
def _bits(context: Any, x: Any) -> Any:
    """Return the bits of a float32 as int32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


@intrinsic
def as_float(context: Any, x: Any) -> Any:
    """Return the float32 that the bits of an int32 stand for."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@compiled
def widen(x: np.int16) -> np.float32:
    """Convert bfloat16 to float32: its bits are the upper half, and the lower half is 0."""
    return as_float(np.int32(x) << np.int32(16))


@compiled
def narrow(x: np.float32) -> np.int16:
    """Round float32 to the nearest bfloat16, and a number in the middle of two to the even one."""
    bits = _bits(x)
    # Adding 0x7FFF carries into the upper half where the lower half is above 0x8000. Where it is 0x8000, the
    # last bit of the upper half, added too, makes it carry if the upper half is odd.
    odd = (bits >> np.int32(16)) & np.int32(1)
    return np.int16((bits + np.int32(0x7FFF) + odd) >> np.int32(16))


def _read(x: Any) -> Any:
    """Return a number of an array of bfloat16 or float32 as float32."""


def _round_like(x: Any, other: Any) -> Any:
    """Return a float32 in the format of `other`, a number of an array: bfloat16 or float32."""


@overload(_read)
def _(x: Any) -> Any:
    def read_float32(x: Any) -> Any:
        return x

    def read_bfloat16(x: Any) -> Any:
        return widen(x)

    return read_float32 if isinstance(x, types.Float) else read_bfloat16


@overload(_round_like)
def _(x: Any, other: Any) -> Any:
    def keep(x: Any, other: Any) -> Any:
        return x

    def round_to_bfloat16(x: Any, other: Any) -> Any:
        return narrow(x)

    return keep if isinstance(other, types.Float) else round_to_bfloat16


@compiled_fused
def exp2(x: np.float32) -> np.float32:
    """Return 2 ** x for -126 <= x <= 127, with a relative error below 4e-6."""
    # 2 ** x = 2 ** integer * 2 ** r with |r| <= 0.5: a polynomial gives the second factor, and adding the
    # integer to the exponent bits multiplies by the first.
    shifted = x + _TO_INTEGER
    r = x - (shifted - _TO_INTEGER)
    y = (((_EXP2[3] * r + _EXP2[2]) * r + _EXP2[1]) * r + _EXP2[0]) * r + np.float32(1.0)
    return as_float(_bits(y) + (_bits(shifted) << np.int32(23)))


@compiled_fused
def gelu_and_slope(x: np.float32) -> tuple[np.float32, np.float32]:
    """Return GeLU (Hendrycks & Gimpel 2016), x * P(X < x) of a normal X, and its derivative.

    The relative error of GeLU is below 1e-5 for |x| < 10, the absolute error of the derivative below 3e-6. A
    table would be exact, but with it the gate's gradients take 2.6 times as long.
    """
    exponent = x * x * (np.float32(-0.5) * LOG2_E)
    power = exp2(MIN_EXPONENT if exponent < MIN_EXPONENT else exponent)
    u = np.float32(1.0) / (np.float32(1.0) + _NORMAL * abs(x))
    tail = ((((_TAIL[5] * u + _TAIL[4]) * u + _TAIL[3]) * u + _TAIL[2]) * u + _TAIL[1]) * u + _TAIL[0]
    tail = tail * u * power
    below = tail if x < 0 else np.float32(1.0) - tail  # P(X < x)
    clamped = min(max(x, -_LARGEST_INPUT), _LARGEST_INPUT)
    return x * below, below + clamped * power * _DENSITY


@compiled
def rotate_rows(x: Array, cosine: Array, sine: Array) -> None:
    """Rotate each pair (x[i], x[i + head_dim / 2]) of queries and keys by its token's angle.

    Args:
        x: bfloat16 or float32 (T, 3, heads, head_dim): queries, keys and values, changed.
        cosine, sine: float32 (T, head_dim / 2).
    """
    tokens, _, heads, width = x.shape
    half = width // 2
    for token in range(tokens):
        for part in range(2):  # queries and keys; values stay
            for head in range(heads):
                row = x[token, part, head]
                for i in range(half):
                    c, s = cosine[token, i], sine[token, i]
                    a, b = _read(row[i]), _read(row[i + half])
                    row[i] = _round_like(a * c - b * s, row[i])
                    row[i + half] = _round_like(b * c + a * s, row[i])


@compiled_fused
def gate_rows(up: Array, out: Array) -> None:
    """Compute GeLU of the first half of each row times the second half (GeGLU: Shazeer 2020, section 2).

    Args:
        up: bfloat16 (T, 2 * inner).
        out: bfloat16 (T, inner), written.
    """
    tokens, inner = out.shape
    for token in range(tokens):  # without slices of its own, the loop over a row is not vectorised
        values, others, results = up[token, :inner], up[token, inner:], out[token]
        for i in range(inner):
            results[i] = narrow(gelu_and_slope(widen(values[i]))[0] * widen(others[i]))


@compiled_fused
def gate_gradients(up: Array, gradients: Array, d_up: Array, out: Array) -> None:
    """Compute the gradients of `gate_rows`, and its output again.

    Args:
        up: bfloat16 (T, 2 * inner).
        gradients: bfloat16 (T, inner), with respect to the output.
        d_up: bfloat16 (T, 2 * inner), written: the gradients with respect to `up`.
        out: bfloat16 (T, inner), written: the output.
    """
    tokens, inner = gradients.shape
    for token in range(tokens):
        values, others, gradient = up[token, :inner], up[token, inner:], gradients[token]
        d_values, d_others, results = d_up[token, :inner], d_up[token, inner:], out[token]
        for i in range(inner):
            gelu, slope = gelu_and_slope(widen(values[i]))
            other, d = widen(others[i]), widen(gradient[i])
            d_values[i] = narrow(d * other * slope)
            d_others[i] = narrow(d * gelu)
            results[i] = narrow(gelu * other)


@compiled_floats
def _norm_row(x: Array, y: Array, statistics: Array, weight: Array, bias: Array, eps: np.float32) -> None:
    """Write LayerNorm of a row x to y, and its mean and 1 / its standard deviation to `statistics`."""
    width = np.float32(len(x))
    total = np.float32(0.0)
    for i in range(len(x)):
        total += x[i]
    mean = total / width
    # A second pass for the variance: the mean of squares minus the squared mean would cancel.
    total = np.float32(0.0)
    for i in range(len(x)):
        total += (x[i] - mean) * (x[i] - mean)
    factor = np.float32(1.0) / np.sqrt(total / width + eps)
    statistics[0], statistics[1] = mean, factor
    for i in range(len(x)):
        y[i] = narrow((x[i] - mean) * factor * weight[i] + bias[i])


@compiled_floats
def norm_rows(x: Array, y: Array, statistics: Array, weight: Array, bias: Array, eps: np.float32) -> None:
    """Compute LayerNorm (Ba et al. 2016) of each row.

    Args:
        x: float32 (T, hidden).
        y: bfloat16 (T, hidden), written.
        statistics: float32 (T, 2), mean and factor of each row, written.
        weight, bias: float32 (hidden,).
    """
    for row in range(len(x)):
        _norm_row(x[row], y[row], statistics[row], weight, bias, eps)


@compiled_floats
def add_and_norm_rows(
    x: Array,
    added: Array,
    total: Array,
    y: Array,
    statistics: Array,
    weight: Array,
    bias: Array,
    eps: np.float32,
) -> None:
    """Compute `norm_rows` of x + added, float32 and bfloat16, and write the sum to `total`, float32."""
    for row in range(len(x)):
        _add_row(x[row], added[row], total[row])
        _norm_row(total[row], y[row], statistics[row], weight, bias, eps)


@compiled_floats
def norm_of_sum_rows(x: Array, added: Array, y: Array, weight: Array, bias: Array, eps: np.float32) -> None:
    """Compute `norm_rows` of x + added, both bfloat16 (T, hidden), without statistics."""
    total, statistics = np.empty(x.shape[1], np.float32), np.empty(2, np.float32)
    for row in range(len(x)):
        for i in range(len(total)):
            total[i] = widen(x[row, i]) + widen(added[row, i])
        _norm_row(total, y[row], statistics, weight, bias, eps)


@compiled_floats
def round_rows(x: Array, out: Array, factors: Array, zero: np.float32) -> None:
    """Compute x * factors + zero, rounded, at least 0 and at most 255.

    Args:
        x: bfloat16 or float32 (T, channels).
        out: uint8 (T, channels), written.
        factors: float32 (channels,).
    """
    for row in range(len(x)):
        for i in range(x.shape[1]):
            value = min(max(_read(x[row, i]) * factors[i] + zero, np.float32(0.0)), np.float32(255.0))
            # Truncation after adding a half rounds, since no number is negative.
            out[row, i] = np.uint8(np.int32(value + np.float32(0.5)))


@compiled
def _add_row(x: Array, added: Array, total: Array) -> None:
    for i in range(len(x)):
        total[i] = x[i] + widen(added[i])


@compiled
def add_rows(x: Array, added: Array, total: Array) -> None:
    """Write x + added to `total`, all (T, hidden): `added` is bfloat16, the others are float32."""
    for row in range(len(x)):
        _add_row(x[row], added[row], total[row])


# The loops below run between the products of short_attention.py. Nanoseconds a score on one core with AMX,
# for sequences of 128 tokens: softmax 0.6 (ATen 1.0), its backward pass with the probabilities 0.8.


@compiled
def copy(tensors: tuple, places: Array, matrices: Array, to_matrices: bool) -> None:
    """Copy rows of each tensor into matrices (tensors, matrices, width, head_dim), with zeros below; or back.

    The inner loops are over all heads and tensors of a token, which usually lie together in memory.

    Args:
        tensors: the fields of `short_attention.TensorRows`, for each tensor.
        places: int64 (matrices, 3): the first token, length and head of each matrix.
        to_matrices: False copies back.
    """
    first, head_dim = 0, matrices.shape[3]
    while first < len(places):
        start, length, head = places[first]
        heads = 1  # matrices of this sequence
        while first + heads < len(places) and places[first + heads, 0] == start:
            heads += 1
        for token in range(length):
            for part in range(len(tensors)):
                memory, token_stride, head_stride = tensors[part]
                for i in range(heads):
                    offset = (start + token) * token_stride + (head + i) * head_stride
                    row, other = memory[offset : offset + head_dim], matrices[part, first + i, token]
                    if to_matrices:
                        for j in range(head_dim):  # numba's copy of a slice takes seven times as long
                            other[j] = row[j]
                    else:
                        for j in range(head_dim):
                            row[j] = other[j]
        if to_matrices:
            matrices[:, first : first + heads, length:] = 0
        first += heads


@compiled_floats
def softmax(scores: Array, places: Array, scale: np.float32, normalizer: Array) -> None:
    """Replace scores by probabilities, nearly 0 for padding, and write the logarithms of the normalizers.

    Whole rows are computed, padding included: vectorised loops are slow at the end of a row whose length is
    not a multiple of `short_attention.STEP`.

    Args:
        scores: bfloat16 (matrices, queries, keys), changed.
        scale: factor of the scores.
        normalizer: float32 (heads, T), written.
    """
    width = scores.shape[2]
    # exp(x) = 2 ** (x * log2 e), so the scale of the scores and of the base are one factor.
    power_scale = scale * LOG2_E
    powers = np.empty(width, np.float32)
    for matrix in range(len(places)):
        start, length, head = places[matrix]
        for query in range(length):
            row = scores[matrix, query]
            for key in range(length, width):
                row[key] = _MINUS_INFINITY
            # As integers, positive numbers have the order of their values, negative ones the reverse order.
            # A NaN that is not the highest then makes the sum NaN.
            highest = np.int16(-32768)
            for key in range(width):
                highest = max(highest, row[key])
            if highest < 0:
                highest = np.int16(-1)
                for key in range(width):
                    highest = min(highest, row[key])
            top = widen(highest) * power_scale  # subtracted, so that no power overflows
            total = np.float32(0.0)
            for key in range(width):
                x = widen(row[key]) * power_scale - top
                power = exp2(MIN_EXPONENT if x < MIN_EXPONENT else x)
                total += power
                powers[key] = power
            factor = np.float32(1.0) / total
            for key in range(width):
                row[key] = narrow(powers[key] * factor)
            # For backward, which has only this number of the softmax (as FlashAttention: Dao et al. 2022).
            normalizer[head, start + query] = top * _LN_2 + np.log(total)


@compiled_fused
def _power(x: np.float32) -> np.float32:
    x = MIN_EXPONENT if x < MIN_EXPONENT else x  # comparisons are written so that NaN stays NaN
    return exp2(_LARGEST_EXPONENT if x > _LARGEST_EXPONENT else x)


@compiled_fused
def _add_powers(row: Array, shifts: Array, scale: np.float32, sums: Array) -> None:
    for i in range(len(row)):
        sums[i] += _power(widen(row[i]) * scale - shifts[i])


@compiled_fused
def _probabilities(
    row: Array, d_row: Array, shifts: Array, scale: np.float32, factors: Array, means: Array
) -> None:
    for i in range(len(row)):
        row[i] = narrow(_power(widen(row[i]) * scale - shifts[i]) * factors[i])
        means[i] += widen(row[i]) * widen(d_row[i])


@compiled_fused
def _score_gradients(row: Array, d_row: Array, means: Array, scale: np.float32) -> None:
    for i in range(len(row)):
        d_row[i] = narrow(widen(row[i]) * (widen(d_row[i]) - means[i]) * scale)


@compiled_fused
def softmax_backward(p: Array, d_p: Array, places: Array, scale: np.float32, normalizer: Array) -> None:
    """Replace scores by probabilities, and the gradients of probabilities by those of scores.

    The gradient of a score is p * (d_p - sum of p * d_p over the query's keys) * scale. Probabilities are
    divided by their sum again, since the scores are rounded: otherwise gradients have twice the error.
    Padding stays finite; the zeros of padded rows multiply it. (LLVM vectorises the loops over queries only
    as functions of their own.)

    Args:
        p: bfloat16 (matrices, keys, queries), scores, then probabilities.
        d_p: bfloat16 (matrices, keys, queries), gradients of probabilities, then of scores.
    """
    width = p.shape[2]
    power_scale = scale * LOG2_E
    shifts, means = np.empty(width, np.float32), np.empty(width, np.float32)
    factors = np.empty(width, np.float32)
    for matrix in range(len(places)):
        start, length, head = places[matrix]
        shifts[length:] = np.float32(0.0)
        for query in range(length):
            shifts[query] = normalizer[head, start + query] * LOG2_E
        factors[:] = np.float32(0.0)
        means[:] = np.float32(0.0)
        for key in range(length):
            _add_powers(p[matrix, key], shifts, power_scale, factors)
        for query in range(width):
            factors[query] = np.float32(1.0) / factors[query]
        for key in range(length):
            _probabilities(p[matrix, key], d_p[matrix, key], shifts, power_scale, factors, means)
        for key in range(length):
            _score_gradients(p[matrix, key], d_p[matrix, key], means, scale)
