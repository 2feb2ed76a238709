"""Loops over bfloat16 numbers that only training needs: losses and gradients (see bfloat16_loops.py)."""

import math

import numpy as np

from brimful.base.compiled import compiled, compiled_floats
from brimful.kernels.bfloat16_loops import LOG2_E, MIN_EXPONENT, Array, as_float, exp2, narrow, widen


@compiled
def highest(row: Array) -> np.float32:
    """Return the highest number of a row of float32, which is not empty; NaN if any number is."""
    # Read as integers, floats keep their order if all bits of negative ones except the sign are inverted.
    # A maximum of integers is vectorised; one of floats is not, because of NaN.
    bits, inverted = row.view(np.int32), np.int32(0x7FFFFFFF)
    top, size = np.int32(-0x80000000), np.int32(0)
    for i in range(len(bits)):
        top = max(top, bits[i] ^ ((bits[i] >> np.int32(31)) & inverted))
    for i in range(len(bits)):  # one loop for both is not vectorised
        size = max(size, bits[i] & inverted)
    if size > 0x7F800000:  # beyond infinity
        return np.float32(np.nan)
    return as_float(top ^ ((top >> np.int32(31)) & inverted))


@compiled_floats
def score_gradients(
    scores: Array,
    labels: Array,
    scales: Array,
    losses: Array,
    hits: Array,
    bias: Array,
    sums: Array,
    write: bool,
) -> None:
    """Compute the cross-entropy of each row; if `write`, replace its scores by their gradients.

    Args:
        scores: bfloat16 (rows, columns), one row of which fits in the cache.
        labels: int64 (rows,), each a column, or negative in a row that has no loss.
        scales: float32 (rows,), what the gradients of each row are multiplied by.
        losses: float32 (rows,), written.
        hits: float32 (rows,), written: 1 if the label has the highest score, else 0.
        bias: float32 (columns,), added to the scores of each row.
        sums: float32 (columns,), to which the rounded gradients of each column are added.
    """
    rows, columns = scores.shape
    powers = np.empty(columns, np.float32)
    for row in range(rows):
        line, label = scores[row], labels[row]
        if label < 0:
            losses[row] = hits[row] = np.float32(0.0)
            if write:
                line[:] = 0
            continue
        # From here on the row and `powers` are in the cache.
        for column in range(columns):
            powers[column] = widen(line[column]) + bias[column]
        top, own = highest(powers), powers[label]
        total = np.float32(0.0)
        for column in range(columns):
            x = (powers[column] - top) * LOG2_E
            power = exp2(MIN_EXPONENT if x < MIN_EXPONENT else x)  # NaN stays
            powers[column] = power
            total += power
        loss = top + np.log(total) - own
        losses[row], hits[row] = loss, np.float32(own >= top)
        if write:
            factor = scales[row] / total
            for column in range(columns):
                line[column] = narrow(powers[column] * factor)
            # p - 1 for the label: expm1 keeps the digits where p is near 1, and only the result is rounded.
            line[label] = narrow(np.float32(math.expm1(-loss)) * scales[row])
            for column in range(columns):
                sums[column] += widen(line[column])


@compiled
def add_transposed(x: Array, total: Array, first: bool) -> None:
    """Compute total += x transposed, or total = x transposed if `first`.

    Args:
        x: bfloat16 (columns, rows).
        total: float32 (rows, columns), changed.
    """
    columns, rows = x.shape
    for top in range(0, rows, 32):  # in blocks: one cache line of a row of x, four of a row of `total`
        bottom = min(top + 32, rows)
        for first_column in range(0, columns, 64):
            for column in range(first_column, min(first_column + 64, columns)):
                for row in range(top, bottom):
                    value = widen(x[column, row])
                    total[row, column] = value if first else total[row, column] + value


@compiled_floats
def norm_gradients(
    x: Array,
    statistics: Array,
    d_y: Array,
    d_x: Array,
    whole: Array,
    y: Array,
    weight: Array,
    d_weight: Array,
) -> None:
    """Compute the gradients of `bfloat16_loops.norm_rows`, and its output again.

    Args:
        x, statistics, weight: as in `norm_rows`.
        d_y: bfloat16 (T, hidden), the gradient with respect to the output.
        d_x: float32 (T, hidden), another gradient with respect to x.
        whole: float32 (T, hidden), written: the sum of both gradients with respect to x.
        y: bfloat16 (T, hidden), written: the output.
        d_weight: float32 (hidden,), to which the weight's gradient is added.
    """
    tokens, hidden = x.shape
    width = np.float32(hidden)
    for token in range(tokens):
        row, d_row, others = x[token], d_y[token], d_x[token]
        out, results = y[token], whole[token]
        mean, factor = statistics[token, 0], statistics[token, 1]
        # Subtracted from the gradient: its mean (`total`) and its part along the standardized row (`shared`).
        total = shared = np.float32(0.0)
        for i in range(hidden):
            standard, d = (row[i] - mean) * factor, widen(d_row[i])
            total += d * weight[i]
            shared += d * weight[i] * standard
            d_weight[i] += d * standard
        total, shared = total / width, shared / width
        for i in range(hidden):
            standard = (row[i] - mean) * factor
            results[i] = others[i] + factor * (widen(d_row[i]) * weight[i] - total - standard * shared)
            out[i] = narrow(standard * weight[i])
