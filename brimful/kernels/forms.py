"""All fast forms: each registers itself under the name of its plain twin. The first that applies computes.

Import this module where a model is opened, made or trained; without it every plain form computes.
"""

from functools import partial

from brimful.kernels import (
    bfloat16,
    bfloat16_layer,
    blockwise,
    fused,
    inference_layer,
    linear_cross_entropy,
    products,
    rotation,
)
from brimful.kernels.backends import BACKENDS
from brimful.kernels.inference_layer import LaidOut
from brimful.kernels.products import OneDnn
from brimful.model.door import FastForm, register


def _always(*given: object) -> bool:
    return True


register("attention", FastForm(blockwise.attention, _always))
register("rotate", FastForm(rotation.rotate, _always))
register("gate", FastForm(bfloat16.gate, bfloat16.applies))
register(
    "layer",
    FastForm(inference_layer.forward, inference_layer.applies),
    FastForm(bfloat16_layer.forward, bfloat16_layer.applies),
    FastForm(fused.forward, fused.layer_applies),
)
register(
    "linear_cross_entropy",
    FastForm(linear_cross_entropy.sum_and_hits, linear_cross_entropy.applies),
)
# Backends of attention for `model.attention.backends`, in the order of preference.
register("backends", FastForm(BACKENDS.copy, _always))

# Contexts of forward passes: of a run of inference, whose weights do not change meanwhile, ...
register(
    "products_of_run",
    FastForm(LaidOut, inference_layer.run_applies),
    FastForm(partial(LaidOut, copies=False), inference_layer.narrow_applies),
    FastForm(partial(LaidOut, integers=True), inference_layer.int8_applies),
    FastForm(OneDnn, products.run_applies),
    FastForm(partial(LaidOut, wide=True, copies=False), inference_layer.wide_applies),
)
# ... of a model that is served, ...
register(
    "products_of_service",
    FastForm(LaidOut, inference_layer.narrow_applies),
    FastForm(partial(LaidOut, integers=True), inference_layer.int8_applies),
    FastForm(partial(LaidOut, wide=True), inference_layer.served_copies_apply),
    FastForm(partial(LaidOut, wide=True, copies=False), inference_layer.served_applies),
)
# ... and of a frozen model while another one trains.
register("products_of_teacher", FastForm(partial(OneDnn, copying=False), products.teacher_applies))
