"""Linear layers in fp8, emulated; tests/gpu/test_gpu_fp8.py has the tensor cores."""

import copy
from typing import NamedTuple

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.nn import functional as F

from bench.ideas import packed_loss
from bench.workload import make_sequences, packed
from brimful.errors import BrimfulError
from brimful.nn.encoder import Encoder, preset
from brimful.nn.heads import MaskedLMHead
from brimful.precision import fp8, fp8_linear_layers, linear_fp8, supports_fp8
from brimful.precision.fp8 import BACKWARD, FORWARD, product, to_fp8

pytestmark = [
    # What torch.compile warns of is its own code.
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Function.* should not be instantiated:DeprecationWarning"),
]

CPU = torch.device("cpu")


class Format(NamedTuple):
    """Of Micikevicius et al. 2022, table 1."""

    bits: int  # of the fraction
    lowest: int  # exponent of the smallest normal number
    limit: float


E4M3, E5M2 = Format(3, -6, 448.0), Format(2, -14, 57344.0)
FORMATS = {FORWARD: E4M3, BACKWARD: E5M2}


@pytest.fixture(autouse=True)
def _clean(seed):
    torch.manual_seed(seed)
    torch._dynamo.reset()


def unit_of(x, form):
    """The power of two that brings the largest entry into the upper half of the format."""
    largest = float(x.detach().double().abs().max())
    _, exponent = torch.frexp(torch.tensor(form.limit / largest, dtype=torch.float64))
    return 2.0 ** -(int(exponent) - 1)


def rounded(x, form):
    """To the nearest that the format can hold of it, in float64."""
    unit = unit_of(x, form)
    value = x.detach().double() / unit
    _, exponent = torch.frexp(value)
    step = torch.exp2((exponent - 1).clamp(min=form.lowest).double() - form.bits)
    return torch.round(value / step) * step * unit


def wide(*shape):
    """Entries of very different sizes, so that some are subnormal and some become 0."""
    return torch.randn(*shape) * torch.exp2(torch.randint(-36, 1, shape).float())


def bound_of_sums(left, right):
    """Of an (M, K) and a (K, N) product added up in float32, in any order; the terms are exact."""
    return (left.shape[1] + 4) * 2.0**-24 * (left.abs() @ right.abs())


def close(found, expected, bound):
    """Within the bound and half a last place of the dtype of what was found."""
    bound = bound + torch.finfo(found.dtype).eps / 2 * expected.abs()
    assert ((found.double() - expected).abs() <= bound).all()


# Rounding


@pytest.mark.parametrize("dtype", [FORWARD, BACKWARD])
@pytest.mark.parametrize("draw", [torch.randn, wide])
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_rounding_is_to_nearest_even(dtype, draw, size):
    x = draw(64, 48) * size
    found = to_fp8(x, dtype)
    assert float(found.unit) == unit_of(x, FORMATS[dtype])
    assert torch.equal(found.values.double() * found.unit, rounded(x, FORMATS[dtype]))
    largest = float(found.values.float().abs().max())
    assert FORMATS[dtype].limit / 2 <= largest <= FORMATS[dtype].limit


@pytest.mark.parametrize("dtype", [FORWARD, BACKWARD])
def test_largest_entries_at_powers_of_two_stay_finite(dtype):
    for base in (FORMATS[dtype].limit, 1.0):
        for exponent in range(-90, 80):
            for neighbour in (-torch.inf, base * 2.0**exponent, torch.inf):
                x = torch.full((2, 2), base * 2.0**exponent)
                x = torch.nextafter(x, torch.tensor(neighbour))
                found = to_fp8(x, dtype)
                # The last place may be rounded up to the limit, never beyond it.
                assert (FORMATS[dtype].limit / 2 <= found.values.float()).all()
                assert (found.values.float() <= FORMATS[dtype].limit).all()


def test_a_row_is_rounded_as_it_is_alone():
    """Its neighbours may be 200 times as large: only what is nearly 0 would be rounded otherwise."""
    x = torch.rand(32, 48) + 0.5
    alone = to_fp8(x[:16], FORWARD)
    x[16:] *= 200 * torch.rand(16, 48)
    beside = to_fp8(x, FORWARD)
    assert beside.unit > alone.unit
    assert torch.equal(beside.values[:16].float() * beside.unit, alone.values.float() * alone.unit)


def test_zeros_and_all_that_is_too_small_give_zeros():
    weight = torch.randn(32, 48)
    for x in (torch.zeros(16, 48), torch.full((16, 48), 1e-44)):
        for left, right in ((x, weight), (weight, x)):
            assert torch.equal(linear_fp8(left, right, emulate=True), torch.zeros(len(left), len(right)))


# Products


@pytest.mark.parametrize("emulate", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("first", "second"), [(FORWARD, FORWARD), (BACKWARD, FORWARD)])
def test_products_are_those_of_the_rounded_operands(first, second, dtype, emulate):
    """Against float64, within the error of sums in float32; without emulation by torch._scaled_mm, which
    CPUs have too."""
    a, b = torch.randn(48, 160), wide(32, 160)
    found = product(to_fp8(a, first), to_fp8(b, second), dtype, emulate=emulate)
    assert found.dtype == dtype
    left, right = rounded(a, FORMATS[first]), rounded(b, FORMATS[second]).t()
    close(found, left @ right, bound_of_sums(left, right))


@pytest.mark.parametrize("sizes", [(1.0, 1.0), (1e-30, 1e30), (1e30, 1e-30), (1e15, 1e18), (1e-15, 1e-18)])
def test_a_layer_is_as_near_as_three_bits_of_fraction_allow(sizes):
    """A normal number is off by at most 2^-4 of itself, a subnormal one by half of 2^-9 units, of which the
    largest entry has more than 224."""
    x, weight = torch.randn(64, 96) * sizes[0], torch.randn(32, 96) * sizes[1]
    found = linear_fp8(x, weight, emulate=True)

    def off(tensor):
        return 2.0**-4 * tensor.abs() + 2.0**-10 / 224 * tensor.abs().max()

    x, weight = x.double(), weight.double().t()
    bound = x.abs() @ off(weight) + off(x) @ weight.abs() + off(x) @ off(weight)
    close(found, x @ weight, bound + bound_of_sums(x, weight))
    # Errors of either sign: their sum over 96 terms is far less.
    assert 0.02 < float((found - x @ weight).norm() / (x @ weight).norm()) < 0.06


@pytest.mark.parametrize("autocast", [False, True])
def test_gradients_are_those_of_the_rounded_operands(autocast):
    x, weight, bias = torch.randn(4, 24, 64), torch.randn(48, 64), torch.randn(48)
    leaves = [tensor.requires_grad_() for tensor in (x, weight, bias)]
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        out = linear_fp8(*leaves, emulate=True)
    dtype = torch.bfloat16 if autocast else torch.float32
    assert out.shape == (4, 24, 48)
    assert out.dtype == dtype
    gradient = wide(4, 24, 48).to(dtype)
    out.backward(gradient)
    assert [leaf.grad.dtype for leaf in leaves] == [torch.float32] * 3

    x8 = rounded(x.to(dtype).reshape(96, 64), E4M3)
    w8, g8 = rounded(weight, E4M3), rounded(gradient.view(96, 48), E5M2)
    eps = torch.finfo(dtype).eps
    expected = x8 @ w8.t()
    shift = bias.detach().to(dtype).double()
    # Of the product one rounding, of the sum with the bias another.
    bound = bound_of_sums(x8, w8.t()) + eps * expected.abs()
    close(out.detach().view(96, 48), expected + shift, bound)
    close(x.grad.view(96, 64), g8 @ w8, bound_of_sums(g8, w8) + eps * (g8 @ w8).abs())
    close(weight.grad, g8.t() @ x8, bound_of_sums(g8.t(), x8))
    ordinary = gradient.view(96, 48).double()
    ones = torch.ones(1, 96, dtype=torch.float64)
    bound = bound_of_sums(ones, ordinary) + eps * (ones @ ordinary).abs()
    close(bias.grad, ordinary.sum(0), bound)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_is_seen_in_all_of_the_product(bad):
    def spoilt(*shape):
        tensor = torch.randn(*shape)
        tensor[3, 5] = bad
        return tensor

    fine = torch.randn(16, 32)
    assert linear_fp8(spoilt(32, 32), fine, emulate=True).isnan().all()
    assert linear_fp8(torch.randn(32, 32), spoilt(16, 32), emulate=True).isnan().all()
    x, weight = torch.randn(32, 32, requires_grad=True), fine.requires_grad_()
    linear_fp8(x, weight, emulate=True).backward(spoilt(32, 16))
    assert x.grad.isnan().all()
    assert weight.grad.isnan().all()


def test_only_gradients_that_are_wanted_are_computed(monkeypatch):
    counted = []

    def counting(*arguments, **options):
        counted.append(arguments)
        return product(*arguments, **options)

    monkeypatch.setattr(fp8, "product", counting)
    for x_grad, weight_grad in ((True, False), (False, True), (True, True)):
        x, weight = torch.randn(16, 32, requires_grad=x_grad), torch.randn(48, 32, requires_grad=weight_grad)
        linear_fp8(x, weight, emulate=True).sum().backward()
        assert len(counted) == 1 + x_grad + weight_grad
        assert [x.grad is not None, weight.grad is not None] == [x_grad, weight_grad]
        counted.clear()


# What fp8 does not do


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs", "dtype"),
    [
        (15, 32, 48, torch.float32),
        (16, 40, 48, torch.float32),
        (16, 32, 30, torch.bfloat16),
        (0, 32, 48, torch.float32),
        (16, 32, 48, torch.float64),
    ],
)
def test_what_does_not_suit_is_an_ordinary_product(rows, inputs, outputs, dtype):
    x, weight = torch.randn(rows, inputs, dtype=dtype), torch.randn(outputs, inputs, dtype=dtype)
    bias = torch.randn(outputs, dtype=dtype)
    found, expected = [], []
    for function, into in ((lambda *a: linear_fp8(*a, emulate=True), found), (F.linear, expected)):
        leaves = [tensor.clone().requires_grad_() for tensor in (x, weight, bias)]
        out = function(*leaves)
        out.square().sum().backward()
        into += [out.detach(), *(leaf.grad for leaf in leaves)]
    assert all(map(torch.equal, found, expected))


def test_a_vector_and_other_dtypes_of_weights_are_as_in_ordinary_layers():
    weight = torch.randn(32, 48)
    x = torch.randn(48)
    assert torch.equal(linear_fp8(x, weight, emulate=True), F.linear(x, weight))
    with pytest.raises(RuntimeError, match="dtype"):
        linear_fp8(torch.randn(16, 48).bfloat16(), weight, emulate=True)
    with pytest.raises(RuntimeError, match="shapes"):
        linear_fp8(torch.randn(16, 64), weight, emulate=True)


# Models


class Scores(nn.Linear):
    """A layer with a forward of its own."""

    def forward(self, x):
        return super().forward(x) + 1


class Model(nn.Module):
    """One layer of each kind."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(64, 32)
        self.norm = nn.LayerNorm(32)
        self.up, self.odd, self.narrow = nn.Linear(32, 48), nn.Linear(32, 40), nn.Linear(32, 16)
        self.scores = Scores(32, 48)
        self.decoder = nn.Linear(32, 64, bias=False)
        self.decoder.weight = self.table.weight

    def forward(self, tokens):
        x = self.norm(self.table(tokens))
        return [layer(x) for layer in (self.up, self.odd, self.narrow, self.scores, self.decoder)]


@pytest.mark.parametrize(("least", "names"), [(1, ["up", "narrow"]), (32, ["up"]), (fp8.LEAST_FEATURES, [])])
def test_large_linear_layers_take_part_and_no_others(least, names):
    model = Model()
    twin = copy.deepcopy(model)
    assert fp8_linear_layers(model, min_features=least, emulate=True) == names
    tokens = torch.randint(64, (16,))
    layers = ("up", "odd", "narrow", "scores", "decoder")
    for name, found, expected in zip(layers, model(tokens), twin(tokens), strict=True):
        assert torch.equal(found, expected) == (name not in names)
    assert fp8_linear_layers(model, min_features=least, emulate=True) == names  # they do already


def test_parameters_names_and_checkpoints_are_the_same():
    model = Encoder(preset("tiny"))
    before = model.state_dict()
    parameters = dict(model.named_parameters())
    names = fp8_linear_layers(model, min_features=128, emulate=True)
    assert {f"{name}.weight" for name in names} == set(model.fused_blocks())
    assert all(isinstance(module, nn.Linear) for name, module in model.named_modules() if name in names)
    assert all(parameter is parameters[name] for name, parameter in model.named_parameters())
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert after._metadata == before._metadata
    copied = copy.deepcopy(model)
    other = Encoder(preset("tiny"))
    copied.load_state_dict(other.state_dict())  # strict
    x = torch.randn(16, 128)
    assert torch.equal(
        copied.layers[0].up(x), linear_fp8(x, other.layers[0].up.weight, emulate=True)
    )  # not the original's weights


def test_a_device_without_fp8_is_an_error_of_one_line():
    assert not supports_fp8(CPU)
    model = nn.Linear(1024, 1024)
    with pytest.raises(BrimfulError, match=r"^cpu has no fp8, [^\n]*emulate=True$"):
        fp8_linear_layers(model)
    assert type(model) is nn.Linear
    assert fp8_linear_layers(nn.Linear(1024, 512)) == []


def test_a_model_from_a_gpu_computes_as_ever_on_a_cpu(monkeypatch):
    monkeypatch.setattr(fp8, "supports_fp8", lambda device: True)
    model = nn.Linear(32, 48)
    twin = copy.deepcopy(model)
    assert fp8_linear_layers(model, min_features=16) == [""]
    x = torch.randn(16, 32)
    assert torch.equal(model(x), twin(x))


def loss_and_gradients(model, loss):
    model.zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16):
        value = loss()
    value.backward()
    return [value.detach(), *(parameter.grad for parameter in model.parameters())]


def mlp():
    return nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 16))


def test_a_compiled_model_is_one_graph_and_the_same():
    model = mlp()
    fp8_linear_layers(model, min_features=1, emulate=True)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    x = torch.randn(48, 32)
    found, expected = (loss_and_gradients(model, lambda f=f: f(x).square().mean()) for f in (compiled, model))
    assert all(map(torch.equal, found, expected))


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["bert", "modern"])
def test_a_generated_step_of_an_encoder_is_the_same(architecture):
    """The loss within 1e-3; gradients within 10 % in norm. Inductor leaves roundings of bf16 out, and what
    then falls on the other side of a tie is rounded to another number of two or three bits."""
    encoder = Encoder(preset("tiny", architecture, vocabulary_size=800))
    head = MaskedLMHead(encoder)
    assert len(fp8_linear_layers(encoder, min_features=1, emulate=True)) == 8
    batch = packed(make_sequences([100, 80, 60], 800, 0), 128, slots=256)
    with torch.autocast("cpu", torch.bfloat16):
        layout = encoder.prepare(batch)
    eager = packed_loss(encoder, head)
    compiled = torch.compile(eager, fullgraph=True, dynamic=False)
    found, expected = (
        loss_and_gradients(encoder, lambda f=f: f(batch, layout, None)) for f in (compiled, eager)
    )
    assert float(found[0]) == pytest.approx(float(expected[0]), rel=1e-3)
    for ours, theirs in zip(found[1:], expected[1:], strict=True):
        assert float((ours - theirs).norm()) <= 0.1 * float(theirs.norm())


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["bert", "modern"])
def test_a_compiled_step_has_no_more_products_than_in_bf16(architecture):
    """What the encoder computes again for backward ends before the product."""

    def products(graph, inputs):
        counts[-1] += sum(node.target is torch.ops.aten.mm.default for node in graph.graph.nodes)
        return make_boxed_func(graph.forward)

    encoder = Encoder(preset("tiny", architecture, vocabulary_size=800))
    batch = packed(make_sequences([100, 80, 60], 800, 0), 128, slots=256)
    backend = aot_autograd(
        fw_compiler=products, bw_compiler=products, partition_fn=min_cut_rematerialization_partition
    )
    counts = []
    for layers in (0, 8):
        if layers:
            assert len(fp8_linear_layers(encoder, min_features=1, emulate=True)) == layers
        torch._dynamo.reset()
        counts.append(0)
        step = torch.compile(packed_loss(encoder, MaskedLMHead(encoder)), backend=backend, fullgraph=True)
        with torch.autocast("cpu", torch.bfloat16):
            loss = step(batch, encoder.prepare(batch), None)
        loss.backward()
    assert counts[1] == counts[0] + (8 if architecture == "bert" else 0)  # bf16 has biases in addmm


def test_gradients_add_up_over_micro_batches():
    model = mlp()
    fp8_linear_layers(model, min_features=1, emulate=True)
    batches = torch.randn(3, 32, 32)
    alone = [loss_and_gradients(model, lambda x=x: model(x).square().mean()) for x in batches]
    model.zero_grad(set_to_none=True)
    for x in batches:
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x).square().mean()
        loss.backward()
    for parameter, *parts in zip(model.parameters(), *(each[1:] for each in alone), strict=True):
        assert torch.equal(parameter.grad, parts[0] + parts[1] + parts[2])


def test_a_model_trains_as_it_does_in_bf16():
    """A student of a random network: its loss falls below a tenth, and in fp8 it ends 2 to 6 % higher (24
    draws)."""
    teacher, student = mlp(), mlp()
    last = {}
    for kind in ("bf16", "fp8"):
        model = copy.deepcopy(student)
        if kind == "fp8":
            assert len(fp8_linear_layers(model, min_features=1, emulate=True)) == 2
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        draw = torch.Generator().manual_seed(0)
        losses = []
        for _ in range(150):
            x = torch.randn(128, 32, generator=draw)
            target = teacher(x).detach()
            with torch.autocast("cpu", torch.bfloat16):
                loss = (model(x) - target).square().mean() / target.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        last[kind] = sum(losses[-20:]) / 20
        assert last[kind] < losses[0] / 10
    assert last["fp8"] < 1.2 * last["bf16"]
