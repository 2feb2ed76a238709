"""Fast forms of inference and of attention; each registers itself under the name of its plain form.

Import this module where a model is opened or made; without it plain forms compute everything.
"""

from brimful.kernels import bfloat16, blockwise, inference_layer, rotation
from brimful.kernels.backends import BACKENDS
from brimful.model.fast_forms import FastForm, register

register("attention", FastForm(blockwise.attention))
register("rotate", FastForm(rotation.rotate))
register("gate", FastForm(bfloat16.gate, bfloat16.applies))
register("layer", FastForm(inference_layer.forward, inference_layer.applies))
# Backends of attention for `model.attention.backends`, in the order of preference.
register("backends", FastForm(BACKENDS.copy))
# The context of the forward passes of a run of inference, whose weights do not change meanwhile.
register("products", FastForm(inference_layer.products, inference_layer.computes))
