"""The contract of objectives: named sums, divided by weights that are known beforehand.

So a packed batch, its sequences one by one, and any split into micro-batches are the same loss with the same
gradients. In float64 they agree to 1e-10.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brimful import pretrain
from brimful.base.distributed import World
from brimful.base.types import IGNORED
from brimful.data.batch import PackedBatch, pack
from brimful.data.example_batches import make_batch
from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.model.encoder import Capture, Encoder
from brimful.model.heads import PretrainingHead, SequenceHead
from brimful.objectives import imitation
from brimful.objectives.imitation import TEACHER, LayerDistillation, LogitDistillation, attention_score_sum
from brimful.objectives.layer_losses import LayerLosses
from brimful.objectives.masked_lm import MaskedLM, MaskedLMAndPairs
from brimful.objectives.supervised import Supervised
from brimful.tasks.classification import Classification
from brimful.tasks.multi_label import MultiLabel
from brimful.tasks.question_answering import QuestionAnswering
from brimful.tasks.regression import Regression
from brimful.tasks.task import Task
from brimful.tasks.token_classification import TokenClassification
from brimful.train.objective import Objective, Runtime
from builders.encoders import ARCHITECTURES, small
from builders.tables import bits_of
from builders.uneven import batch_of

VOCABULARY, MAX_LENGTH, CLASSES = 90, 24, 3
TASK = Classification(["a", "b", "c"])

contract = settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])


CASES = {
    "architecture": st.sampled_from(ARCHITECTURES),
    "lengths": st.lists(st.sampled_from([1, 2, 7, 15, MAX_LENGTH]), min_size=1, max_size=12),
    "rows": st.integers(1, 4),
    "filler": st.integers(0, 40),
    "seed": st.integers(0, 2**31),
}


def encoder_of(architecture: str, hidden: int = 16, layers: int = 2) -> Encoder:
    """A small encoder in float64 with local and global layers, all its parameters random."""
    shape = {"vocabulary_size": VOCABULARY, "hidden_size": hidden, "heads": 2, "intermediate_size": 20}
    shape |= {"layers": layers, "max_length": MAX_LENGTH, "local_attention": 6, "global_every": 2}
    return randomise(small(architecture, **shape))


def randomise(module: torch.nn.Module) -> torch.nn.Module:
    module.double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, mean=0.5 if parameter.ndim == 1 else 0, std=0.3)
    return module


def examples_of(lengths: list[int], random: np.random.Generator) -> Examples:
    return Examples(
        tokens=[random.integers(0, VOCABULARY, n, dtype=np.int32) for n in lengths],
        segments=[random.integers(0, 2, n).astype(np.uint8) for n in lengths],
        targets={"label": random.integers(0, CLASSES, len(lengths))},
        max_length=MAX_LENGTH,
        pad=0,
    )


def spread(count: int, rows: int, random: np.random.Generator) -> list[np.ndarray]:
    """The sequences 0 to count - 1, dealt to at most `rows` micro-batches at random."""
    row = random.integers(0, rows, count)
    return [np.flatnonzero(row == r) for r in range(rows) if (row == r).any()]


def update(
    objective: Objective, encoder: Encoder, batches: Iterable[PackedBatch]
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Means of the terms over the batches, and gradients of their weighted total, as an update takes them."""
    batches = list(batches)
    modules = torch.nn.ModuleDict({"encoder": encoder, **objective.modules()})
    modules.zero_grad(set_to_none=True)
    weights = {
        term: sum(objective.normalizers(batch)[term] for batch in batches) for term in objective.coefficients
    }
    means = dict.fromkeys(weights, torch.zeros((), dtype=torch.float64))
    for batch in batches:
        sums = objective.loss(encoder, batch)
        assert sums.keys() == {*weights, *objective.watched} == objective.normalizers(batch).keys()
        terms = {term: sums[term] / max(weights[term], 1e-30) for term in weights}
        torch.stack([objective.coefficients[term] * value for term, value in terms.items()]).sum().backward()
        means = {term: means[term] + terms[term].detach() for term in weights}
    gradients = {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in modules.named_parameters()
    }
    return means, gradients


def check_contract(
    objective: Objective, encoder: Encoder, examples: Examples, rows: int, filler: int, seed: int
) -> None:
    """One by one, all in one row with filler, and micro-batches of random rows with filler are equal."""
    count, random = len(examples), np.random.default_rng(seed)

    def in_row(chosen: np.ndarray) -> PackedBatch:
        """A row with filler; S is larger than needed."""
        slots = int(examples.lengths[chosen].sum()) + filler
        return make_batch(examples, chosen, slots, slots + 1)

    alone = update(objective, encoder, [make_batch(examples, np.array([index])) for index in range(count)])
    packed = update(objective, encoder, [in_row(np.arange(count))])
    split = update(objective, encoder, [in_row(chosen) for chosen in spread(count, rows, random)])
    size = max(float(gradient.norm()) for gradient in alone[1].values())
    for means, gradients in (packed, split):
        for term, mean in means.items():
            torch.testing.assert_close(mean, alone[0][term], rtol=1e-10, atol=1e-14)
        for name, gradient in gradients.items():
            # Gradients that are zero but for rounding, as the bias of keys has, are held to the largest
            # one; where all are small, rounding is that of probabilities, which are up to one.
            bound = 1e-10 * max(float(alone[1][name].norm()), 1e-4 * max(size, 1.0))
            assert float((gradient - alone[1][name]).norm()) <= bound, name
    assert size > 0 or not any(mean for mean in alone[0].values())


def draw_targets(
    kind: str, lengths: list[int], random: np.random.Generator
) -> dict[str, np.ndarray | Ragged]:
    count = len(lengths)
    match kind:
        case "classes":
            weights = random.uniform(0.2, 3, count).astype(np.float32)
            return {"label": random.integers(0, CLASSES, count), "weight": weights}
        case "values":
            values = random.normal(size=count).astype(np.float32)
            values[0] = IGNORED  # which is a value like any other
            return {"label": values}
        case "label sets":
            return {"labels": bits_of(random.integers(0, 2, (count, 2)))}
        case "tags":
            return {"tags": Ragged.of([random.choice([IGNORED, 0, 1, 2], n) for n in lengths], np.int64)}
        case "spans":
            return {"span": np.sort(random.integers(0, np.array(lengths)[:, None], (count, 2)), 1)}
    return {TEACHER: random.normal(size=(count, CLASSES)).astype(np.float32)}


TASKS: dict[str, Task] = {
    "classes": TASK,
    "values": Regression(),
    "label sets": MultiLabel(["a", "b"]),
    "tags": TokenClassification(["O", "B-a", "I-a"]),
    "spans": QuestionAnswering(),
    "logits": TASK,
}


@pytest.mark.parametrize("kind", TASKS)
@contract
@given(temperature=st.sampled_from([1.0, 2.5]), **CASES)
def test_every_task_is_the_same_packed_split_and_alone(
    kind, architecture, lengths, rows, filler, seed, temperature
):
    torch.manual_seed(seed)
    encoder, random = encoder_of(architecture), np.random.default_rng(seed)
    examples = replace(examples_of(lengths, random), targets=draw_targets(kind, lengths, random))
    head = randomise(TASKS[kind].new_head(encoder))
    objective = Supervised(TASKS[kind], head)
    if kind == "logits":
        objective = LogitDistillation(head, TASK.imitation(temperature))
    check_contract(objective, encoder, examples, rows, filler, seed)


@contract
@given(
    width=st.sampled_from([16, 12]),
    teacher_layers=st.sampled_from([2, 4]),
    losses=st.sampled_from([{}, {"embedding": 0, "hidden": 0.5, "attention": 2.0, "layer_map": "last"}]),
    **CASES,
)
def test_layer_distillation_is_the_same_packed_split_and_alone(
    architecture, lengths, rows, filler, seed, width, teacher_layers, losses
):
    torch.manual_seed(seed)
    teacher, student = encoder_of(architecture, layers=teacher_layers), encoder_of(architecture, width)
    examples = examples_of(lengths, np.random.default_rng(seed))
    objective = LayerDistillation(teacher, student, LayerLosses(**losses))
    randomise(objective.projections)
    check_contract(objective, student, examples, rows, filler, seed)


# What the terms are, against their formulas


@pytest.fixture
def seed(seed):
    torch.manual_seed(seed)
    return seed


@pytest.mark.parametrize("loss_mean", ["tokens", "sequences"])
def test_evaluation_is_what_is_trained(seed, monkeypatch, loss_mean):
    """Over two batches of several slices: the same means as an update's, and shares of right answers."""
    monkeypatch.setattr("brimful.objectives.masked_lm.PREDICTIONS_AT_ONCE", 3)
    encoder = encoder_of("bert")
    head = randomise(PretrainingHead(encoder))
    batches = []
    for index in range(2):
        batch = batch_of(seed, index)
        pair = torch.randint(0, 2, (len(batch.offsets) - 1,))
        pair[-1] = IGNORED
        batches.append(replace(batch, targets={"pair": pair}))
    objective = MaskedLMAndPairs(head, {"a": batches[:1], "b": batches[1:]}, loss_mean)
    with torch.no_grad():
        figures = objective.evaluate(encoder, Runtime(World(0, 1, torch.device("cpu")), "fp32"))
    means, _ = update(objective, encoder, batches)
    by_token, _ = update(MaskedLM(head, {}), encoder, batches)
    assert ("token_loss" in figures) == (loss_mean == "sequences")
    expected = {"loss": means["mlm"], "pair_loss": means["pair"]}
    expected["token_loss" if loss_mean == "sequences" else "loss"] = by_token["mlm"]
    for name, batch in zip("ab", batches, strict=True):
        expected[f"loss.{name}"] = update(objective, encoder, [batch])[0]["mlm"]
    for name, value in expected.items():
        assert figures[name] == pytest.approx(float(value), rel=1e-12), name
    right, pairs_right = [], []
    for batch in batches:
        hidden = encoder(batch)
        used = batch.mlm_labels != IGNORED
        right += (head(hidden, batch.mlm_positions).argmax(-1) == batch.mlm_labels)[used].tolist()
        known = batch.targets["pair"] != IGNORED
        pairs_right += (head.pair(hidden, batch).argmax(-1) == batch.targets["pair"])[known].tolist()
    assert figures["accuracy"] == pytest.approx(np.mean(right))
    assert figures["pair_accuracy"] == pytest.approx(np.mean(pairs_right))


def test_perplexity_is_of_predictions_whatever_the_loss_is_a_mean_over(corpus_dir, tmp_path):
    summary = pretrain(
        data=str(corpus_dir),
        out=str(tmp_path / "run"),
        model="tiny",
        loss_mean="sequences",
        packing={"max_length": 64},
        trainer={"steps": 2},
        validation_tokens=5000,
    )
    figures = summary["validation"]
    assert figures["perplexity"] == pytest.approx(np.exp(figures["token_loss"]))
    assert figures["loss"] != figures["token_loss"]


@pytest.mark.parametrize(
    ("architecture", "width", "layer_map", "imitated"),
    [("modern", 16, "uniform", (1, 3)), ("bert", 12, "last", (2, 3)), ("prenorm", 12, (0, 2), (0, 2))],
)
def test_layer_distillation_is_tinyberts_mean_squares(seed, architecture, width, layer_map, imitated):
    """Against the formulas on one sequence: hidden states, scores before softmax."""
    teacher, student = encoder_of(architecture, layers=4), encoder_of(architecture, width)
    objective = LayerDistillation(teacher, student, LayerLosses(layer_map=layer_map))
    randomise(objective.projections)
    batch = make_batch(examples_of([11], np.random.default_rng(seed)), np.arange(1), 11)
    theirs, ours = Capture(), Capture()
    teacher(batch, capture=theirs)
    student(batch, capture=ours)
    means, _ = update(objective, student, [batch])
    (project,) = objective.projections or [torch.nn.Identity()]
    hidden = [F.mse_loss(project(ours.hidden[m + 1]), theirs.hidden[g + 1]) for m, g in enumerate(imitated)]
    scores = [
        [dense_scores(capture.queries[layer], capture.keys[layer]) for layer in layers]
        for capture, layers in ((ours, (0, 1)), (theirs, imitated))
    ]
    expected = {
        "embedding": F.mse_loss(project(ours.hidden[0]), theirs.hidden[0]),
        "hidden": sum(hidden) / 2,
        "attention": sum(map(F.mse_loss, *scores)) / 2,
    }
    torch.testing.assert_close(means, {name: value.detach() for name, value in expected.items()})
    assert all(parameter.grad is None for parameter in teacher.parameters())


def dense_scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """(L, heads, size) -> (heads, L, L), as TinyBERT's code makes them."""
    return torch.einsum("lhd,mhd->hlm", q, k) / q.shape[-1] ** 0.5


def row_of(lengths: list[int], slots: int) -> PackedBatch:
    return pack([np.zeros(n) for n in lengths], max_length=90, pad=0, slots=slots)


@pytest.mark.parametrize(
    ("ours", "theirs"), [((3, 8), (3, 8)), ((4, 6), (4, 16)), ((2, 40), (2, 4)), ((2, 8), (6, 4))]
)
def test_attention_scores_are_those_of_whole_matrices(seed, ours, theirs):
    """In float64, value and gradient."""
    batch = row_of([1, 7, 40, 90], 143)
    student, teacher = ([torch.randn(143, *heads).double() for _ in range(2)] for heads in (ours, theirs))
    for x in student:
        x.requires_grad_()
    found = attention_score_sum(tuple(student), tuple(teacher), batch)
    expected = torch.zeros((), dtype=torch.float64)
    for start, end in pairwise(batch.offsets[: batch.real_sequences + 1].tolist()):
        a, b = (dense_scores(q[start:end], k[start:end]) for q, k in (student, teacher))
        if ours[0] != theirs[0]:
            a, b = a.mean(0), b.mean(0)
        expected = expected + F.mse_loss(a, b, reduction="sum")
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    gradients, wanted = (torch.autograd.grad(3 * total, student) for total in (found, expected))
    torch.testing.assert_close(gradients, wanted, rtol=1e-11, atol=1e-12)
    assert not any(one[batch.real_tokens :].any() for one in gradients)


@pytest.mark.parametrize("gram", [False, True])
def test_bf16_projections_are_compared_in_float32(monkeypatch, seed, gram):
    """A student whose scores differ from its teacher's by 3 %: in bfloat16 the value would cancel."""
    monkeypatch.setattr(imitation, "uses_gram", lambda *_: gram)
    batch = row_of([64], 64)
    teacher = [torch.randn(64, 2, 16, dtype=torch.bfloat16) for _ in range(2)]
    student = [(x + 0.03 * torch.randn(64, 2, 16)).bfloat16().requires_grad_() for x in teacher]
    with torch.autocast("cpu", torch.bfloat16):
        found = attention_score_sum(tuple(student), tuple(teacher), batch)
    wide = [x.detach().double().requires_grad_() for x in student]
    expected = attention_score_sum(tuple(wide), tuple(x.double() for x in teacher), batch)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=0)
    gradients, wanted = torch.autograd.grad(found, student), torch.autograd.grad(expected, wide)
    for one, other in zip(gradients, wanted, strict=True):
        assert one.dtype == torch.bfloat16  # its rounding is all that is left
        assert (one.double() - other).norm() < 4e-3 * other.norm()


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_logit_distillation_is_the_soft_cross_entropy(seed, temperature):
    student, random = encoder_of("modern", 12), np.random.default_rng(seed)
    logits = random.normal(size=(3, CLASSES)).astype(np.float32)
    batch = make_batch(replace(examples_of([5, 9, 1], random), targets={TEACHER: logits}), np.arange(3))
    head = randomise(SequenceHead(student, CLASSES))
    means, _ = update(LogitDistillation(head, TASK.imitation(temperature)), student, [batch])
    target = (torch.from_numpy(logits).double() / temperature).softmax(-1)
    chances = (head(student(batch), batch) / temperature).log_softmax(-1)
    torch.testing.assert_close(means["logits"], -(target * chances).sum(-1).mean().detach())
