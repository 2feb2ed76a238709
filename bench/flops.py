"""Floating-point operations of a training step, counted from its shape.

A matrix of n entries costs 2 n flops a token in forward and 4 n in backward. Embeddings are looked up, and
norms and activations cost next to nothing: neither is counted. Attention over a sequence of l tokens makes 2
products of 2 * l^2 * hidden flops in forward and 4 in backward, so 12 * l^2 * hidden; 14 where backward
computes the scores again instead of having kept them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from brimful.nn.layers import EncoderConfig

STORED, RECOMPUTED = 12, 14  # flops of attention for each pair of tokens and unit of width


@dataclass(frozen=True)
class Shape:
    """What a step computes.

    Attributes:
        slots: tokens that go through the layers, padding included.
        predictions: tokens that the decoder scores.
        pairs: pairs of tokens that attention scores: the sum of squared lengths, padding included.
        attention: STORED or RECOMPUTED.
    """

    slots: int
    predictions: int
    pairs: int
    attention: int

    def __add__(self, other: "Shape") -> "Shape":
        return Shape(
            self.slots + other.slots,
            self.predictions + other.predictions,
            self.pairs + other.pairs,
            self.attention,
        )


def packed_shape(lengths: Iterable[int], predictions: int, attention: int = RECOMPUTED) -> Shape:
    """Each sequence takes its own length, and the decoder scores masked tokens only."""
    lengths = list(lengths)
    return Shape(sum(lengths), predictions, sum(length**2 for length in lengths), attention)


def padded_shape(batch: int, width: int, predictions: int | None = None) -> Shape:
    """Each sequence takes `width`, and the decoder scores every slot, or `predictions` of them."""
    slots = batch * width
    return Shape(slots, slots if predictions is None else predictions, slots * width, STORED)


def matrix_entries(config: EncoderConfig) -> tuple[int, int]:
    """Entries of the matrices that each token meets in the layers, and each prediction in the MLM head."""
    hidden = config.hidden_size
    feed_forward = (3 if config.gated else 2) * hidden * config.intermediate_size
    layers = config.layers * (4 * hidden**2 + feed_forward)
    return layers, hidden**2 + config.vocabulary_size * hidden


def step_flops(config: EncoderConfig, shape: Shape) -> int:
    """Flops of forward and backward; every layer's attention is global (as in all presets)."""
    layers, head = matrix_entries(config)
    attention = shape.attention * shape.pairs * config.hidden_size * config.layers
    return 6 * (layers * shape.slots + head * shape.predictions) + attention
