"""Draws of compiled loops are those of `randomness`."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from brimful.data.draws import mix_word
from brimful.randomness import mix

words = st.integers(0, 2**64 - 1)


@given(words)
def test_a_word_is_mixed_as_arrays_are(word: int) -> None:
    assert int(mix_word(np.uint64(word))) == int(mix(np.array([word], dtype=np.uint64))[0])


def test_values_that_compiled_loops_keep() -> None:
    """Loops that call it stay compiled when draws.py changes, so its values may not: splitmix64's own."""
    assert int(mix_word(np.uint64(0))) == 0xE220A8397B1DCDAF
    assert int(mix_word(np.uint64(0x9E3779B97F4A7C15))) == 0x6E789E6AA1B965F4
