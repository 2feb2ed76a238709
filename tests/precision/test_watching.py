"""Watched gradients are counted exactly and kept within float16's range."""

import copy
import gc
import math
import weakref
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from brimful.base.errors import BrimfulError
from brimful.precision.narrow import NarrowWeights
from brimful.precision.scaler import AutomaticLossScaler
from brimful.precision.watching import take_counts, watch, watch_modules
from builders.watched import CPU, LARGEST, Step, convolutional, counted, histogram

# What torch.compile warns of is its own code.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Function.* should not be instantiated:DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def _clean(seed):
    torch.manual_seed(seed)
    AutomaticLossScaler()
    torch._dynamo.reset()


@pytest.fixture
def group():
    """A group of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def transformer():
    return nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)


of_all_formats = pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.bfloat16])


@of_all_formats
def test_watch_saturates_and_counts(dtype):
    gradient = torch.tensor([0.0, -1.0, 8192.0, -8256.0, 60000.0, torch.inf, -torch.inf, torch.nan]).to(dtype)
    x = torch.randn(8, dtype=dtype, requires_grad=True)
    y = watch(x)
    assert torch.equal(x, y)
    y.backward(gradient)
    limit = torch.tensor(65280.0 if dtype == torch.bfloat16 else LARGEST)
    assert torch.equal(x.grad[:5], gradient[:5])
    assert x.grad[5:].float().tolist() == [limit, -limit, 0.0]
    assert take_counts(CPU).tolist() == [3, 2, 2, 1]
    assert take_counts(CPU).tolist() == [0, 0, 0, 0]


@of_all_formats
@pytest.mark.parametrize("largest", [1e3, 6e4, 1e6])
def test_counts_are_exact_beside_the_edge(dtype, largest):
    edge = 8192.0
    gradient = torch.randn(60, 50)
    gradient *= largest / gradient.abs().max()
    if largest > edge:  # what both 16-bit types have on either side: 8188, 8200; 8160, 8256
        gradient[0, :6] = torch.tensor([8160.0, 8188.0, 8192.0, -8192.0, 8200.0, -8256.0])
    gradient = gradient.to(dtype)
    x = torch.randn(60, 50, dtype=dtype, requires_grad=True)
    watch(x).backward(gradient)
    assert counted() == histogram([gradient], edge)
    limit = 65280.0 if dtype == torch.bfloat16 else LARGEST
    assert torch.equal(x.grad, gradient.clamp(-limit, limit))


@pytest.mark.parametrize("ranks", ["none", "ddp", "compressed"])
@pytest.mark.parametrize("largest", [1.0, 60_000.0])
def test_all_parameters_are_counted_in_each_backward_pass(group, largest, ranks):
    """Against hooks of the test's own on an unwatched copy, which see each micro-batch's gradients."""
    model = Step()
    twin, seen = copy.deepcopy(model), []
    for parameter in twin.parameters():
        parameter.register_hook(seen.append)
    for module in (twin.norm, twin.out):
        module.register_full_backward_hook(lambda module, inputs, outputs: seen.extend(inputs))
    batches = [torch.randint(20, (4, 7)) for _ in range(3)]
    for tokens in batches:
        twin(tokens).square().mean().backward()
    factor = 2.0 ** math.floor(math.log2(largest / max(gradient.abs().max() for gradient in seen)))
    seen.clear()
    twin.zero_grad()
    wrapped = model if ranks == "none" else DistributedDataParallel(model)
    if ranks == "compressed":
        wrapped.register_comm_hook(None, fp16_compress_hook)
    watch_modules(wrapped)
    watch_modules(wrapped)  # twice is once
    for number, tokens in enumerate(batches):
        with nullcontext() if ranks == "none" or number == 2 else wrapped.no_sync():
            (wrapped(tokens).square().mean() * factor).backward()
        (twin(tokens).square().mean() * factor).backward()
    expected = histogram(seen)
    assert (expected[1] > 0) == (largest > 2.0**13)
    assert counted() == expected
    for parameter, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert ranks == "compressed" or torch.equal(parameter.grad, other.grad)


def test_sharded_parameters_are_refused(group):
    module = fully_shard(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for refused in (lambda: NarrowWeights(optimizer), lambda: watch_modules(module)):
        with pytest.raises(BrimfulError, match="whole on each rank: use DDP in place of FSDP2"):
            refused()


@pytest.mark.parametrize(
    ("make", "shape"),
    [(convolutional, (2, 3, 8, 8)), (transformer, (2, 5, 16))],
    ids=["convolutional", "transformer"],
)
def test_a_compiled_model_counts_the_same_in_one_graph(make, shape):
    model = make()
    watch_modules(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = torch.randn(shape)
    results = []
    for each in (model, compiled):
        model.zero_grad()
        (each(x).square().mean() * 2.0**21).backward()
        results.append((counted(), [p.grad for p in model.parameters()]))
    assert results[0][0] == results[1][0]
    assert results[0][0][1] > 0
    for eager, other in zip(results[0][1], results[1][1], strict=True):
        # float32 rounding of other kernels, relative to the largest of the tensor
        assert (eager - other).abs().max() <= 1e-5 * eager.abs().max() + 1e-3


def test_the_leaf_is_none_of_the_models_and_a_copy_is_not_counted_twice():
    model = Step()
    names = list(model.state_dict()), [name for name, _ in model.named_parameters()]
    watch_modules(model)
    model.half()
    assert (list(model.state_dict()), [name for name, _ in model.named_parameters()]) == names
    twin = copy.deepcopy(model)
    watch_modules(twin)
    for each in (model, twin):
        (each(torch.randint(20, (2, 3))).float().sum() * 1e-2).backward()
        # all parameters, and what goes into the LayerNorm and the linear layer
        assert counted() == (sum(p.numel() for p in each.parameters()) + 2 * 6 * 8, 0)
        assert {p.grad.dtype for p in each.parameters()} == {torch.float16}


def test_the_state_of_an_lstm_is_watched():
    """Three steps: gradients of two inner states of two tensors each, and of the parameters."""
    cell, state = nn.LSTMCell(4, 6), (torch.zeros(3, 6), torch.zeros(3, 6))
    watch_modules(cell)
    for step in torch.randn(3, 3, 4):
        state = cell(step, state)
    state[0].sum().backward()
    assert sum(counted()) == 2 * 2 * 3 * 6 + sum(p.numel() for p in cell.parameters())


def test_a_step_leaves_no_tensors_behind():
    """Else a GPU would hold the inputs of all modules until Python next looks for reference cycles."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    watch_modules(model)
    seen: list[weakref.ref] = []
    model[1].register_forward_hook(lambda module, inputs, output: seen.append(weakref.ref(output)))
    gc.disable()
    try:
        model(torch.randn(3, 4)).sum().backward()
        assert [tensor() for tensor in seen] == [None]
    finally:
        gc.enable()
