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
        output_tokens: tokens for which the last layer goes on after attention; None: all.
        attention: STORED, the minimum, or RECOMPUTED.
        windowed: whether local layers skip pairs outside their window.
    """

    lengths: tuple[int, ...]
    predictions: int
    attention: int = STORED
    windowed: bool = True
    output_tokens: int | None = None

    def pairs(self, window: int | None) -> int:
        """Pairs of tokens that a layer's attention scores."""
        if window is None or not self.windowed:
            return sum(length**2 for length in self.lengths)
        return sum(_near(length, window // 2) for length in self.lengths)


def _near(length: int, reach: int) -> int:
    """Pairs of tokens at most `reach` apart."""
    return length**2 if length <= reach else length * (2 * reach + 1) - reach * (reach + 1)


def matrix_entries(config: "EncoderConfig") -> tuple[int, int]:
    """Entries of the matrices of the layers, for each token, and of the MLM head, for each prediction."""
    hidden = config.hidden_size
    layers = config.layers * (3 * hidden**2 + entries_after_attention(config))
    width = config.embedding_width
    projection = 0 if config.embedding_size is None else width * hidden
    return layers + projection, hidden * width + config.vocabulary_size * width


def entries_after_attention(config: "EncoderConfig") -> int:
    """Entries of a layer's matrices that are applied after its attention."""
    hidden = config.hidden_size
    return hidden**2 + (3 if config.gated else 2) * hidden * config.intermediate_size


def step_flops(config: "EncoderConfig", shape: Shape) -> int:
    """Flops of forward and backward."""
    layers, head = matrix_entries(config)
    windows = [None if config.is_global(i) else config.local_attention for i in range(config.layers)]
    pairs = sum(windows.count(window) * shape.pairs(window) for window in set(windows))
    tokens = sum(shape.lengths)
    dropped = 0 if shape.output_tokens is None else tokens - shape.output_tokens
    return (
        6 * (layers * tokens - entries_after_attention(config) * dropped + head * shape.predictions)
        + shape.attention * pairs * config.hidden_size
    )
