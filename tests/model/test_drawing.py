"""Weights that are not drawn: what is drawn after them has the same bits."""

import pytest
import torch

from brimful.model.drawing import discarded, undrawn
from brimful.model.heads import SequenceHead
from builders.encoders import MODELS, small


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MODELS)
def test_discarded_weights_leave_the_generator_where_drawn_ones_do(name, dtype, monkeypatch):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        torch.manual_seed(3)
        encoder = small(name)
        head = SequenceHead(encoder, 3)
        torch.manual_seed(3)
        with discarded():
            other = small(name)
        after = SequenceHead(other, 3)
        torch.manual_seed(3)
        with undrawn(), discarded():
            small(name)
        untouched = torch.get_rng_state()
        torch.manual_seed(3)
    finally:
        torch.set_default_dtype(before)
    assert all(torch.equal(*pair) for pair in zip(head.parameters(), after.parameters(), strict=True))
    assert torch.equal(untouched, torch.get_rng_state())


@pytest.mark.parametrize("name", MODELS)
def test_norms_and_rotary_tables_are_made_as_ever(name):
    encoder = small(name)
    with undrawn():
        other = small(name)
    ours, theirs = dict(encoder.named_buffers()), dict(other.named_buffers())
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    norms = [(n, p) for n, p in other.named_parameters() if "norm" in n]
    assert norms
    assert all(torch.equal(p, torch.full_like(p, float(n.endswith("weight")))) for n, p in norms)
    vocabulary = encoder.config.vocabulary_size
    assert torch.equal(other.embedding.weight[vocabulary:], encoder.embedding.weight[vocabulary:])
