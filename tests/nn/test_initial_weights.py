"""Heads that look at neighbours from the start."""

import pytest
import torch

from brimful.nn.encoder import Capture, Encoder, preset
from brimful.nn.heads import MaskedLMHead
from brimful.nn.initial_weights import LAYERS, OFFSETS, look_at_neighbours
from builders.encoders import VOCABULARY, random_row


@pytest.fixture(autouse=True)
def _random(seed: int) -> None:
    torch.manual_seed(seed)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("tiny", {}),
        ("mini", {}),
        ("mini", {"hidden_size": 104, "heads": 4}),
        ("mini", {"rope_theta": 160_000.0, "global_every": 2, "local_attention": 64}),
    ],
)
def test_heads_of_the_first_layers_look_at_their_neighbours(name, changes):
    encoder = Encoder(preset(name, vocabulary_size=VOCABULARY, **changes)).double()
    before = [layer.qkv.weight.detach().clone() for layer in encoder.layers]
    look_at_neighbours(encoder)
    shape = encoder.config
    length = 60
    batch = random_row([length])
    capture = Capture()
    with torch.no_grad():
        encoder(batch, capture=capture)
    heads = min(len(OFFSETS), shape.heads)
    inner = torch.arange(4, length - 4)
    for index in range(min(LAYERS, shape.layers)):
        q, k = (x[index].transpose(0, 1) for x in (capture.queries, capture.keys))
        seen = (q @ k.mT / shape.head_dim**0.5).softmax(-1)
        for head, offset in zip(range(heads), OFFSETS, strict=False):
            by_offset = {d: float(seen[head, inner, inner + d].mean()) for d in range(-4, 5)}
            assert by_offset.pop(offset) > max(0.3, 2 * max(by_offset.values())), (index, head)
    for index, (layer, old) in enumerate(zip(encoder.layers, before, strict=True)):
        changed = (layer.qkv.weight != old).any(1).view(3, shape.heads, -1).any(-1)
        assert changed.sum() == (2 * heads if index < LAYERS else 0)


def test_the_common_part_of_the_embeddings_changes_no_prediction():
    encoder = Encoder(preset("tiny", vocabulary_size=400)).double()
    head = MaskedLMHead(encoder).double()
    hidden = torch.randn(20, 128, dtype=torch.float64)
    before = head(hidden).softmax(-1)
    padding = encoder.embedding.weight[400:].clone()
    look_at_neighbours(encoder)
    torch.testing.assert_close(head(hidden).softmax(-1), before)
    assert torch.equal(encoder.embedding.weight[400:], padding)
