"""What a student imitates of its teacher's layers."""

from dataclasses import dataclass
from typing import Literal

from brimful.base.errors import BrimfulError, require_range
from brimful.base.types import Numbers
from brimful.model.shape import EncoderConfig

LayerNumbers = tuple[int, ...]
"""Layers of an encoder, from 0."""


@dataclass(frozen=True, kw_only=True)
class LayerLosses:
    """What the student imitates of the teacher's layers: the weight of each mean; 0 leaves it out."""

    embedding: float = 1.0
    """Squared difference of the embeddings, over tokens and dimensions (TinyBERT)."""
    hidden: float = 1.0
    """The same of each layer's output (TinyBERT)."""
    attention: float = 1.0
    """Squared difference of attention scores before the softmax, over pairs of tokens, heads (TinyBERT)."""
    layer_map: Literal["uniform", "last"] | LayerNumbers = "uniform"
    """The teacher's layer that each layer of the student imitates. uniform: evenly spread, the last included;
    last: the last ones; or their numbers, from 0."""

    def __post_init__(self) -> None:
        require_range(self, "at least 0", "embedding", "hidden", "attention", group="the weight of ")

    @property
    def coefficients(self) -> Numbers:
        """The weights of the terms that are not left out."""
        weights = {"embedding": self.embedding, "hidden": self.hidden, "attention": self.attention}
        return {name: weight for name, weight in weights.items() if weight}

    def map_layers(self, student: EncoderConfig, teacher: EncoderConfig) -> LayerNumbers:
        """Choose the teacher's layer for each layer of the student.

        Raises:
            BrimfulError: the map does not fit these models.
        """
        ours, theirs = student.layers, teacher.layers
        if isinstance(self.layer_map, tuple):
            if len(self.layer_map) != ours or not all(0 <= layer < theirs for layer in self.layer_map):
                raise BrimfulError(
                    f"layer_map is {list(self.layer_map)}: it must have a layer, from 0 to {theirs - 1}, for"
                    f" each of the student's {ours}"
                )
            return self.layer_map
        if ours > theirs:
            raise BrimfulError(f"the student has {ours} layers and the teacher {theirs}: give layer_map")
        if self.layer_map == "last":
            return tuple(range(theirs - ours, theirs))
        return spread_layers(theirs, ours)


def spread_layers(layers: int, count: int) -> LayerNumbers:
    """Choose `count` of `layers`, as evenly as can be, the last included.

    Where `count` divides `layers`, they are every g-th (Jiao et al. 2020, "TinyBERT", section 3.1: g(m)).
    """
    return tuple(-(-layers * (index + 1) // count) - 1 for index in range(count))
