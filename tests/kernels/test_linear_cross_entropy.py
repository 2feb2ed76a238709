"""Linear cross-entropy: equal to F.linear and F.cross_entropy, without their memory."""

from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.autograd.graph import saved_tensors_hooks
from torch.profiler import ProfilerActivity, profile

from brimful.base.errors import BrimfulError
from brimful.base.types import IGNORED
from brimful.kernels import linear_cross_entropy as module
from brimful.model import cross_entropy
from brimful.model import linear_cross_entropy as plain_module
from brimful.model.fast_forms import use_plain_forms
from builders.scores import never_small

SHAPES = [(1, 1, 1), (7, 5, 3), (40, 300, 8), (70, 33, 16), (5, 64, 1)]


class Case(NamedTuple):
    """Arguments of `linear_cross_entropy`."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    labels: Tensor
    weights: Tensor | None = None


@pytest.fixture(autouse=True)
def _never_small(monkeypatch):
    never_small(monkeypatch)


@pytest.fixture
def pieces(monkeypatch):
    """Groups of 16 rows and tiles of 16 columns, so that toy sizes have several of both."""
    for name in ("GROUP_BYTES", "TILE_BYTES"):
        monkeypatch.setattr(module, name, 1)
    monkeypatch.setattr(module, "MIN_ROWS", 16)


def case(
    m: int, v: int, d: int, dtype: torch.dtype = torch.float64, *, bias: bool = True, weighted: bool = True
) -> Case:
    """Scores of about 3 in size, a third of the rows without a label, not the first."""
    labels = torch.where(torch.rand(m) < 1 / 3, IGNORED, torch.randint(v, (m,)))
    labels[:1] = v - 1
    weight = torch.randn(v, d, dtype=dtype) * 3 / d**0.5
    return Case(
        torch.randn(m, d, dtype=dtype).requires_grad_(),
        weight.requires_grad_(),
        torch.randn(v, dtype=dtype).requires_grad_() if bias else None,
        labels,
        torch.rand(m) if weighted else None,
    )


def in_format(given: Case, dtype: torch.dtype = torch.float64) -> Case:
    """The same numbers in another format."""
    inputs = (None if t is None else t.detach().to(dtype).requires_grad_() for t in given[:3])
    return Case(*inputs, *given[3:])


def linear_cross_entropy(*given: Tensor | None) -> Tensor:
    """Its sum."""
    return plain_module.linear_cross_entropy(*given)[0]


def plain(hidden, weight, bias, labels, weights=None) -> Tensor:
    """The definition; under autocast, what masked language models compute."""
    scores = F.linear(hidden, weight, bias)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    losses = F.cross_entropy(scores, labels, ignore_index=IGNORED, reduction="none")
    return losses.sum() if weights is None else (losses * weights).sum()


def outcome(function: Callable[..., Tensor], case: Case, scale: float = 0.7) -> list[Tensor]:
    """The sum and the gradients of scale * sum."""
    total = function(*case)
    inputs = [tensor for tensor in case[:3] if tensor is not None]
    return [total.detach(), *torch.autograd.grad(total * scale, inputs)]


def errors(found: list[Tensor], expected: list[Tensor]) -> list[float]:
    """Norms of the differences, relative to those of what is expected."""
    return [
        float((a.double() - b.double()).norm() / b.double().norm().clamp(min=1e-30))
        for a, b in zip(found, expected, strict=True)
    ]


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    """float64 to 1e-12: what rounding leaves of sums in another order."""
    size = max(float(b.norm()) for b in expected)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == torch.float64
        assert float((a - b).norm()) <= 1e-12 * max(float(b.norm()), 1e-3 * size)


@pytest.mark.parametrize(("m", "v", "d"), SHAPES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_the_plain_form(pieces, m, v, d, bias, weighted):
    given = case(m, v, d, bias=bias, weighted=weighted)
    assert_same(outcome(linear_cross_entropy, given), outcome(plain, given))


@pytest.mark.parametrize("m", [3, 290])
def test_equals_the_plain_form_in_float32_in_the_pieces_that_training_uses(m):
    given = case(m, 3000, 24, torch.float32)
    found = outcome(linear_cross_entropy, given)
    assert max(errors(found, outcome(plain, in_format(given)))) < 1e-5
    assert {a.dtype for a in found} == {torch.float32}


@pytest.mark.parametrize("autocast", [False, True])
def test_bfloat16_is_as_exact_as_the_plain_form(pieces, autocast):
    """Against float64 on the same (rounded) inputs: half more error than the plain form is allowed, for the
    second rounding of the probabilities. Under autocast gradients come in float32, as parameters are."""
    low = case(90, 300, 32, torch.bfloat16, weighted=False)
    expected = outcome(plain, in_format(low))
    if autocast:
        low = in_format(low, torch.float32)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found, peer = outcome(linear_cross_entropy, low), outcome(plain, low)
    assert found[0].dtype == torch.float32
    assert [a.dtype for a in found[1:]] == [t.dtype for t in low[:3]]
    for ours, theirs in zip(errors(found, expected), errors(peer, expected), strict=True):
        assert ours < max(1.5 * theirs, 2e-3)


def test_confident_predictions_keep_their_gradient_in_bfloat16(pieces):
    """1 is subtracted from a probability of 0.999 before it is rounded, which would make it 1."""
    weight = torch.zeros(40, 1, dtype=torch.bfloat16)
    weight[17] = 10.5  # exp(10.5) to the 39 of the others
    hidden = torch.ones_like(weight[:1]).requires_grad_()
    given = Case(hidden, weight.requires_grad_(), None, torch.tensor([17]))
    assert max(errors(outcome(linear_cross_entropy, given), outcome(plain, in_format(given)))) < 1e-2


def test_loss_scaling_changes_no_bit():
    given = case(50, 60, 8, torch.float32)
    once = outcome(linear_cross_entropy, given, 1.0)
    scaled = outcome(linear_cross_entropy, given, 2.0**16)
    assert all(torch.equal(a * 2**16, b) for a, b in zip(once[1:], scaled[1:], strict=True))


@pytest.mark.parametrize("m", [0, 6])
def test_no_predictions(m):
    given = case(m, 9, 4)
    given.labels.fill_(IGNORED)
    assert not any(tensor.any() for tensor in outcome(linear_cross_entropy, given))


def test_hits_of_the_plain_form():
    """Labels 0 and 2 have the highest score of their rows, 1 shares it, and 3 does not have it."""
    scores = torch.tensor([[5.0, 1, 2, 3], [1, 4, 4, 0], [0, 1, 7, 3], [9, 1, 2, 3], [9, 1, 2, 3]])
    labels = torch.tensor([0, 1, 2, 3, IGNORED])
    assert int(cross_entropy.count_hits(scores, labels)) == 3
    with use_plain_forms():
        hits = plain_module.linear_cross_entropy(torch.eye(5), scores.T, None, labels)[1]
    assert hits == 3


@pytest.mark.parametrize("label", [9, -1])
def test_a_label_outside_of_the_vocabulary_is_an_error(label):
    given = case(4, 9, 4)
    given.labels[2] = label
    with pytest.raises(BrimfulError, match=f"{label}.* vocabulary of 9"):
        linear_cross_entropy(*given)


def test_without_gradients_with_some_and_backward_twice_but_not_of_itself():
    given = case(30, 40, 4)
    total = linear_cross_entropy(*given)
    with torch.inference_mode():
        assert torch.equal(linear_cross_entropy(*given), total.detach())
    (first,) = torch.autograd.grad(total, given.weight, retain_graph=True)
    (again,) = torch.autograd.grad(total, given.weight, retain_graph=True, create_graph=True)
    assert torch.equal(first, again)
    assert not again.requires_grad
    frozen = given._replace(weight=given.weight.detach(), bias=None)
    (found,), (peer,) = (
        torch.autograd.grad(f(*frozen), frozen.hidden) for f in (linear_cross_entropy, plain)
    )
    torch.testing.assert_close(found, peer, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("autocast", [False, True])
def test_compiles_to_one_graph(pieces, autocast):
    """Other labels do not compile it again, however many of them count."""
    torch.compiler.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda *given: linear_cross_entropy(*given) * 2, fullgraph=True, backend=counter)
    for _ in range(3):
        given = case(50, 60, 8, torch.float32)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            found = outcome(compiled, given, 0.5)
            expected = outcome(linear_cross_entropy, given, 1.0)
        assert max(errors([found[0] / 2, *found[1:]], expected)) < 1e-6
    assert counter.frame_count == 1


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # of torch 2.15, whose own check reads it
def test_the_operator_is_registered_well():
    given = case(20, 30, 4)
    torch.library.opcheck(module._sum_and_gradients, (*given, True))
    torch.library.opcheck(module._sum_and_gradients, (*(t.detach() for t in given), False))


@pytest.mark.filterwarnings("ignore:.*Profiler clears events:UserWarning")  # of torch 2.11
def test_scores_neither_live_all_at_once_nor_stay_for_backward(monkeypatch):
    """M * V scores take 8 MB here, a group 1 MB. The plain form shows that the instruments see them."""
    monkeypatch.setattr(module, "GROUP_BYTES", 1 << 20)
    given = case(2048, 1024, 8, torch.float32)

    def peak_and_saved(function: Callable[..., Tensor]) -> tuple[int, int]:
        """The most bytes that were held at once, and those that wait for the backward pass."""
        saved: list[Tensor] = []
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
            with saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
                total = function(*given)
            kept = sum(tensor.nbytes for tensor in saved)
            saved.clear()
            total.backward()
        events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
        changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
        return max(accumulate(changes)), kept

    ours, theirs = peak_and_saved(linear_cross_entropy), peak_and_saved(plain)
    assert theirs[0] > 16 << 20
    assert theirs[1] > 8 << 20
    assert ours[0] < 4 << 20
    assert ours[1] < 1 << 20


def by_groups(given: Case, gradients: bool = True) -> list[Tensor]:
    """The sum, the hits and the gradients, as on a device that is not a CPU."""
    wide = torch.promote_types(given.hidden.dtype, torch.float32)
    weights = torch.ones(len(given.labels)) if given.weights is None else given.weights
    weights = torch.where(given.labels == IGNORED, 0, weights).to(wide)
    return list(module._compute_on_device(module._Inputs(*given[:4], weights), gradients))


def on_cpu(given: Case) -> list[Tensor]:
    """The same as on a CPU."""
    return [tensor.detach() for tensor in module._sum_and_gradients(*given, True)]


@pytest.fixture(params=["eager", "aot_eager"])
def device_form(request, monkeypatch):
    """Groups of a few rows; not compiled to machine code, which takes longer than a test may."""
    monkeypatch.setattr(module, "DEVICE_GROUP_BYTES", 1 << 17)
    torch.compiler.reset()
    function = torch.compile(module._compute_losses, backend=request.param, fullgraph=True)
    monkeypatch.setattr(module, "_compiled_losses", function)


@pytest.mark.cases(14)
@pytest.mark.parametrize(("m", "v", "d"), [*SHAPES, (128, 128, 8), (300, 200, 8)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_form_for_devices_equals_the_plain_form(device_form, m, v, d, bias, weighted):
    given = case(m, v, d, bias=bias, weighted=weighted)
    (total, hits, *gradients), peer = by_groups(given), on_cpu(given)
    assert [a.shape for a in (total, hits, *gradients)] == [a.shape for a in peer]
    assert torch.equal(hits, peer.pop(1))
    assert_same([total, *gradients], peer)
    assert_same([total, *gradients][: 4 if bias else 3], outcome(plain, given, 1.0))


def test_the_form_for_devices_is_as_exact_in_bfloat16_as_the_one_for_cpus(device_form):
    """Against float64 on the same (rounded) inputs."""
    low = case(300, 700, 32, torch.bfloat16)
    expected = outcome(plain, in_format(low), 1.0)
    ours, peer = by_groups(low), on_cpu(low)
    assert {tensor.dtype for tensor in ours} == {torch.float32}
    for found in (ours, peer):
        del found[1]  # the hits
    assert all(
        a < max(1.1 * b, 1e-6) for a, b in zip(errors(ours, expected), errors(peer, expected), strict=True)
    )


@pytest.mark.parametrize("label", [200, 10**6, -1])
def test_the_form_for_devices_shows_a_label_outside_of_the_vocabulary(device_form, label):
    given = case(70, 200, 4)
    given.labels[2] = label
    assert by_groups(given._replace(weights=None))[0].isinf()


def test_the_form_for_devices_without_gradients_or_predictions(device_form):
    given = case(300, 200, 4)
    total, hits, *gradients = by_groups(given, gradients=False)
    assert [total, hits] == by_groups(given)[:2]
    assert not any(gradient.numel() for gradient in gradients)
    given.labels.fill_(IGNORED)
    none = Case(given.hidden[:0], given.weight, given.bias, given.labels[:0])
    for nothing in (given, none):
        assert not any(tensor.any() for tensor in by_groups(nothing))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu(monkeypatch):
    """bf16 on the GPU against float64 on the CPU, in several groups; a wrong label shows."""
    monkeypatch.setattr(module, "DEVICE_GROUP_BYTES", 1 << 20)
    given = case(700, 900, 64, torch.bfloat16)
    moved = Case(*(t.detach().cuda().requires_grad_() for t in given[:3]), *(t.cuda() for t in given[3:]))
    found = [tensor.cpu() for tensor in outcome(linear_cross_entropy, moved)]
    assert max(errors(found, outcome(plain, in_format(given)))) < 2e-2
    moved.labels[5] = 900
    assert linear_cross_entropy(*moved).isinf()
