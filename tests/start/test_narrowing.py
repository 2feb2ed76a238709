"""Narrower encoders: a widened encoder gives back the one that it was made from."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import LayerNorm

from brimful import Encoder
from brimful.base.errors import BrimfulError
from brimful.model.initial_weights import Linear
from brimful.start.narrowing import narrow
from tests.builders.encoders import MODELS, random_row, small


@pytest.fixture(autouse=True)
def _random(seed: int) -> None:
    torch.manual_seed(seed)


def shaken(model: str) -> Encoder:
    """An encoder in float64 whose norms and biases are not at their initial values."""
    encoder = small(model).double()
    with torch.no_grad():
        for module in encoder.modules():
            if isinstance(module, LayerNorm):
                module.weight.uniform_(0.5, 1.5)
            if isinstance(module, LayerNorm | Linear) and module.bias is not None:
                module.bias.normal_(std=0.3)
    return encoder


def widened(encoder: Encoder) -> Encoder:
    """The same function of the same tokens, twice as wide.

    Each coordinate of the residual stream is there twice, at random places, and the matrices read one of the
    two. Half of the neurons and half of each head do nothing. Scores are divided by the square root of a
    head's size, which is twice as large, and so queries and keys are 2^(1/4) times as large.
    """
    ours = encoder.config
    hidden, inner = ours.hidden_size, ours.intermediate_size
    sizes = {"hidden_size": 2 * hidden, "intermediate_size": 2 * inner}
    wide = Encoder(replace(ours, **sizes)).double()
    place = torch.randperm(2 * hidden)
    read, twice = place[:hidden], torch.empty(2 * hidden, dtype=torch.long)
    twice[read] = twice[place[hidden:]] = torch.arange(hidden)
    neurons = torch.randperm(2 * inner)[:inner]
    rows = torch.cat((neurons, neurons + 2 * inner)) if ours.gated else neurons
    pairs = 2 * torch.arange(ours.head_dim // 2)  # those with the same rotary frequencies
    halves = torch.cat((pairs, pairs + ours.head_dim))
    slots = torch.zeros(3, ours.heads, 2 * ours.head_dim, dtype=torch.bool)
    slots[:, :, halves] = True
    slots = slots.flatten()

    def reading(weight: Tensor, columns: Tensor, width: int) -> Tensor:
        found = weight.new_zeros(len(weight), width)
        found[:, columns] = weight
        return found

    def rows_at(values: Tensor, where: Tensor, count: int) -> Tensor:
        found = values.new_zeros(count, *values.shape[1:])
        found[where] = values
        return found

    louder = torch.ones(3 * hidden, dtype=torch.float64)
    louder[: 2 * hidden] = 2**0.25
    tensors = {}
    for name, values in encoder.state_dict().items():
        *_, module, kind = name.split(".")
        if module == "qkv":
            values = values * (louder[:, None] if kind == "weight" else louder)
            values = reading(values, read, 2 * hidden) if kind == "weight" else values
            values = rows_at(values, slots, 6 * hidden)
        elif module == "attention_out" and kind == "weight":
            values = reading(values[twice], slots[: 2 * hidden], 2 * hidden)
        elif module == "up":
            values = reading(values, read, 2 * hidden) if kind == "weight" else values
            values = rows_at(values, rows, len(values) * 2)
        elif module == "down" and kind == "weight":
            values = reading(values[twice], neurons, 2 * inner)
        elif module in ("embedding", "position", "segment"):
            values = values if ours.embedding_size else values[:, twice]
        elif module != "embedding_norm" or not ours.embedding_size:  # norms, biases, the projection
            values = values[twice]
        tensors[name] = values
    wide.load_state_dict(tensors)
    return wide


@pytest.mark.parametrize("model", MODELS)
def test_what_a_widened_encoder_is_made_of_is_found(model):
    encoder = shaken(model)
    wide = widened(encoder)
    batch = random_row([17, 1, 40])
    expected = encoder(batch)
    hidden = encoder.config.hidden_size
    twice = wide(batch)
    assert twice.shape[1] == 2 * hidden
    found = narrow(wide, replace(encoder.config))(batch)
    order = torch.cdist(found.T, expected.T).argmin(1)  # coordinates are in another order
    assert sorted(order.tolist()) == list(range(hidden))
    torch.testing.assert_close(found, expected[:, order], rtol=1e-9, atol=1e-9)


def test_a_wider_shape_is_refused():
    encoder = small("bert")
    with pytest.raises(BrimfulError, match="hidden_size is 96, and the encoder's 48: weights can only"):
        narrow(encoder, replace(encoder.config, hidden_size=96))
