"""The shape of a student, and the layers of its teacher that it starts from."""

from dataclasses import replace

from brimful.base.errors import BrimfulError
from brimful.distillation.options import LayeredOptions
from brimful.model.encoder import Encoder
from brimful.model.shape import EncoderConfig
from brimful.objectives.layer_losses import spread_layers
from brimful.start.narrowing import narrow


def kept_layers(config: LayeredOptions, shape: EncoderConfig) -> tuple[int, ...] | None:
    """The layers of the teacher that the student starts from, as wide as they are or narrower; None where it
    starts from random weights.

    Raises:
        BrimfulError: the teacher has no such layers, or not as many.
    """
    kept = config.keep_layers
    if kept is not None and not (kept and all(0 <= layer < shape.layers for layer in kept)):
        raise BrimfulError(f"keep_layers is {list(kept)}: the teacher has layers 0 to {shape.layers - 1}")
    if config.initialisation == "random" or (config.student_hidden or 0) > shape.hidden_size:
        if kept is not None:
            raise BrimfulError(
                "a student that is wider than its teacher, or has --initialisation random, starts from no"
                " layers: give --student-layers in place of --keep-layers"
            )
        return None
    if config.depth > shape.layers:
        raise BrimfulError(f"student_layers is {config.depth}: the teacher has {shape.layers} layers")
    return kept or spread_layers(shape.layers, config.depth)


def student_shape(config: LayeredOptions, shape: EncoderConfig) -> EncoderConfig:
    """The shape of a student: the teacher's, with its own depth and width."""
    width = config.student_hidden or shape.hidden_size
    inner = -(-shape.intermediate_size * width // shape.hidden_size // 64) * 64
    if width < shape.hidden_size:
        inner = min(inner, shape.intermediate_size)  # its neurons are the teacher's
    return replace(
        shape,
        layers=config.depth,
        hidden_size=width,
        intermediate_size=inner,
        dropout=0.0,
        attention_dropout=0.0,
    )


def layers_of(config: LayeredOptions, encoder: Encoder, layers: tuple[int, ...]) -> Encoder:
    """Copies of layers of an encoder, narrower if the student is.

    Raises:
        BrimfulError: the width does not fit the heads.
    """
    kept = encoder.keep_layers(layers)
    shape = student_shape(config, encoder.config)
    return kept if shape.hidden_size == encoder.config.hidden_size else narrow(kept, shape)
