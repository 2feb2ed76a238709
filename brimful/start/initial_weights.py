"""Initial weights with which a masked-language model begins as a model of counts, not of noise.

With random queries and keys, attention begins as a mean over the sequence, and the loss stays near the
entropy of the tokens until heads have found the tokens beside a gap. With random embeddings it then takes
many updates until pieces with the same neighbours are alike. Both are known before the first update:

- `look_at_neighbours`: heads of the first layers look at the tokens beside a gap.
- `know_the_vocabulary`: pieces have the vectors of their neighbourhoods (neighbourhoods.py), the head
  hands hidden states on as they are, and its biases are the logarithms of the pieces' frequencies.

The score of constant queries and keys depends on their distance alone once they are rotated (Su et al. 2021,
"RoFormer", section 3.4.2). So all embeddings get a common part, and a head takes from it those pairs of its
queries and keys that turn fast enough to tell neighbours apart:

    score(m, n) = gain * sum over pairs of cos(angle * (n - m - offset)) / sqrt(head_dim)

which is highest at n = m + offset. The other pairs are random, as are all values. The common part adds the
same number to all scores of the masked-LM head, so it changes no prediction.

Zheng et al. (2024, "Structured Initialization for Attention in Vision Transformers") begin the attention of
image models as convolutions, for the same reason. bench/results/speedrun.md has what each part gains.
"""

import math

import numpy as np
import torch

from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead
from brimful.model.layer import Layer

OFFSETS = (-1, 1, -2, 2)
"""Where the first heads of a layer look."""

LAYERS = 3
"""The most layers that have such heads, from the first one on."""

SLOWEST = 1 / 8
"""The least angle of a pair, in radians a token."""

MARGIN = 4.0
"""How much the score of the token that a head looks at is above those beside it: 55 times the probability."""


def looking_layers(layers: int) -> int:
    """How many of the layers have such heads: the last of several has none, and sees the whole sequence."""
    return max(1, min(LAYERS, layers - 1))


@torch.no_grad()
def look_at_neighbours(encoder: Encoder) -> None:
    """Change the weights of a new encoder with rotary positions, so that heads look at neighbours."""
    config = encoder.config
    width, half = config.hidden_size, config.head_dim // 2
    common = torch.tensor([1.0, -1.0]).repeat(-(-width // 2))[:width]
    encoder.embedding.weight[: config.vocabulary_size] += config.initializer_range * common
    # Common and random part are equally long, and the norm of the embeddings makes them sqrt(width) together.
    reader = common / common.norm() / math.sqrt(width / 2)
    for index, layer in enumerate(encoder.layers[: looking_layers(config.layers)]):
        assert isinstance(layer, Layer)
        theta = config.rope_theta if config.is_global(index) else config.rope_theta_local
        angles = theta ** (-torch.arange(half) / half)
        angles = angles[angles >= SLOWEST]
        size = math.sqrt(MARGIN * math.sqrt(config.head_dim) / float((1 - angles.cos()).sum()))
        queries, keys, _ = layer.qkv.weight.view(3, config.heads, 2, half, width)
        pairs = slice(len(angles))
        for head, offset in zip(range(config.heads), OFFSETS, strict=False):
            queries[head, 0, pairs] = size * reader
            queries[head, 1, pairs] = 0
            keys[head, 0, pairs] = (size * (angles * offset).cos())[:, None] * reader
            keys[head, 1, pairs] = (-size * (angles * offset).sin())[:, None] * reader


RANDOM = 0.5
"""The share of random embeddings beside the vectors: pieces that occur in the same places still differ."""

LEAST = 1e-7
"""Added to all frequencies: pieces that do not occur have scores too."""


@torch.no_grad()
def know_the_vocabulary(
    encoder: Encoder, head: MaskedLMHead, vectors: np.ndarray, frequencies: np.ndarray
) -> None:
    """Change the embeddings of a new encoder, and its head. `look_at_neighbours` comes after it.

    Args:
        vectors: float32 (vocabulary, embedding width), zeros where nothing is known.
        frequencies: float64 (vocabulary,), the proportion of each piece among all.
    """
    weight = encoder.word_embeddings
    found = torch.from_numpy(vectors)
    # A vector is longer the more is known of its piece; halfway between that and one length for all.
    found = found / found.norm(dim=1, keepdim=True).clamp(min=1e-6).sqrt()
    known = found[found.any(1)]
    found = found * (encoder.config.initializer_range / known.std().clamp(min=1e-6)) if len(known) else found
    weight.mul_(RANDOM).add_(found).div_(math.sqrt(1 + RANDOM**2))
    head.dense.weight.copy_(torch.eye(*head.dense.weight.shape))
    head.bias.copy_((torch.from_numpy(frequencies) + LEAST).log())
