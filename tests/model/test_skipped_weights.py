"""Weights that are not drawn."""

import pytest
import torch

from brimful.model.initial_weights import skip_initial_weights
from builders.encoders import MODELS, small


@pytest.mark.parametrize("name", MODELS)
def test_norms_and_rotary_tables_are_made_as_ever(name):
    encoder = small(name)
    before = torch.get_rng_state()
    with skip_initial_weights():
        other = small(name)
    assert torch.equal(torch.get_rng_state(), before)
    ours, theirs = dict(encoder.named_buffers()), dict(other.named_buffers())
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    norms = [(n, p) for n, p in other.named_parameters() if "norm" in n]
    assert norms
    assert all(torch.equal(p, torch.full_like(p, float(n.endswith("weight")))) for n, p in norms)
    vocabulary = encoder.config.vocabulary_size
    assert torch.equal(other.embedding.weight[vocabulary:], encoder.embedding.weight[vocabulary:])
