"""Copies of a text: as often and by which candidates as in TinyBERT, and what is joined where."""

import numpy as np
import pytest

from brimful.augmentation.copies import copy_keys, join_parts, pick_candidates


@pytest.mark.parametrize("rate", [0.0, 0.4, 1.0])
def test_each_word_is_replaced_with_the_rate_by_one_of_its_candidates(rate: float, seed: int) -> None:
    """Within five standard errors of the binomials."""
    copies, words, counts = 4000, 6, np.array([1, 2, 3, 5, 8, 15])
    keys = copy_keys(seed, 3, 0, np.arange(copies))
    found = np.stack([pick_candidates(key, np.arange(words), counts, rate) for key in keys])
    assert found.shape == (copies, words)
    assert (found >= -1).all()
    assert (found < counts).all()
    for word, count in enumerate(counts):
        for choice in range(count):
            chance = rate / count
            error = 5 * np.sqrt(chance * (1 - chance) / copies)
            assert abs((found[:, word] == choice).mean() - chance) <= error


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [("ab", "cd", "ab cd"), ("ab", " cd", "ab cd"), ("书", "ab", "书ab"), ("", "a", "a")],
)
def test_letters_are_not_joined_into_one_word(left: str, right: str, expected: str) -> None:
    assert join_parts(left, right) == expected
