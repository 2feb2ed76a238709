"""Fast forms: each registers itself under the name of its plain twin. The first that applies computes.

Import this module where a model is opened, and `training_forms` where one is made or trained; without them
every plain form computes.
"""

from brimful.kernels import (
    bfloat16,
    bfloat16_layer,
    blockwise,
    fused,
    inference_layer,
    rotation,
)
from brimful.kernels.backends import BACKENDS
from brimful.model.door import FastForm, register

register("attention", FastForm(blockwise.attention))
register("rotate", FastForm(rotation.rotate))
register("gate", FastForm(bfloat16.gate, bfloat16.applies))
register(
    "layer",
    FastForm(inference_layer.forward, inference_layer.applies),
    FastForm(bfloat16_layer.forward, bfloat16_layer.applies),
    FastForm(fused.forward, fused.layer_applies),
)
# Backends of attention for `model.attention.backends`, in the order of preference.
register("backends", FastForm(BACKENDS.copy))
# The context of the forward passes of a run of inference, whose weights do not change meanwhile.
register("products", FastForm(inference_layer.products, inference_layer.computes))
