"""Loops over bfloat16 numbers on a CPU, each of which reads and writes its numbers once.

ATen takes several operations for the same work; each of them converts, reads and writes all numbers.

The loops see bfloat16 as the upper halves of float32, in int16. They compute in float32, and round to nearest
even at the end, as ATen does. NaN gives NaN.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from brimful.base.compiled import compiled, compiled_floats, compiled_fused

MIN_EXPONENT = np.float32(-80.0)
"""2 ** it is no probability that counts; products with it are normal numbers, which CPUs multiply faster."""
LOG2_E = np.float32(1.4426950408889634)
_TO_INTEGER = np.float32(12582912.0)
"""1.5 * 2 ** 23: a small number added to it is rounded to an integer, the lower bits of the sum."""
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
"""Where x is cut off before it is multiplied by a power that is never 0."""
_LN_2 = np.float32(0.6931471805599453)
_LARGEST_EXPONENT = np.float32(100.0)
"""Below the overflow of `exp2`: scores of 30,000 differ by more from what they are before rounding."""
_MINUS_INFINITY = np.int16(-128)


@intrinsic
def _bits(context: Any, x: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


@intrinsic
def as_float(context: Any, x: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@compiled
def widen(x: np.int16) -> np.float32:
    """bfloat16 -> float32."""
    return as_float(np.int32(x) << np.int32(16))


@compiled
def narrow(x: np.float32) -> np.int16:
    """float32 -> bfloat16, to the nearest, of two the even one."""
    bits = _bits(x)
    odd = (bits >> np.int32(16)) & np.int32(1)
    return np.int16((bits + np.int32(0x7FFF) + odd) >> np.int32(16))


@compiled_fused
def exp2(x: np.float32) -> np.float32:
    """2 ** x for -126 <= x <= 127, relative error below 4e-6."""
    shifted = x + _TO_INTEGER
    r = x - (shifted - _TO_INTEGER)
    y = (((_EXP2[3] * r + _EXP2[2]) * r + _EXP2[1]) * r + _EXP2[0]) * r + np.float32(1.0)
    return as_float(_bits(y) + (_bits(shifted) << np.int32(23)))


@compiled_fused
def gelu_and_slope(x: np.float32) -> tuple[np.float32, np.float32]:
    """GeLU, x * P(X < x) of a normal X, and its derivative: relative error of GeLU below 1e-5 for |x| < 10,
    absolute error of the derivative below 3e-6.

    A table would be exact, but with it the gate's gradients take 2.6 times as long.
    """
    exponent = x * x * (np.float32(-0.5) * LOG2_E)
    power = exp2(MIN_EXPONENT if exponent < MIN_EXPONENT else exponent)
    u = np.float32(1.0) / (np.float32(1.0) + _NORMAL * abs(x))
    tail = ((((_TAIL[5] * u + _TAIL[4]) * u + _TAIL[3]) * u + _TAIL[2]) * u + _TAIL[1]) * u + _TAIL[0]
    tail = tail * u * power
    below = tail if x < 0 else np.float32(1.0) - tail
    near = min(max(x, -_LARGEST_INPUT), _LARGEST_INPUT)
    return x * below, below + near * power * _DENSITY


@compiled
def rotate_rows(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray) -> None:
    """Rotate each pair (x[i], x[i + head_dim / 2]) of queries and keys by its token's angle.

    Args:
        x: bfloat16 (T, 3, heads, head_dim): queries, keys and values, changed.
        cosine, sine: float32 (T, head_dim / 2).
    """
    tokens, _, heads, width = x.shape
    half = width // 2
    for token in range(tokens):
        for part in range(2):
            for head in range(heads):
                for i in range(half):
                    c, s = cosine[token, i], sine[token, i]
                    a, b = widen(x[token, part, head, i]), widen(x[token, part, head, i + half])
                    x[token, part, head, i] = narrow(a * c - b * s)
                    x[token, part, head, i + half] = narrow(b * c + a * s)


@compiled
def rotate_wide_rows(x: np.ndarray, cosine: np.ndarray, sine: np.ndarray) -> None:
    """`rotate_rows` of float32."""
    tokens, _, heads, width = x.shape
    half = width // 2
    for token in range(tokens):
        for part in range(2):
            for head in range(heads):
                for i in range(half):
                    c, s = cosine[token, i], sine[token, i]
                    a, b = x[token, part, head, i], x[token, part, head, i + half]
                    x[token, part, head, i] = a * c - b * s
                    x[token, part, head, i + half] = b * c + a * s


@compiled_fused
def gate_rows(up: np.ndarray, out: np.ndarray) -> None:
    """GeLU of the first half of each row times the second half.

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
def gate_gradients(up: np.ndarray, gradients: np.ndarray, d_up: np.ndarray, out: np.ndarray) -> None:
    """The gradients of `gate_rows`, and its output.

    Args:
        up, d_up: bfloat16 (T, 2 * inner); `d_up` is written.
        gradients, out: bfloat16 (T, inner), by the output, and the output, which is written.
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
def _mean_and_factor(x: np.ndarray, eps: np.float32) -> tuple[np.float32, np.float32]:
    """The mean of a row, and 1 / its standard deviation."""
    width = np.float32(len(x))
    total = np.float32(0.0)
    for i in range(len(x)):
        total += x[i]
    mean = total / width
    total = np.float32(0.0)
    for i in range(len(x)):
        total += (x[i] - mean) * (x[i] - mean)
    return mean, np.float32(1.0) / np.sqrt(total / width + eps)


@compiled_floats
def _norm_row(
    x: np.ndarray,
    y: np.ndarray,
    statistics: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    eps: np.float32,
) -> None:
    """LayerNorm of a row x into y, and its mean and factor."""
    mean, factor = _mean_and_factor(x, eps)
    statistics[0], statistics[1] = mean, factor
    for i in range(len(x)):
        y[i] = narrow((x[i] - mean) * factor * weight[i] + bias[i])


@compiled_floats
def norm_rows(
    x: np.ndarray,
    y: np.ndarray,
    statistics: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    eps: np.float32,
) -> None:
    """LayerNorm.

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
    x: np.ndarray,
    added: np.ndarray,
    total: np.ndarray,
    y: np.ndarray,
    statistics: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    eps: np.float32,
) -> None:
    """`norm_rows` of x + added, bfloat16 (T, hidden), which is written to `total`, float32."""
    for row in range(len(x)):
        _add_row(x[row], added[row], total[row])
        _norm_row(total[row], y[row], statistics[row], weight, bias, eps)


@compiled_floats
def norm_of_sum_rows(
    x: np.ndarray, added: np.ndarray, y: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: np.float32
) -> None:
    """`norm_rows` of x + added, both bfloat16 (T, hidden), without statistics."""
    total, statistics = np.empty(x.shape[1], np.float32), np.empty(2, np.float32)
    for row in range(len(x)):
        for i in range(len(total)):
            total[i] = widen(x[row, i]) + widen(added[row, i])
        _norm_row(total, y[row], statistics, weight, bias, eps)


@compiled_floats
def _byte(x: np.float32) -> np.uint8:
    """x rounded, at least 0 and at most 255."""
    return np.uint8(np.int32(min(max(x, np.float32(0.0)), np.float32(255.0)) + np.float32(0.5)))


@compiled_floats
def round_rows(x: np.ndarray, out: np.ndarray, factors: np.ndarray, zero: np.float32) -> None:
    """x * factors + zero, rounded, at least 0 and at most 255.

    Args:
        x: bfloat16 (T, channels).
        out: uint8 (T, channels), written.
        factors: float32 (channels,).
    """
    for row in range(len(x)):
        for i in range(x.shape[1]):
            out[row, i] = _byte(widen(x[row, i]) * factors[i] + zero)


@compiled_floats
def round_wide_rows(x: np.ndarray, out: np.ndarray, factors: np.ndarray, zero: np.float32) -> None:
    """`round_rows` of float32."""
    for row in range(len(x)):
        for i in range(x.shape[1]):
            out[row, i] = _byte(x[row, i] * factors[i] + zero)


@compiled
def _add_row(x: np.ndarray, added: np.ndarray, total: np.ndarray) -> None:
    for i in range(len(x)):
        total[i] = x[i] + widen(added[i])


@compiled
def add_rows(x: np.ndarray, added: np.ndarray, total: np.ndarray) -> None:
    """total = x + added: float32, and bfloat16 `added`, all (T, hidden)."""
    for row in range(len(x)):
        _add_row(x[row], added[row], total[row])


# Between the products of short_attention.py. Measured on one core with AMX, in nanoseconds a score of a
# sequence of 128 tokens: softmax 0.6, by ATen 1.0; its backward pass 0.8, with the probabilities.


@compiled
def _heads(places: np.ndarray, first: int) -> int:
    """How many matrices from the first on belong to the same sequence."""
    last = first
    while last < len(places) and places[last, 0] == places[first, 0]:
        last += 1
    return last - first


@compiled
def copy(tensors: tuple, places: np.ndarray, matrices: np.ndarray, to_matrices: bool) -> None:
    """Copy rows of each tensor into matrices (tensors, matrices, width, head_dim), with zeros below; or back.

    All heads and tensors of a token in turn: they usually lie together.
    """
    first, head_dim = 0, matrices.shape[3]
    while first < len(places):
        start, length, head = places[first]
        heads = _heads(places, first)
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
def softmax(scores: np.ndarray, places: np.ndarray, scale: np.float32, normalizer: np.ndarray) -> None:
    """Replace scores by probabilities, nearly 0 for padding, and write the logarithms of the normalizers.

    Whole rows are computed: a number of columns that is no multiple of `short_attention.STEP` would leave
    slow rests.

    Args:
        scores: bfloat16 (matrices, queries, keys), changed.
        scale: factor of the scores.
    """
    width = scores.shape[2]
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
            top = widen(highest) * power_scale
            total = np.float32(0.0)
            for key in range(width):
                x = widen(row[key]) * power_scale - top
                power = exp2(MIN_EXPONENT if x < MIN_EXPONENT else x)
                total += power
                powers[key] = power
            factor = np.float32(1.0) / total
            for key in range(width):
                row[key] = narrow(powers[key] * factor)
            normalizer[head, start + query] = top * _LN_2 + np.log(total)


@compiled_fused
def _power(x: np.float32) -> np.float32:
    x = MIN_EXPONENT if x < MIN_EXPONENT else x  # NaN stays
    return exp2(_LARGEST_EXPONENT if x > _LARGEST_EXPONENT else x)


@compiled_fused
def _add_powers(row: np.ndarray, shifts: np.ndarray, scale: np.float32, sums: np.ndarray) -> None:
    for i in range(len(row)):
        sums[i] += _power(widen(row[i]) * scale - shifts[i])


@compiled_fused
def _probabilities(
    row: np.ndarray,
    d_row: np.ndarray,
    shifts: np.ndarray,
    scale: np.float32,
    factors: np.ndarray,
    means: np.ndarray,
) -> None:
    for i in range(len(row)):
        row[i] = narrow(_power(widen(row[i]) * scale - shifts[i]) * factors[i])
        means[i] += widen(row[i]) * widen(d_row[i])


@compiled_fused
def _score_gradients(row: np.ndarray, d_row: np.ndarray, means: np.ndarray, scale: np.float32) -> None:
    for i in range(len(row)):
        d_row[i] = narrow(widen(row[i]) * (widen(d_row[i]) - means[i]) * scale)


@compiled_fused
def softmax_backward(
    p: np.ndarray, d_p: np.ndarray, places: np.ndarray, scale: np.float32, normalizer: np.ndarray
) -> None:
    """Replace scores by probabilities, and the gradients of these by the gradients of the scores.

    Probabilities are divided by their sum, since scores are rounded: otherwise gradients have twice the
    error. Padding stays finite; it is multiplied by the zeros
    of padded rows. (LLVM vectorises the loops over queries as functions of their own.)

    Args:
        p, d_p: bfloat16 (matrices, keys, queries), changed.
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
