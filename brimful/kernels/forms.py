"""All fast forms by the names of their plain forms in model/, which try them in this order."""

from brimful.kernels import (
    bfloat16,
    bfloat16_layer,
    blockwise,
    compiled_layer,
    inference_layer,
    linear_cross_entropy,
    rotation,
)
from brimful.kernels.backends import BACKENDS
from brimful.model.fast_forms import FastForm

FORMS = {
    "attention": (FastForm(blockwise.attention),),
    "rotate": (FastForm(rotation.rotate_compiled, compiled_layer.applies), FastForm(rotation.rotate)),
    "gate": (FastForm(bfloat16.gate, bfloat16.applies),),
    "layer": (
        FastForm(inference_layer.forward, inference_layer.applies),
        FastForm(bfloat16_layer.forward, bfloat16_layer.applies),
        FastForm(compiled_layer.forward, compiled_layer.layer_applies),
    ),
    "linear_cross_entropy": (FastForm(linear_cross_entropy.sum_and_hits, linear_cross_entropy.applies),),
    # Backends of attention for `model.attention.backends`, in the order of preference.
    "backends": (FastForm(BACKENDS.copy),),
    # The context of the forward passes of a run of inference, whose weights do not change meanwhile.
    "products": (FastForm(inference_layer.products, inference_layer.computes),),
}
