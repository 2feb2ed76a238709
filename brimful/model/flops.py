"""Floating-point operations of a training step, counted from its shape.

A matrix of n entries costs 2 n flops per token in forward and 4 n in backward. After its attention the last
layer may compute only some tokens (`Encoder.forward`, `output_slots`). Embeddings, norms and activations cost
next to nothing and are not counted. Attention over a sequence of l tokens has 2 products of 2 * l^2 * hidden
flops in forward and 4 in backward, so 12 * l^2 * hidden; 14 where backward computes the scores again.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from brimful.model.shape import EncoderConfig

STORED, RECOMPUTED = 12, 14  # flops of attention per pair of tokens and unit of width


@dataclass(frozen=True)
class Shape:
    """The sizes of a step.

    Attributes:
        lengths: tokens of each sequence that goes through the layers, padding included.
        predictions: tokens that the decoder scores.
        attention: STORED, the minimum, or RECOMPUTED.
        windowed: whether local layers skip pairs outside their window.
        output_tokens: tokens that the last layer computes after its attention; None: all.
    """

    lengths: tuple[int, ...]
    predictions: int
    attention: int = STORED
    windowed: bool = True
    output_tokens: int | None = None

    def count_pairs(self, window: int | None) -> int:
        """Return the number of pairs of tokens that a layer's attention scores."""
        if window is None or not self.windowed:
            return sum(length**2 for length in self.lengths)
        reach = window // 2
        pairs = 0
        for length in self.lengths:
            if length <= reach:
                pairs += length**2
            else:  # a band of 2 * reach + 1 diagonals, without the corners that it would have outside
                pairs += length * (2 * reach + 1) - reach * (reach + 1)
        return pairs


def count_step_flops(config: "EncoderConfig", shape: Shape) -> int:
    """Return the flops of forward and backward."""
    hidden, width = config.hidden_size, config.embedding_width
    # Entries of the matrices of a layer after its attention, of all that a token uses, and of the head.
    after_attention = hidden**2 + (3 if config.gated else 2) * hidden * config.intermediate_size
    layers = config.layers * (3 * hidden**2 + after_attention)
    if config.embedding_size is not None:
        layers += width * hidden  # the projection of narrow embeddings
    head = hidden * width + config.vocabulary_size * width
    pairs = sum(shape.count_pairs(config.window(layer)) for layer in range(config.layers))
    tokens = sum(shape.lengths)
    products = layers * tokens + head * shape.predictions
    if shape.output_tokens is not None:
        products -= after_attention * (tokens - shape.output_tokens)
    return 6 * products + shape.attention * pairs * hidden
