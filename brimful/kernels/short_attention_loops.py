"""The loops between the products of short_attention.py, over bfloat16 as int16.

Measured on one core with AMX, in nanoseconds a score of a sequence of 128 tokens: softmax 0.6, by ATen 1.0;
its backward pass 0.8, with the probabilities.
"""

import numpy as np

from brimful.base.compiled import compiled, compiled_floats, compiled_fused
from brimful.kernels.bfloat16_loops import LEAST, LOG2_E, exp2, narrow, widen

_LN_2 = np.float32(0.6931471805599453)
_MOST = np.float32(100.0)
"""Below the overflow of `exp2`: scores of 30,000 differ by more from what they are before rounding."""
_MINUS_INFINITY = np.int16(-128)


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

    Whole rows are computed: a number of columns that is no multiple of `STEP` would leave slow rests.

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
                power = exp2(LEAST if x < LEAST else x)
                total += power
                powers[key] = power
            factor = np.float32(1.0) / total
            for key in range(width):
                row[key] = narrow(powers[key] * factor)
            normalizer[head, start + query] = top * _LN_2 + np.log(total)


@compiled_fused
def _power(x: np.float32) -> np.float32:
    x = LEAST if x < LEAST else x  # NaN stays
    return exp2(_MOST if x > _MOST else x)


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
