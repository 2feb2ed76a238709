"""The shapes of the steps that are compared; brimful/model/flops.py counts their flops."""

from collections.abc import Iterable

from brimful.model.flops import RECOMPUTED, STORED, Shape


def packed_shape(lengths: Iterable[int], predictions: int, attention: int = RECOMPUTED) -> Shape:
    """Each sequence takes its own length. The last layer finishes masked tokens only, which the decoder
    scores."""
    return Shape(tuple(lengths), predictions, attention, windowed=True, output_tokens=predictions or None)


def padded_shape(batch: int, width: int, predictions: int | None = None) -> Shape:
    """Each sequence takes `width`, and the decoder scores every slot, or `predictions` of them.

    SDPA with a mask computes what the mask hides.
    """
    return Shape(
        (width,) * batch, batch * width if predictions is None else predictions, STORED, windowed=False
    )
