"""Initial weights with which a masked-language model begins as a model of counts, not of noise.

With random queries and keys, attention begins as a mean over the sequence, and the loss stays near the
entropy of the tokens until heads have found the tokens beside a gap. With random embeddings it then takes
many updates until pieces with the same neighbours are alike. Here both are set before the first update:

- `look_at_neighbours`: heads of the first layers look at the tokens beside a gap.
- `start_from_neighbourhoods`: pieces have the vectors of their neighbourhoods (neighbourhoods.py), the head
  passes hidden states on as they are, and its biases are the logarithms of the pieces' frequencies.

The score of constant queries and keys depends only on their distance once they are rotated (Su et al. 2021,
"RoFormer", section 3.4.2). So all embeddings get a common part. A head makes constants of it in the pairs of
its queries and keys that turn fast enough to tell neighbours apart:

    score(m, n) = gain * sum over pairs of cos(angle * (n - m - offset)) / sqrt(head_dim)

which is highest at n = m + offset. The other pairs are random, as are all values. The common part adds the
same number to all scores of the masked-LM head, so it changes no prediction.

Zheng et al. (2024, "Structured Initialization for Attention in Vision Transformers") begin the attention of
image models as convolutions, for the same reason. bench/results/speedrun.md has the gain of each part.
"""

import math

import torch
from numpy import ndarray

from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead
from brimful.model.layer import Layer

OFFSETS = (-1, 1, -2, 2)
"""The relative places of the tokens that the first heads of a layer look at."""
MAX_LAYERS = 3
"""The most layers that have such heads, from the first one on."""
MIN_ANGLE = 1 / 8
"""The least angle of a pair, in radians a token."""
SCORE_MARGIN = 4.0
"""How far the score of the token that a head looks at is above those beside it: 55 times the probability."""
RANDOM_SHARE = 0.5
"""The factor of the random embeddings that vectors are added to: pieces with equal vectors still differ."""
FREQUENCY_FLOOR = 1e-7
"""Added to all frequencies, so that pieces which do not occur have finite scores."""


@torch.no_grad()
def look_at_neighbours(encoder: Encoder) -> None:
    """Change the weights of a new encoder with rotary positions, so that heads look at neighbours."""
    config = encoder.config
    width, half = config.hidden_size, config.head_dim // 2
    # The mean of the common part is 0, so that LayerNorm leaves it in place.
    common = torch.tensor([1.0, -1.0]).repeat(-(-width // 2))[:width]  # (width,)
    encoder.embedding.weight[: config.vocabulary_size] += config.initializer_range * common
    # The common and the random part are equally long. LayerNorm makes their sum sqrt(width) long.
    reader = common / common.norm() / math.sqrt(width / 2)
    # The last of several layers sees the whole sequence.
    looking_layers = max(1, min(MAX_LAYERS, config.layers - 1))
    for index, layer in enumerate(encoder.layers[:looking_layers]):
        assert isinstance(layer, Layer)
        theta = config.rope_theta_local if config.window(index) else config.rope_theta
        angles = theta ** (-torch.arange(half) / half)
        angles = angles[angles >= MIN_ANGLE]
        # One token further, the sum of cosines is smaller by sum(1 - cos): this must make SCORE_MARGIN.
        size = math.sqrt(SCORE_MARGIN * math.sqrt(config.head_dim) / float((1 - angles.cos()).sum()))
        # (heads, 2, half, width): the rotation turns row i of one half against row i of the other.
        queries, keys, _ = layer.qkv.weight.view(3, config.heads, 2, half, width)
        pairs = slice(len(angles))
        for head, offset in zip(range(config.heads), OFFSETS, strict=False):
            queries[head, 0, pairs] = size * reader
            queries[head, 1, pairs] = 0
            keys[head, 0, pairs] = (size * (angles * offset).cos())[:, None] * reader
            keys[head, 1, pairs] = (-size * (angles * offset).sin())[:, None] * reader


@torch.no_grad()
def start_from_neighbourhoods(
    encoder: Encoder, head: MaskedLMHead, vectors: ndarray, frequencies: ndarray
) -> None:
    """Change the embeddings of a new encoder, and its head. Call it before `look_at_neighbours`.

    Args:
        vectors: float32 (vocabulary, embedding width), zeros for pieces that do not occur.
        frequencies: float64 (vocabulary,), the proportion of each piece among all.
    """
    rows = torch.from_numpy(vectors)
    # A vector is longer the more often its piece occurs. Division by the root of its length lessens this.
    rows = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-6).sqrt()
    occurring = rows[rows.any(1)]
    if len(occurring):
        rows = rows * (encoder.config.initializer_range / occurring.std().clamp(min=1e-6))
    # The division undoes the larger variance of a sum of two independent parts.
    encoder.word_embeddings.mul_(RANDOM_SHARE).add_(rows).div_(math.sqrt(1 + RANDOM_SHARE**2))
    # The dense layer of the head passes hidden states on.
    head.dense.weight.copy_(torch.eye(*head.dense.weight.shape))
    head.bias.copy_((torch.from_numpy(frequencies) + FREQUENCY_FLOOR).log())
