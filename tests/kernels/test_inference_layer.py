"""A run of inference on a CPU in bfloat16, int8 or float32: weights that are laid out once."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.utils import prune

from brimful.base import cpu_threads
from brimful.base.errors import BrimfulError, NotFiniteError
from brimful.data.examples import Examples
from brimful.exporting.calibration import calibrate
from brimful.exporting.int8_files import write_steps
from brimful.hf.int8_steps import FILE, products, read_steps
from brimful.kernels import inference_layer
from brimful.kernels.inference_layer import LaidOut, lays_out_bf16
from brimful.model.encoder import Encoder
from brimful.model.fast_forms import open_fast_context, use_plain_forms
from brimful.model.inference import make_batches, share_products, text_vectors
from brimful.model.int8_rounding import NARROW, WHOLE, Steps, find_largest_weight, find_obstacle, is_wide
from builders.encoders import MODELS, VOCABULARY, random_row, small

ALONE = [0, 40, 62]
CPU = torch.device("cpu")
needs_bf16 = pytest.mark.skipif(not lays_out_bf16(), reason="oneDNN has no bfloat16 for this processor")
needs_int8 = pytest.mark.skipif(find_obstacle() is not None, reason=f"int8 needs {find_obstacle()}")


def examples_of(lengths: list[int]) -> Examples:
    tokens = [np.random.randint(2, VOCABULARY, length).astype(np.int32) for length in lengths]
    return Examples(tokens, [np.zeros(len(each), np.uint8) for each in tokens], {}, 128, 0)


def alone(encoder: Encoder, examples: Examples, precision: str) -> np.ndarray:
    """The vectors of three examples by themselves."""
    found = []
    for index in ALONE:
        tokens, segments = [examples.tokens[index]], [examples.segments[index]]
        one = replace(examples, tokens=tokens, segments=segments, targets={})
        found.append(text_vectors(encoder, one, precision=precision))
    return np.concatenate(found)


@pytest.fixture
def examples(seed):
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    return examples_of([*np.random.randint(3, 129, 60).tolist(), 1, 2, 128])


@pytest.fixture(autouse=True)
def short_runs(monkeypatch):
    monkeypatch.setattr(inference_layer, "MIN_COPY_TOKENS", 128)


def distances(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Of each text, 1 - cosine."""
    norms = np.linalg.norm(found, axis=1) * np.linalg.norm(wanted, axis=1)
    return 1 - (found * wanted).sum(1) / norms


@needs_bf16
@pytest.mark.cases(2)
@pytest.mark.parametrize("model", MODELS)
def test_vectors_in_bf16_are_near_those_in_fp32_and_a_neighbour_changes_nothing(model, examples, monkeypatch):
    encoder = small(model).eval()
    made: list[LaidOut] = []
    enter = LaidOut.__enter__
    monkeypatch.setattr(LaidOut, "__enter__", lambda run: made.append(run) or enter(run))
    wanted = text_vectors(encoder, examples)
    made.clear()
    found = text_vectors(encoder, examples, precision="bf16")
    assert len(made[0].weights) == 4 * encoder.config.layers
    assert distances(found, wanted).max() < 2e-3
    np.testing.assert_allclose(alone(encoder, examples, "bf16"), found[ALONE], atol=5e-6)


@pytest.fixture(params=[1, 2])
def threads(request):
    with cpu_threads.use_threads(request.param):
        yield request.param


@pytest.mark.cases(3)
@pytest.mark.parametrize("copies", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_vectors_in_fp32_are_those_of_the_plain_layer(model, copies, threads, examples):
    encoder, run = small(model).eval(), LaidOut(torch.float32, copies=copies)
    with use_plain_forms():
        wanted = text_vectors(encoder, examples)
    with share_products(run):
        found = text_vectors(encoder, examples)
        np.testing.assert_allclose(alone(encoder, examples, "fp32"), found[ALONE], atol=5e-6)
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    on_torch = threads == 1 and not inference_layer.onednn_is_faster()
    assert bool(run.weights) is (copies and not on_torch)  # of texts by themselves, which have few tokens


def test_which_runs_have_these_layers(monkeypatch):
    """In fp32 a long run lays weights out where oneDNN is faster, a served model on any AMD."""
    cuda, enough = torch.device("cuda"), inference_layer.MIN_NUMBA_TOKENS
    monkeypatch.setattr(inference_layer, "lays_out_bf16", lambda: True)
    assert isinstance(open_fast_context("products", CPU, 1, "int8"), LaidOut)
    for tokens, copies in ((128, True), (127, False), (None, True)):
        assert open_fast_context("products", CPU, tokens, "bf16").copies is copies
    for device, tokens, precision in (
        (cuda, 1 << 20, "bf16"),
        (cuda, 1 << 20, "fp32"),
        (CPU, enough - 1, "fp32"),
    ):
        assert not isinstance(open_fast_context("products", device, tokens, precision), LaidOut)
    for amd, faster in ((False, False), (True, False), (True, True)):
        monkeypatch.setattr(inference_layer, "has_onednn_on_amd", lambda amd=amd: amd)
        monkeypatch.setattr(inference_layer, "onednn_is_faster", lambda faster=faster: faster)
        for tokens, copies in ((enough, faster), (None, amd)):
            run = open_fast_context("products", CPU, tokens, "fp32")
            assert isinstance(run, LaidOut)
            assert (run.dtype, run.copies) == (torch.float32, copies)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_what_hooks_and_other_forwards_do_is_done(examples, precision):
    encoder, calls = small("modern").eval(), []

    def vectors() -> np.ndarray:
        return text_vectors(encoder, examples, precision=precision)

    plain = vectors()
    hook = encoder.layers[0].up.register_forward_hook(lambda *given: calls.append("hook"))
    with share_products(LaidOut(torch.float32)) if precision == "fp32" else nullcontext():
        vectors()
        hook.remove()
        own = encoder.layers[1].down.forward
        encoder.layers[1].down.forward = lambda x: calls.append("forward") or own(x)
        vectors()
        del encoder.layers[1].down.forward
        prune.random_unstructured(encoder.layers[0].qkv, "weight", 0.3)
        vectors()
        with torch.no_grad():
            encoder.layers[0].qkv.weight_orig.mul_(2)
        found = vectors()
    assert {"hook", "forward"} == set(calls)
    with use_plain_forms():
        np.testing.assert_allclose(found, vectors(), atol=1e-5 if precision == "fp32" else 0.05)
    assert np.abs(found - plain).max() > 0.1


def test_gradients_training_and_captures_have_other_forms():
    encoder, batch = small("bert"), random_row([128])
    for training, gradients in ((True, False), (False, True)):
        encoder.train(training)
        with LaidOut() as run, torch.autocast("cpu", torch.bfloat16), torch.set_grad_enabled(gradients):
            encoder(batch)
        assert not run.weights


def test_bf16_runs_where_onednn_has_no_products_of_it(examples, monkeypatch):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    assert not isinstance(open_fast_context("products", CPU, 128, "bf16"), LaidOut)
    encoder = small("bert").eval()
    found, wanted = (text_vectors(encoder, examples, precision=each) for each in ("bf16", "fp32"))
    assert distances(found, wanted).max() < 2e-3


def calibrated(model: str, examples: Examples) -> Encoder:
    encoder = small(model).eval()
    losses = calibrate(encoder, make_batches(examples))
    assert losses.keys() == products(encoder).keys()
    assert all(0 < loss < 0.2 for loss in losses.values())
    return encoder


@needs_int8
@pytest.mark.cases(2)
@pytest.mark.parametrize("model", MODELS)
def test_vectors_in_int8_are_near_and_the_same_in_any_run(model, examples):
    encoder = calibrated(model, examples)
    wanted = text_vectors(encoder, examples)
    found = text_vectors(encoder, examples, precision="int8")
    assert (found != text_vectors(encoder, examples, precision="bf16")).any()
    apart = distances(found, wanted)
    assert apart[:60].max() < 0.05
    assert apart.max() < 0.3  # the mean over one token of random weights
    np.testing.assert_array_equal(alone(encoder, examples, "int8"), found[ALONE])
    with cpu_threads.use_threads(3 - min(torch.get_num_threads(), 2)):
        np.testing.assert_array_equal(text_vectors(encoder, examples, precision="int8"), found)


@needs_int8
@pytest.mark.parametrize("factors", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_an_integer_product_is_that_of_the_rounded_numbers(seed, factors, bias):
    """Against the sum in float64 of inputs and weights as they are rounded."""
    torch.manual_seed(seed)
    linear = torch.nn.Linear(96, 40, bias=bias)
    dtype = torch.float32 if is_wide() else torch.bfloat16
    x = (3 * torch.randn(70, 96)).to(dtype)
    scale = torch.rand(96) + 0.5 if factors else None
    weights = inference_layer.IntegerWeights(linear, Steps(0.05, 120, scale, find_largest_weight()))
    integers = weights.round_inputs(x)
    ones = torch.ones(96) if scale is None else scale
    inverse = torch.from_numpy(weights.factors)
    assert (integers - (x.float() * inverse + 120).clamp(0, 255)).abs().max() <= 0.5001
    steps = (linear.weight.detach() * ones / weights.sizes[:, None]).round().double()
    wanted = (integers.double() - 120) * 0.05 @ (steps * weights.sizes[:, None].double()).t()
    wanted += 0 if linear.bias is None else linear.bias.double()
    found = weights.multiply(integers, "none", dtype).double()
    assert (found - wanted).abs().max() <= 2**-8 * wanted.abs().max()
    reader = inference_layer.IntegerWeights(torch.nn.Linear(40, 8), Steps(0.02, 10))
    rounded = weights.multiply(integers, "gelu", dtype, reader)
    expected = (torch.nn.functional.gelu(wanted) / 0.02 + 10).round().clamp(0, 255)
    assert rounded.dtype == torch.uint8
    assert (rounded.double() - expected).abs().max() <= 1


@needs_int8
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("width", [33, 96, 384])
def test_no_product_saturates(sign, width):
    """Against sums of integers, of weights and inputs at their limits."""
    largest = find_largest_weight()
    assert largest in (NARROW, WHOLE)
    w = torch.full((40, width), sign * largest)
    x = torch.full((64, width), 255)
    linear = torch.nn.Linear(width, 40, bias=False)
    linear.weight.data = w.float()
    weights = inference_layer.IntegerWeights(linear, Steps(1.0, 0, None, largest))
    found = weights.multiply(x.to(torch.uint8), "none", torch.float32 if is_wide() else torch.bfloat16)
    wanted = (x @ w.t()).double()
    assert (found.double() - wanted).abs().max() <= (0 if is_wide() else 2**-8 * wanted.abs().max())


@pytest.mark.parametrize(
    ("changes", "layer", "values"),
    [
        ({"layers": 5}, 4, {}),
        ({"hidden_size": 24}, 0, {}),
        ({}, 0, {"size": -1.0}),
        ({}, 0, {"factor": torch.inf}),
        ({}, 0, None),
    ],
    ids=["layers", "width", "size", "factor", "cut"],
)
def test_steps_of_another_model_are_refused(changes, layer, values, tmp_path):
    write_steps(tmp_path, _with(small("bert", **changes), layer, **values or {}))
    if values is None:
        (tmp_path / FILE).write_bytes((tmp_path / FILE).read_bytes()[:-9])
    with pytest.raises(BrimfulError, match="export the run again"):
        read_steps(tmp_path, small("bert"))


def _with(encoder: Encoder, layer: int, size: float = 1.0, factor: float = 1.0) -> Encoder:
    linear = encoder.layers[layer].qkv
    linear.steps = Steps(size, 0, torch.full((linear.in_features,), factor))
    return encoder


@needs_int8
@pytest.mark.parametrize("part", ["up", "mlp_norm"])
def test_nan_is_refused_where_integers_would_hide_it(part, examples):
    encoder = calibrated("prenorm", examples)
    with torch.no_grad():
        getattr(encoder.layers[0], part).weight.view(-1)[3] = torch.nan
    with pytest.raises(NotFiniteError):
        text_vectors(encoder, examples, precision="int8")


@needs_int8
def test_integer_weights_stay_with_a_module_until_it_changes(examples):
    linear = calibrated("bert", examples).layers[0].qkv
    first = inference_layer.IntegerWeights.of(linear)
    assert inference_layer.IntegerWeights.of(linear) is first
    with torch.no_grad():
        linear.weight.mul_(0.5)
    second = inference_layer.IntegerWeights.of(linear)
    linear.steps = replace(linear.steps)
    assert len({first, second, inference_layer.IntegerWeights.of(linear)}) == 3


def test_int8_is_refused_where_no_kernel_computes_it(examples):
    with use_plain_forms(), pytest.raises(BrimfulError, match="int8 needs BRIMFUL_KERNELS=on"):
        text_vectors(small("bert"), examples, precision="int8")
