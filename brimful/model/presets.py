"""The published shapes by name."""

from typing import Any

from brimful.base.errors import require_known
from brimful.base.types import Values
from brimful.model.shape import Architecture, EncoderConfig

SHAPES = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}
"""Layers, hidden size and heads of Google's published BERT sizes (Turc et al. 2019; Devlin et al. 2018)."""
_ALTERNATING = {"global_every": 3, "local_attention": 128, "rope_theta": 160_000.0}
MODERN: dict[str, Values] = {
    "base": {"layers": 22, "intermediate_size": 1152, **_ALTERNATING},
    "large": {"layers": 28, "intermediate_size": 2624, **_ALTERNATING},
}
"""Where ModernBERT's two published sizes differ from `SHAPES` (Warner et al. 2024, table 4)."""


def preset(name: str, architecture: Architecture = "modern", **changes: Any) -> EncoderConfig:
    """Return a configuration by its public name: tiny, mini, small, base or large.

    modern is ModernBERT at base and large. The smaller sizes, in which ModernBERT was not published, have
    BERT's layers with global attention, and a feed-forward width of 2 * hidden, since the gate needs a third
    matrix. bert and prenorm have 4 * hidden. The initial weights of modern shrink with the square root of the
    width; at base their standard deviation is 0.02.

    Args:
        changes: fields of EncoderConfig. Feed-forward width and initial weights follow a `hidden_size`.

    Raises:
        BrimfulError: there is no such preset, or the shape is impossible.
    """
    require_known("model", name, SHAPES)
    layers, published_hidden, heads = SHAPES[name]
    hidden = changes.get("hidden_size", published_hidden)
    values = {
        "architecture": architecture,
        "layers": layers,
        "hidden_size": hidden,
        "heads": heads,
        "intermediate_size": 4 * hidden,
        "norm_eps": 1e-12,
        "initializer_range": 0.02,
    }
    if architecture == "modern":
        values |= {"intermediate_size": 2 * hidden, "norm_eps": 1e-5}
        values["initializer_range"] = 0.02 * (768 / max(hidden, 1)) ** 0.5  # a width below 1 is refused below
        values |= MODERN.get(name, {})
        if hidden != published_hidden:  # to which the published feed-forward width belongs
            values["intermediate_size"] = 2 * hidden
    return EncoderConfig(**(values | changes))
