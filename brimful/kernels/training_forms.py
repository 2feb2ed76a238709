"""Fast forms of training, beside those of inference (forms.py): for where a model is made or trained."""

import brimful.kernels.forms  # noqa: F401  (whose forms come first)
from brimful.kernels import bfloat16_layer, fused, linear_cross_entropy
from brimful.model.door import FORMS, FastForm, register

register("rotate", FastForm(fused.rotate, fused.applies), *FORMS["rotate"])
register(
    "layer",
    *FORMS["layer"],
    FastForm(bfloat16_layer.forward, bfloat16_layer.applies),
    FastForm(fused.forward, fused.layer_applies),
)
register(
    "linear_cross_entropy",
    FastForm(linear_cross_entropy.sum_and_hits, linear_cross_entropy.applies),
)
