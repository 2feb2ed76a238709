"""Loops over bfloat16 numbers on a CPU, each of which reads and writes its numbers once.

ATen takes several operations for the same work; each of them converts, reads and writes all numbers.

The loops see bfloat16 as the upper halves of float32, in int16. They compute in float32, and round to nearest
even at the end, as ATen does. NaN gives NaN.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from brimful.compiled import compiled, compiled_floats, compiled_fused

_LOWEST = np.float32(-87.0)
"""exp of it is about the smallest normal float32."""
LOG2_E = np.float32(1.4426950408889634)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_TO_INTEGER = np.float32(12582912.0)
"""1.5 * 2 ** 23: a small number added to it is rounded to an integer, the lower bits of the sum."""
_SIX = np.float32(1.9875691500e-4)
_FIVE = np.float32(1.3981999507e-3)
_FOUR = np.float32(8.3334519073e-3)
_THREE = np.float32(4.1665795894e-2)
_TWO = np.float32(1.6666665459e-1)
_ONE = np.float32(5.0000001201e-1)
_EXP2 = tuple(np.float32(c) for c in (0.6931242, 0.24024099, 0.055906426, 0.009582853))
"""Coefficients of (2 ** x - 1) / x for |x| <= 0.5, of the lowest relative error of 2 ** x."""


@intrinsic
def _bits(context: Any, x: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


@intrinsic
def _float(context: Any, x: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@compiled
def widen(x: np.int16) -> np.float32:
    """bfloat16 -> float32."""
    return _float(np.int32(x) << np.int32(16))


@compiled
def narrow(x: np.float32) -> np.int16:
    """float32 -> bfloat16, to the nearest, of two the even one."""
    bits = _bits(x)
    odd = (bits >> np.int32(16)) & np.int32(1)
    return np.int16((bits + np.int32(0x7FFF) + odd) >> np.int32(16))


@compiled
def exp(x: np.float32) -> np.float32:
    """exp(x) for x <= 0, relative error below 2e-7; 1.6e-38 for all x below -87 (Moshier's Cephes, expf)."""
    x = _LOWEST if x < _LOWEST else x  # NaN stays
    shifted = x * LOG2_E + _TO_INTEGER
    n = shifted - _TO_INTEGER
    r = x - n * _LN2_HIGH
    r = r - n * _LN2_LOW
    p = ((((_SIX * r + _FIVE) * r + _FOUR) * r + _THREE) * r + _TWO) * r + _ONE
    y = p * r * r + r + np.float32(1.0)
    power = (_bits(shifted) - _bits(_TO_INTEGER) + np.int32(127)) << np.int32(23)
    return y * _float(power)


@compiled_fused
def exp2(x: np.float32) -> np.float32:
    """2 ** x for -126 <= x <= 127, relative error below 4e-6, in half the time of `exp`."""
    shifted = x + _TO_INTEGER
    r = x - (shifted - _TO_INTEGER)
    y = (((_EXP2[3] * r + _EXP2[2]) * r + _EXP2[1]) * r + _EXP2[0]) * r + np.float32(1.0)
    return _float(_bits(y) + (_bits(shifted) << np.int32(23)))


@compiled
def highest(row: np.ndarray) -> np.float32:
    """The highest number of a row of bfloat16, which has one; NaN if any is."""
    top, size = np.int16(-32768), np.int16(0)
    for i in range(len(row)):  # compared as integers: the bits of negative numbers but the sign are inverted
        top = max(top, np.int16(row[i] ^ ((row[i] >> np.int16(15)) & np.int16(0x7FFF))))
    for i in range(len(row)):  # one loop for both is not vectorised
        size = max(size, np.int16(row[i] & np.int16(0x7FFF)))
    if size > 0x7F80:
        return np.float32(np.nan)
    return widen(np.int16(top ^ ((top >> np.int16(15)) & np.int16(0x7FFF))))


@compiled_floats
def score_gradients(
    scores: np.ndarray,
    labels: np.ndarray,
    scales: np.ndarray,
    losses: np.ndarray,
    hits: np.ndarray,
    sums: np.ndarray,
    write: bool,
) -> None:
    """Cross-entropy of each row; if `write`, replace its scores by their gradients.

    Args:
        scores: bfloat16 (rows, columns), one row of which fits in the cache.
        labels: int64 (rows,), each a column.
        scales: float32 (rows,), what the gradients of each row are multiplied by.
        losses: float32 (rows,), written.
        hits: float32 (rows,), written: 1 if the label has the highest score, else 0.
        sums: float32 (columns,), to which the rounded gradients of each column are added.
    """
    rows, columns = scores.shape
    powers = np.empty(columns, np.float32)
    for row in range(rows):
        line, label = scores[row], labels[row]
        top, own = highest(line), widen(line[label])
        total = np.float32(0.0)
        for column in range(columns):
            power = exp(widen(line[column]) - top)
            powers[column] = power
            total += power
        loss = top + np.log(total) - own
        losses[row], hits[row] = loss, np.float32(own >= top)
        if write:
            factor = scales[row] / total
            for column in range(columns):
                line[column] = narrow(powers[column] * factor)
            line[label] = narrow(np.float32(math.expm1(-loss)) * scales[row])  # p - 1, rounded last
            for column in range(columns):
                sums[column] += widen(line[column])


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


_HALF_ROOT = np.float32(0.7071067811865476)
_DENSITY = np.float32(0.3989422804014327)
_P = np.float32(0.3275911)
_A1, _A2, _A3 = np.float32(0.254829592), np.float32(-0.284496736), np.float32(1.421413741)
_A4, _A5 = np.float32(-1.453152027), np.float32(1.061405429)


@compiled_floats
def normal(x: np.float32) -> tuple[np.float32, np.float32]:
    """Distribution and density of the normal distribution at x: absolute error below 2e-7 (Abramowitz and
    Stegun, 7.1.26)."""
    size = abs(x) * _HALF_ROOT
    e = exp(-size * size)
    t = np.float32(1.0) / (np.float32(1.0) + _P * size)
    tail = np.float32(0.5) * e * t * ((((_A5 * t + _A4) * t + _A3) * t + _A2) * t + _A1)
    return tail if x < 0 else np.float32(1.0) - tail, _DENSITY * e


@compiled
def gate_rows(up: np.ndarray, out: np.ndarray) -> None:
    """GeLU of the first half of each row times the second half.

    Args:
        up: bfloat16 (T, 2 * inner).
        out: bfloat16 (T, inner), written.
    """
    tokens, inner = out.shape
    for token in range(tokens):
        values, others, results = up[token, :inner], up[token, inner:], out[token]
        for i in range(inner):
            x = widen(values[i])
            share, _ = normal(x)
            results[i] = narrow(x * share * widen(others[i]))


@compiled
def gate_gradients(up: np.ndarray, gradients: np.ndarray, d_up: np.ndarray) -> None:
    """The gradients of `gate_rows`.

    Args:
        up, d_up: bfloat16 (T, 2 * inner); `d_up` is written.
        gradients: bfloat16 (T, inner), by the output.
    """
    tokens, inner = gradients.shape
    for token in range(tokens):  # without slices of its own, the loop over a row is not vectorised
        values, others, gradient = up[token, :inner], up[token, inner:], gradients[token]
        d_values, d_others = d_up[token, :inner], d_up[token, inner:]
        for i in range(inner):
            x, d = widen(values[i]), widen(gradient[i])
            share, density = normal(x)
            d_values[i] = narrow(d * widen(others[i]) * (share + x * density))
            d_others[i] = narrow(d * x * share)
