"""The layer of modern in bfloat16 on a CPU, against float64 and against autograd's form of it."""

import copy

import pytest
import torch
from torch import Tensor, nn

from brimful.kernels import bfloat16, bfloat16_layer
from brimful.model import fast_forms
from brimful.model.attention import SequenceLayout
from brimful.model.encoder import Capture, Encoder
from builders.encoders import random_row, small

ROUNDING = 2.0**-8
"""The largest relative error of a rounding to bfloat16, with a margin of two."""

LENGTHS = [40, 7, 1, 120, 33]


def modern(**changes) -> Encoder:
    encoder = small("modern", **{"layers": 3, "global_every": 1} | changes)
    with torch.no_grad():
        for module in encoder.modules():
            if isinstance(module, nn.LayerNorm):
                nn.init.normal_(module.weight, 1.0, 0.3)
            if isinstance(module, nn.Linear):  # so that each part of the layer makes a difference
                nn.init.normal_(module.weight, 0.0, module.in_features**-0.5)
    return encoder


def inputs(encoder: Encoder, lengths=LENGTHS) -> tuple[Tensor, SequenceLayout, tuple[Tensor, Tensor], Tensor]:
    """Hidden states, layout, rotation, and slots that are kept, one of them twice."""
    batch = random_row(lengths)
    layout = encoder.prepare(batch)
    assert isinstance(layout, SequenceLayout)
    x = torch.randn(sum(lengths), encoder.config.hidden_size)
    kept = torch.randint(len(x), (30,))
    kept[-1] = kept[0]
    return x, layout, encoder.rotary(batch.positions), kept


def run(layer: nn.Module, x: Tensor, *arguments, precision: str) -> list[Tensor]:
    """The output, and the gradients of the input and of the weights, in float64."""
    layer, x = copy.deepcopy(layer), x.clone()
    if precision == "fp64":
        layer, x = layer.double(), x.double()
        layout, rotation, *others = arguments
        arguments = layout, tuple(table.double() for table in rotation), *others
    x.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        out = layer(x, *arguments)
    aim = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    found = torch.autograd.grad(out, [x, *layer.parameters()], aim.to(out.dtype))
    return [tensor.detach().double() for tensor in (out, *found)]


def error(found: list[Tensor], exact: list[Tensor]) -> list[float]:
    """The norm of each error, relative to the norm of what is exact."""
    return [float((a - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True)]


LOCAL = {"global_every": 3, "local_attention": 16}


@pytest.mark.parametrize("keeps", [False, True], ids=["all", "kept"])
@pytest.mark.parametrize(
    ("index", "changes"), [(0, {}), (1, {}), (1, LOCAL)], ids=["first", "second", "local"]
)
def test_it_is_as_exact_as_autograd(index, changes, keeps, monkeypatch):
    """bfloat16 has errors of 2 ** -9 in each product; this form must not have larger ones."""
    encoder = modern(**changes)
    layer = encoder.layers[index]
    x, layout, rotation, kept = inputs(encoder)
    arguments = layout, rotation, None, kept if keeps else None
    exact = run(layer, x, *arguments, precision="fp64")
    found = run(layer, x, *arguments, precision="bf16")
    monkeypatch.setitem(fast_forms.FORMS, "layer", ())
    plain = run(layer, x, *arguments, precision="bf16")
    assert not all(torch.equal(a, b) for a, b in zip(found, plain, strict=True))
    for ours, theirs in zip(error(found, exact), error(plain, exact), strict=True):
        assert ours < 1.2 * theirs + 1e-6
        assert ours < 0.02


def test_an_encoder_uses_it(monkeypatch):
    calls = []
    apply = bfloat16_layer._Layer.apply
    monkeypatch.setattr(bfloat16_layer._Layer, "apply", lambda *given: calls.append(given) or apply(*given))
    encoder, batch = modern(), random_row(LENGTHS)
    encoder(batch)
    assert not calls
    with torch.autocast("cpu", torch.bfloat16):
        encoder(batch).sum().backward()
        assert len(calls) == 3
        encoder(batch, capture=Capture())
        small("bert")(batch)
        small("prenorm")(batch)
        modern(dropout=0.1).train()(batch)
        assert len(calls) == 3
        with torch.inference_mode():
            modern(dropout=0.1).eval()(batch)
        assert len(calls) == 6


def test_recomputed_layers_have_the_same_bits():
    encoder, batch = modern().train(), random_row(LENGTHS)
    gradients = []
    for recomputes in (False, True):
        encoder.recomputes = recomputes
        with torch.autocast("cpu", torch.bfloat16):
            encoder(batch).square().sum().backward()
        gradients.append([parameter.grad for parameter in encoder.parameters()])
        encoder.zero_grad()
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("shape", [(0, 8), (1, 1), (5, 48), (70, 256)])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
def test_norms(shape, size):
    x, added = torch.randn(shape) * size, (torch.randn(shape) * size).to(torch.bfloat16)
    weight = torch.randn(shape[1])
    total, y, statistics = bfloat16.add_and_normalize(x, added, weight, None, 1e-5)
    assert torch.equal(total, x + added.float())
    assert torch.equal(total, bfloat16.add(x, added))
    again, same = bfloat16.normalize(total, weight, None, 1e-5)
    assert torch.equal(y, again)
    assert torch.equal(statistics, same)

    exact, exact_weight = total.double().requires_grad_(), weight.double().requires_grad_()
    expected = torch.nn.functional.layer_norm(exact, shape[1:], exact_weight, None, 1e-5)
    torch.testing.assert_close(y.double(), expected, rtol=ROUNDING, atol=1e-4)
    d_y, d_x = torch.randn(shape).to(torch.bfloat16), torch.randn(shape)
    expected.backward(d_y.double())
    whole, out, d_weight = bfloat16_layer.norm_gradients(total, statistics, weight, d_y, d_x)
    assert torch.equal(out, y)
    # Sums of 256 float32 numbers, whose cancellation leaves errors of the numbers' size times 2 ** -24 * 256.
    atol = 1e-4 * float(1 + exact.grad.abs().max()) if len(total) else 0.0
    torch.testing.assert_close(whole.double(), exact.grad + d_x, rtol=1e-5, atol=atol)
    torch.testing.assert_close(d_weight.double(), exact_weight.grad, rtol=1e-4, atol=1e-3)
