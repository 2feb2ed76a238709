"""Loops that round to 8 bits. They see bfloat16 as bfloat16_loops.py does."""

import numpy as np

from brimful.compiled import compiled_floats
from brimful.kernels.bfloat16_loops import widen


@compiled_floats
def round_rows(x: np.ndarray, out: np.ndarray, factors: np.ndarray, zero: np.float32) -> None:
    """x * factors + zero, rounded, at least 0 and at most 255.

    Args:
        x: bfloat16 (T, channels).
        out: uint8 (T, channels), written.
        factors: float32 (channels,).
    """
    most = np.float32(255.0)
    for row in range(len(x)):
        for i in range(x.shape[1]):
            value = widen(x[row, i]) * factors[i] + zero
            value = min(max(value, np.float32(0.0)), most)
            out[row, i] = np.uint8(np.int32(value + np.float32(0.5)))
