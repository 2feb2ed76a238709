"""Fast forms for training, in addition to those for inference, for code that makes or trains a model."""

import brimful.kernels.inference_forms  # noqa: F401  (whose forms come first)
from brimful.kernels import bfloat16_layer, compiled_layer, rotation
from brimful.model.fast_forms import FORMS, FastForm, register

register("rotate", FastForm(rotation.rotate_compiled, compiled_layer.applies), *FORMS["rotate"])
register(
    "layer",
    *FORMS["layer"],
    FastForm(bfloat16_layer.forward, bfloat16_layer.applies),
    FastForm(compiled_layer.forward, compiled_layer.layer_applies),
)
