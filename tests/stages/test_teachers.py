"""What teachers say: outputs that are kept, examples that are chained."""

from dataclasses import replace

import numpy as np
import pytest
import torch

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
    data, made, calls = examples([1, 1], {}), np.ones((2, 3), np.float32), []

    def compute():
        calls.append(made)
        return made

    for _ in range(2):
        np.testing.assert_array_equal(cache_outputs({"model": "a"}, data, compute, SINGLE_RANK), made)
    assert len(calls) == 1
    others = examples([1, 1], {}, first=1), replace(data, segments=[np.ones(1, np.uint8)] * 2)
    for model, read in (("b", data), *(("a", other) for other in others)):
        cache_outputs({"model": model}, read, compute, SINGLE_RANK)
    assert len(calls) == 4


def test_examples_are_chained_as_views():
    """Tokens in order, windows of the same text together, each with its own target."""
    targets = {"value": np.array([0, 1]), "tags": Ragged.of([[1, 2], [3, 4, 5]], np.int64)}
    one = examples([2, 3], targets)
    one = replace(one, tokens=Ragged.of(one.tokens, np.int32))
    targets = {"value": np.array([2, 2, 3]), "tags": Ragged.of([[6], [7] * 4, [8, 9]], np.int64)}
    two = examples([1, 4, 2], targets, [0, 0, 1], 20)
    found = Examples.chain([one, two])
    assert len(found) == 5
    assert found.lengths.tolist() == [2, 3, 1, 4, 2]
    tokens = [ids.tolist() for part in (one, two) for ids in part.tokens]
    assert [ids.tolist() for ids in found.tokens] == tokens
    assert found.tokens[1].base is one.tokens.parts[0]
    assert found.text_of_example.tolist() == [0, 1, 2, 2, 3]
    assert found.targets["value"].tolist() == [0, 1, 2, 2, 3]
    tags = [tags.tolist() for tags in found.targets["tags"]]
    assert tags == [[1, 2], [3, 4, 5], [6], [7] * 4, [8, 9]]
    batch = make_batch(found, np.array([4, 1, 2]))
    assert batch.targets["value"][:3].tolist() == [3, 1, 2]
    assert batch.tokens[:6].tolist() == [20, 21, 0, 1, 2, 20]
