"""All fast forms, by the name that `model.door.choose` is asked for. The first that applies computes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

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

__all__ = ["BACKENDS", "FORMS", "FastForm"]


@dataclass(frozen=True)
class FastForm:
    """A fast form.

    Attributes:
        run: takes and gives what the plain form does.
        applies: whether it computes what is given, from all of its arguments or the first ones.
    """

    run: Callable[..., Any]
    applies: Callable[..., bool]


def _always(*given: Any) -> bool:
    return True


FORMS: dict[str, tuple[FastForm, ...]] = {
    "attention": (FastForm(blockwise.attention, _always),),
    "rotate": (FastForm(rotation.rotate, _always),),
    "gate": (FastForm(bfloat16.gate, bfloat16.applies),),
    "layer": (
        FastForm(inference_layer.forward, inference_layer.applies),
        FastForm(bfloat16_layer.forward, bfloat16_layer.applies),
        FastForm(fused.forward, fused.layer_applies),
    ),
    "linear_cross_entropy": (FastForm(linear_cross_entropy.sum_and_hits, linear_cross_entropy.applies),),
    "products_of_run": (
        FastForm(inference_layer.LaidOut, inference_layer.run_applies),
        FastForm(partial(inference_layer.LaidOut, copies=False), inference_layer.narrow_applies),
        FastForm(partial(inference_layer.LaidOut, integers=True), inference_layer.int8_applies),
        FastForm(products.OneDnn, products.run_applies),
        FastForm(partial(inference_layer.LaidOut, wide=True, copies=False), inference_layer.wide_applies),
    ),
    "products_of_service": (
        FastForm(inference_layer.LaidOut, inference_layer.narrow_applies),
        FastForm(partial(inference_layer.LaidOut, integers=True), inference_layer.int8_applies),
        FastForm(partial(inference_layer.LaidOut, wide=True), inference_layer.served_copies_apply),
        FastForm(partial(inference_layer.LaidOut, wide=True, copies=False), inference_layer.served_applies),
    ),
    "products_of_teacher": (FastForm(partial(products.OneDnn, copying=False), products.teacher_applies),),
}
"""`products_of_...` are contexts of forward passes: of a run of inference, whose weights do not change
meanwhile, of a model that is served, and of a frozen model while another one trains."""
