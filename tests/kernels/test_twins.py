"""Every fast form gives the numbers of its plain twin; each has a case here, or where `ELSEWHERE` says.

Outputs and gradients of both are compared with the plain form in float64: the errors of the fast form are at
most 1.5 times those of the plain form in the same precision, and two roundings.
"""

import runpy
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from brimful.base.errors import BrimfulError
from brimful.kernels.backends import BACKENDS
from brimful.kernels.inference_layer import lays_out_bf16
from brimful.model import fast_forms
from brimful.model.attention import SequenceLayout
from brimful.model.fast_forms import find_fast_form, open_fast_context, use_plain_forms
from builders.encoders import random_row, small

LENGTHS = [40, 7, 1, 90, 33]
T = sum(LENGTHS)


@dataclass
class Case:
    """A computation.

    Attributes:
        compute: the inputs -> outputs.
        inputs: float32; outputs are differentiated by them.
    """

    compute: Callable[..., Any]
    inputs: list[Tensor]
    autocast: bool = False


def _gate() -> Case:
    layer = small("modern").layers[0]
    return Case(layer.activate, [torch.randn(T, 96)])


def _inference_layer(model: str, tokens: int = 1 << 20, precision: str = "bf16") -> Case:
    """The second layer of an encoder in a run of inference."""
    encoder = small(model, layers=2).eval()
    layer, batch = encoder.layers[1], random_row([*LENGTHS, 21])  # a multiple of 32
    layout = SequenceLayout.prepare(batch)
    angles = encoder.rotary and encoder.rotary(batch.positions)

    def compute(x: Tensor) -> Tensor:
        own = layer.to(x.dtype)
        turned = angles and tuple(table.to(x.dtype) for table in angles)
        with torch.no_grad(), open_fast_context("products", x.device, tokens, precision):
            return own(x, layout, turned, None, None)

    return Case(compute, [torch.randn(len(batch.tokens), encoder.config.hidden_size)], autocast=True)


CASES: dict[tuple[str, int], list[Callable[[], Case]]] = {
    ("gate", 0): [_gate],
    ("layer", 0): [partial(_inference_layer, model) for model in ("bert", "prenorm", "modern")],
    ("products", 0): [
        partial(_inference_layer, "bert"),
        partial(_inference_layer, "bert", tokens=1),
        partial(_inference_layer, "modern", precision="fp32"),
    ],
}
"""By the name of a form and its place among those of the name."""

ELSEWHERE = {
    ("attention", 0): "tests/model/test_attention.py",
    ("rotate", 0): "in place, in a compiled step on a GPU: tests/kernels/test_compiled_layer.py, tests/gpu",
    ("rotate", 1): "tests/model/test_layers.py",
    ("layer", 1): "tests/kernels/test_bfloat16_layer.py",
    ("linear_cross_entropy", 0): "tests/kernels/test_linear_cross_entropy.py",
    ("layer", 2): "a compiled step on a GPU: tests/kernels/test_compiled_layer.py, tests/gpu",
    ("varlen", 0): "a backend of attention for GPUs: tests/model/test_attention.py, tests/gpu",
    ("flex", 0): "another: tests/model/test_attention.py, tests/gpu",
}
IN_16_BITS = (("gate", 0), ("layer", 0))
"""Forms that apply to bfloat16 alone."""
LAID_OUT = (("layer", 0), ("products", 0))
"""Forms that need oneDNN's products of bfloat16."""


def run(case: Case, dtype: torch.dtype) -> list[Tensor]:
    """Outputs and gradients in float64; with `autocast`, in its precision."""
    casts = dtype == torch.bfloat16 and case.autocast
    inputs = [tensor.to(torch.float32 if casts else dtype).clone().requires_grad_() for tensor in case.inputs]
    with torch.autocast("cpu", torch.bfloat16) if casts else nullcontext():
        found = case.compute(*inputs)
    outputs = list(found) if isinstance(found, tuple) else [found]
    generator = torch.Generator().manual_seed(1)
    aims = [torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype) for out in outputs]
    gradients: tuple[Tensor, ...] = ()
    if outputs[0].requires_grad:
        gradients = torch.autograd.grad(outputs, inputs, aims)
    return [tensor.detach().double() for tensor in (*outputs, *gradients)]


def test_every_form_has_a_case():
    fast_forms.load_forms()
    known = {(name, place) for name, several in fast_forms.FORMS.items() for place in range(len(several))}
    known.remove(("backends", 0))
    known |= {(name, 0) for name in BACKENDS}
    assert known == CASES.keys() | ELSEWHERE.keys()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    ("form", "number"), [(k, n) for k, cases in CASES.items() for n in range(len(cases))]
)
def test_a_fast_form_gives_the_numbers_of_its_plain_twin(form, number, dtype, seed, monkeypatch):
    if form in LAID_OUT and not lays_out_bf16():
        pytest.skip("oneDNN has no bfloat16 for this processor")
    torch.manual_seed(seed)
    monkeypatch.setattr("brimful.kernels.inference_layer.onednn_is_faster", lambda: True)
    case = CASES[form][number]()
    with use_plain_forms():
        assert find_fast_form(form[0]) is None
        exact, plain = run(case, torch.float64), run(case, dtype)
    calls = []
    several = list(fast_forms.FORMS[form[0]])
    whole = several[form[1]]
    several[form[1]] = replace(whole, run=lambda *given: calls.append(form) or whole.run(*given))
    monkeypatch.setitem(fast_forms.FORMS, form[0], tuple(several))
    fast = run(case, dtype)
    assert bool(calls) is (dtype == torch.bfloat16 or form not in IN_16_BITS)
    eps = torch.finfo(dtype).eps
    for ours, theirs, right in zip(fast, plain, exact, strict=True):
        assert ours.shape == right.shape
        scale = float(right.norm()) + 1e-30
        assert float((ours - right).norm()) <= 1.5 * float((theirs - right).norm()) + 2 * eps * scale


def test_the_switch_is_on_or_off(monkeypatch):
    monkeypatch.setenv(fast_forms.SWITCH, "off")
    assert runpy.run_path(fast_forms.__file__)["_is_disabled"]
    monkeypatch.setenv(fast_forms.SWITCH, "0")
    with pytest.raises(BrimfulError, match=fast_forms.SWITCH):
        fast_forms.load_forms()
