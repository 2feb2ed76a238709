"""Padded batches hold every example once, and little padding."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from brimful.data.examples import Examples
from brimful.exporting.padded_batches import BATCH_SLOTS, PADDING_SLOTS, padded_batches


@given(st.lists(st.one_of(st.integers(1, 12), st.integers(1, 600)), min_size=1, max_size=80))
def test_every_example_is_in_one_batch_of_examples_of_similar_length(lengths):
    tokens = [np.full(length, number + 1, dtype=np.int32) for number, length in enumerate(lengths)]
    types = [np.zeros(length, dtype=np.uint8) for length in lengths]
    seen: list[int] = []
    for index, inputs in padded_batches(Examples(tokens, types, {}, 600, pad=0)):
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        assert mask.sum(1).tolist() == [lengths[number] for number in index]
        for row, number in zip(ids, index, strict=True):
            assert row[: lengths[number]].tolist() == [number + 1] * lengths[number]
        assert ids.size <= BATCH_SLOTS or len(index) == 1
        assert (mask == 0).sum() <= max(PADDING_SLOTS, ids.size // 4)
        seen += index
    assert sorted(seen) == list(range(len(lengths)))
