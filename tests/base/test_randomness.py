"""Keyed draws: known vectors, and what statistics and purity promise."""

from collections import Counter
from itertools import permutations
from math import factorial

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from brimful.base.draws import mix_word, shuffle_indices
from brimful.base.randomness import derive_key, draw_uniform, hash_words, mix, permutation

words = st.integers(0, 2**64 - 1)


def test_splitmix64_vectors():
    """The generator of Steele, Lea and Flood: its state is a counter in steps of the golden ratio."""
    golden = 0x9E3779B97F4A7C15
    for start, expected in {
        0: [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC],
        1234567: [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431],
    }.items():
        states = [(start + i * golden) % 2**64 for i in range(len(expected))]
        assert mix(np.array(states, dtype=np.uint64)).tolist() == expected
        assert [int(mix_word(np.uint64(state))) for state in states] == expected


@given(words, st.lists(words, unique=True, min_size=1, max_size=50))
def test_order_and_shape_do_not_matter(key, counters):
    array = np.array(counters, dtype=np.uint64)
    hashes = hash_words(np.uint64(key), array)
    assert np.array_equal(hash_words(np.uint64(key), array[::-1]), hashes[::-1])
    assert np.array_equal(hash_words(np.uint64(key), array.reshape(1, -1, 1)).ravel(), hashes)
    assert hash_words(np.uint64(key), array[0]) == hashes[0]
    assert draw_uniform(np.uint64(key), array[0]) == draw_uniform(np.uint64(key), array)[0]
    assert len(set(hashes.tolist())) == len(counters)  # a bijection


def test_draws_never_change():
    """Data orders of finished runs hang on these values: a change here breaks every resume."""
    key = derive_key(0, "rows", 1)
    assert int(key) == 0xABA0CEA59098F4DC
    assert hash_words(key, np.arange(2)).tolist() == [0x992686394B360B2B, 0x07BD1D284D2E9804]
    assert draw_uniform(key, np.arange(2)).tolist() == [0.5982440843465257, 0.03022939905093336]
    assert permutation(8, key).tolist() == [1, 2, 0, 7, 5, 3, 4, 6]
    assert shuffle_indices(key, np.arange(8), 8).tolist() == [3, 5, 2, 6, 0, 4, 1, 7]
    assert shuffle_indices(key, np.arange(3), 10**6).tolist() == [536203, 881068, 200145]


def test_keys_depend_on_every_part_and_its_place():
    parts: list[tuple[int | str, ...]] = [(), (0,), (0, 0), (1,), ("1",), (1, 2), (2, 1), ("a", "b"), ("ab",)]
    parts += [(-1,), (2**63,), ("b", "a"), (0, "a"), ("a", 0)]
    assert len({int(derive_key(*p)) for p in parts}) == len(parts)


@given(st.integers(0, 300), words)
def test_a_permutation_is_one(size, key):
    order = permutation(size, np.uint64(key))
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(size))
    assert np.array_equal(order, permutation(size, np.uint64(key)))


@given(words, st.integers(1, 2000))
@example(0, 2**20)
@example(0, 2**20 + 1)
def test_shuffled_indices_are_a_permutation(key, size):
    places = shuffle_indices(np.uint64(key), np.arange(size), size)
    assert places.dtype == np.int64
    assert (np.bincount(places, minlength=size) == 1).all()


@given(words, st.integers(1, 2**40), st.lists(st.integers(0, 2**40 - 1), min_size=1, max_size=20))
def test_shuffled_index_needs_no_table(key, size, draws):
    index = np.array(draws) % size
    places = shuffle_indices(np.uint64(key), index, size)
    assert ((places >= 0) & (places < size)).all()
    assert len(set(places.tolist())) == len(set(index.tolist()))
    assert shuffle_indices(np.uint64(key), index[0], size) == places[0]
    shaped = shuffle_indices(np.uint64(key), index[::-1].reshape(1, -1, 1), size)
    assert np.array_equal(shaped.ravel(), places[::-1])


@pytest.mark.parametrize("index", [[-1], [0, 10], [2**40]])
def test_an_index_outside_the_range_is_refused(index):
    with pytest.raises(ValueError, match=r"outside range\(10\)"):
        shuffle_indices(np.uint64(0), np.array(index), 10)


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_all_shuffles_are_as_likely(size, seed):
    n = 40 * factorial(size)
    seen = Counter(
        tuple(shuffle_indices(derive_key(seed, i), np.arange(size), size).tolist()) for i in range(n)
    )
    chi_squared = sum((seen[order] - 40) ** 2 / 40 for order in permutations(range(size)))
    freedom = factorial(size) - 1
    assert chi_squared < freedom + 8 * (2 * freedom) ** 0.5 + 20
