"""A compiled step: one graph for a whole run, and the losses and gradients of the eager one."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters

from brimful.base.errors import BrimfulError
from brimful.data.batch import PackedBatch, pack
from brimful.data.example_stream import ExampleStream
from brimful.data.rows import RowStream
from brimful.kernels.backends import FlexLayout, VarlenLayout
from brimful.model.attention import SequenceLayout
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead, SequenceHead
from brimful.objectives.imitation import LayerDistillation
from brimful.objectives.masked_lm import MaskedLM
from brimful.objectives.supervised import Supervised
from brimful.precision import watching
from brimful.precision.policy import autocast
from brimful.train.compilation import find_missing_compiler, make_loss, resolve_compile
from brimful.train.metrics import read_metrics
from brimful.train.objective import Objective
from builders.compiled import MAX_LENGTH, encoder_of, row_stream
from builders.scores import never_small
from builders.training import TASK, examples_of, supervised, trainer_of

ARCHITECTURES = ["modern", "bert", "prenorm"]
CPU = torch.device("cpu")

# What torch's own modules do when Inductor imports them.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning")

needs_compiler = pytest.mark.skipif(
    find_missing_compiler(CPU) is not None, reason=f"needs {find_missing_compiler(CPU)}"
)


@pytest.fixture(autouse=True)
def _fresh(seed: int) -> Iterator[None]:
    torch.manual_seed(seed)
    torch.compiler.reset()
    counters.clear()
    yield
    torch.compiler.reset()


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> CompileCounterWithBackend:
    """Counts graphs. What Dynamo and AOTAutograd trace, eager kernels run: that takes seconds to compile."""
    counter = CompileCounterWithBackend("aot_eager")
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=counter))
    return counter


def classifier(encoder: Encoder) -> Objective:
    return Supervised(TASK, SequenceHead(encoder, 2))


def example_stream(seed: int) -> ExampleStream:
    return ExampleStream(examples_of(100, seed), sequences=8, tokens=128, seed=seed, fixed_shapes=True)


def one_epoch(stream: RowStream | ExampleStream) -> Iterator[PackedBatch]:
    """Every micro-batch of an epoch, the update that reaches into the next included."""
    cursor = stream.start()
    while cursor.get("sources", {"texts": cursor})["texts"]["epoch"] == 0:
        batches, cursor = stream.take(cursor)
        yield from batches


def losses_and_gradients(
    loss: Callable[[PackedBatch], dict], encoder: Encoder, objective: Objective, batch: PackedBatch
) -> list[torch.Tensor]:
    """Mean loss, then the gradient of each parameter by it."""
    modules = torch.nn.ModuleDict({"encoder": encoder, **objective.modules()}).train()
    (term,) = objective.coefficients
    weight = max(1, objective.normalizers(batch)[term])  # a short row may have no predictions
    mean = loss(batch)[term] / weight
    return [mean.detach(), *torch.autograd.grad(mean, list(modules.parameters()))]


def assert_close(ours: list[torch.Tensor], theirs: list[torch.Tensor], tolerance: float) -> None:
    """The loss within `tolerance` relative, each gradient within that part of its norm (or of 1 % of the
    largest one's)."""
    assert float((ours[0] - theirs[0]).abs()) <= tolerance * float(theirs[0].abs())
    largest = max(float(gradient.norm()) for gradient in theirs[1:])
    for gradient, expected in zip(ours[1:], theirs[1:], strict=True):
        bound = tolerance * max(float(expected.norm()), 0.01 * largest)
        assert float((gradient - expected).norm()) <= bound


def check(
    objective: Objective, encoder: Encoder, batches: list[PackedBatch], precision: str, tolerance: float
) -> None:
    compiled = make_loss(objective.loss, encoder, compiled=True)
    eager = make_loss(objective.loss, encoder, compiled=False)
    for batch in batches:
        with autocast(precision, CPU):
            results = [losses_and_gradients(f, encoder, objective, batch) for f in (compiled, eager)]
        assert_close(*results, tolerance)


@pytest.mark.cases(1)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("tiles", [False, True])
def test_an_epoch_of_rows_is_one_graph(architecture, tiles, corpus_dir, tmp_path, seed, counter, monkeypatch):
    """A tenth of its micro-batches, with the last one; in tiles, as with large vocabularies."""
    if tiles:
        never_small(monkeypatch)
    batches = list(one_epoch(row_stream(corpus_dir, tmp_path, seed)))
    assert len(batches) > 40
    for varies in ("real_sequences", "lengths"):
        assert len({getattr(batch, varies) for batch in batches}) > 2, varies
    batches = batches[::-10]
    encoder = encoder_of(architecture)
    check(MaskedLM(MaskedLMHead(encoder), {}), encoder, batches, "fp32", 1e-5)
    assert counter.frame_count == 1


def test_models_of_one_shape_share_a_graph(seed, counter):
    """So trials of a fine-tuning, one for each learning rate and seed, are compiled once."""
    batches = list(one_epoch(example_stream(seed)))[:3]
    for _ in range(3):
        encoder = encoder_of("bert")
        check(classifier(encoder), encoder, batches, "fp32", 1e-5)
    assert counter.frame_count == 1


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_inductors_code_has_the_losses_and_gradients_of_eager(architecture, corpus_dir, tmp_path, seed):
    """float32 within 1e-5, the order of sums; bfloat16 within 2e-2: five roundings of 2^-8, of which compiled
    code leaves out those between fused operations."""
    batches = list(one_epoch(row_stream(corpus_dir, tmp_path, seed)))[:5]
    encoder = encoder_of(architecture)
    objective = MaskedLM(MaskedLMHead(encoder), {})
    for precision, tolerance in (("fp32", 1e-5), ("bf16", 2e-2)):
        check(objective, encoder, batches, precision, tolerance)
    assert counters["stats"]["unique_graphs"] == 2
    check(classifier(encoder), encoder, list(one_epoch(example_stream(seed)))[:5], "fp32", 1e-5)


def some_row(random: np.random.Generator) -> PackedBatch:
    lengths = random.integers(1, MAX_LENGTH + 1, random.integers(2, 6))
    tokens = [random.integers(0, 800, length) for length in lengths]
    row = pack(tokens, max_length=MAX_LENGTH, pad=0, slots=256, sequence_slots=12)
    labels = torch.from_numpy(random.integers(0, 800, 16))
    return replace(row, mlm_positions=torch.arange(16), mlm_labels=labels)


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize(
    ("backend", "precision"), [(SequenceLayout, "fp16"), (FlexLayout, "fp16"), (VarlenLayout, "fp32")]
)
def test_eight_batches_are_one_graph(backend, precision, seed, monkeypatch):
    """As Dynamo sees them; fp16 watches its activations. `varlen` is on the meta device."""
    counter = CompileCounterWithBackend("eager")
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=counter))
    # FlexAttention differentiates on the CPU too if it is let.
    module = import_module("torch.nn.attention.flex_attention")
    monkeypatch.setattr(module, "_validate_device", lambda *tensors: None)
    device = torch.device("meta" if backend is VarlenLayout else "cpu")
    encoder = encoder_of("modern").to(device)
    windows = {layer.window for layer in encoder.layers}
    monkeypatch.setattr(encoder, "prepare", lambda batch: backend.prepare(batch, windows))
    objective = MaskedLM(MaskedLMHead(encoder).to(device), {})
    modules = torch.nn.ModuleDict({"encoder": encoder, **objective.modules()}).train()
    monkeypatch.setattr(watching, "_counters", dict(watching._counters))  # no test counts on the meta device
    if precision == "fp16":
        watching.watch_modules(modules, parameters=False)
    loss = make_loss(objective.loss, encoder, compiled=True)
    random = np.random.default_rng(seed)
    for number in range(8):
        with autocast(precision, CPU):
            sums = loss(some_row(random).to(device))
        if not number:
            sums["mlm"].backward()
    assert all(parameter.grad is not None for parameter in modules.parameters())
    assert counter.frame_count == 1


def test_a_trainer_compiles_when_told_to(seed, tmp_path, counter):
    losses = {}
    for compiles in (False, True):
        settings = {"steps": 6, "log_every": 1, "rate": 1e-3, "tokens": 128, "fixed_shapes": True}
        trainer = trainer_of(tmp_path / str(compiles), seed, compile=compiles, **settings)
        trainer.run("test")
        lines = read_metrics(trainer.journal.metrics.path)
        losses[compiles] = [line["loss.classification"] for line in lines]
        assert counter.frame_count == compiles
    assert losses[True] == pytest.approx(losses[False], rel=1e-4)


def test_auto_compiles_on_cuda_only_and_where_it_can(monkeypatch):
    cuda = torch.device("cuda")
    assert not resolve_compile("auto", CPU)
    monkeypatch.setattr("brimful.base.torch_compile.find_spec", lambda name: object())
    monkeypatch.setattr("shutil.which", lambda name: name)
    assert resolve_compile("auto", cuda)
    assert resolve_compile(True, CPU)
    assert not resolve_compile(False, cuda)
    assert not resolve_compile("auto", cuda, possible=False)
    monkeypatch.setattr("brimful.base.torch_compile.find_spec", lambda name: None)
    assert not resolve_compile("auto", cuda)
    with pytest.raises(BrimfulError, match="needs Triton"):
        resolve_compile(True, cuda)


def test_an_objective_of_changing_shapes_is_not_compiled(seed, tmp_path):
    class Changing(Supervised):
        compiles = LayerDistillation.compiles

    with pytest.raises(BrimfulError, match="leave it at auto"):
        trainer_of(tmp_path, seed, objective=lambda head: supervised(head, None, Changing), compile=True)
