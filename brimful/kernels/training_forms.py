"""Fast forms of training, beside those of inference (forms.py): for where a model is made or trained."""

import brimful.kernels.inference_forms  # noqa: F401  (whose forms come first)
from brimful.kernels import bfloat16_layer, compiled_layer, linear_cross_entropy
from brimful.model.fast_forms import FORMS, FastForm, register

register("rotate", FastForm(compiled_layer.rotate, compiled_layer.applies), *FORMS["rotate"])
register(
    "layer",
    *FORMS["layer"],
    FastForm(bfloat16_layer.forward, bfloat16_layer.applies),
    FastForm(compiled_layer.forward, compiled_layer.layer_applies),
)
register(
    "linear_cross_entropy",
    FastForm(linear_cross_entropy.sum_and_hits, linear_cross_entropy.applies),
)
