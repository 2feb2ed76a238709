"""What teachers say: outputs that are kept, examples that are chained."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brimful.base.distributed import SINGLE_RANK
from brimful.data.example_batches import make_batch
from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.stages.students import cache_outputs
from brimful.tasks.multi_label import MultiLabel


def examples(lengths: list[int], targets: dict, texts: list[int] | None = None, first: int = 0) -> Examples:
    tokens = [np.arange(first, first + length, dtype=np.int32) for length in lengths]
    segments = [np.zeros(length, dtype=np.uint8) for length in lengths]
    return Examples(tokens, segments, targets, 9, 0, None if texts is None else np.array(texts))


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_the_imitation_of_several_labels_is_torchs(temperature):
    torch.manual_seed(0)
    ours, theirs = torch.randn(7, 4, dtype=torch.float64), torch.randn(7, 4, dtype=torch.float64)
    many = MultiLabel(["a", "b", "c", "d"])
    p, q = (theirs / temperature).sigmoid(), (ours / temperature).sigmoid()
    expected = -(p * q.log() + (1 - p) * (1 - q).log()).sum() / 4
    torch.testing.assert_close(many.imitation(temperature)(ours, theirs), expected, rtol=1e-12, atol=0)


def test_outputs_are_computed_once(tmp_path, monkeypatch):
    monkeypatch.setenv("BRIMFUL_CACHE", str(tmp_path))
    data, calls = examples([1, 1], {}), []
    for made in (
        np.ones((2, 3), np.float32),
        Ragged.of([np.ones((2, 3)), np.zeros((1, 3))], np.float32, (3,)),
    ):

        def compute(made=made):
            calls.append(made)
            return made

        key = {"model": str(type(made))}
        first, second = (cache_outputs(key, data, compute, SINGLE_RANK) for _ in range(2))
        for one, other in zip(first, second, strict=True):
            np.testing.assert_array_equal(one, other)
    assert len(calls) == 2
    cache_outputs({"model": "another"}, data, compute, SINGLE_RANK)
    cache_outputs({"model": "another"}, examples([1, 1], {}, first=1), compute, SINGLE_RANK)
    cache_outputs(
        {"model": "another"}, replace(data, segments=[np.ones(1, np.uint8)] * 2), compute, SINGLE_RANK
    )
    assert len(calls) == 5


def test_examples_are_chained_as_views():
    """Tokens in order, windows of the same text together, each with its own target."""
    one = examples([2, 3], {"value": np.array([0, 1])})
    one = replace(one, tokens=Ragged.of(one.tokens, np.int32))
    two = examples([1, 4, 2], {"value": np.array([2, 2, 3])}, [0, 0, 1], 20)
    found = Examples.chain([one, two])
    assert len(found) == 5
    assert found.lengths.tolist() == [2, 3, 1, 4, 2]
    tokens = [ids.tolist() for part in (one, two) for ids in part.tokens]
    assert [ids.tolist() for ids in found.tokens] == tokens
    assert found.tokens[1].base is one.tokens.parts[0]
    assert found.text_of_example.tolist() == [0, 1, 2, 2, 3]
    assert found.targets["value"].tolist() == [0, 1, 2, 2, 3]
    batch = make_batch(found, np.array([4, 1, 2]))
    assert batch.targets["value"][:3].tolist() == [3, 1, 2]
    assert batch.tokens[:6].tolist() == [20, 21, 0, 1, 2, 20]


@given(st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=4), min_size=1, max_size=4))
def test_targets_of_tokens_are_chained(parts):
    made = []
    for number, lengths in enumerate(parts):
        tags = Ragged.of([np.full(length, number) for length in lengths], np.int64)
        made.append(examples(lengths, {"tags": tags}))
    found = Examples.chain(made).targets["tags"]
    lists = [(number, length) for number, lengths in enumerate(parts) for length in lengths]
    assert [tags.tolist() for tags in found] == [[number] * length for number, length in lists]
