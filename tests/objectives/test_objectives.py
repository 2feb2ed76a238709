"""The contract of objectives: named sums, divided by weights that are known beforehand.

So a packed batch, its sequences one by one, and any split into micro-batches are the same loss with the same
gradients. In float64 they agree to 1e-10.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brimful.base.distributed import World
from brimful.base.types import IGNORED
from brimful.commands.pretrain import pretrain
from brimful.data.batch import PackedBatch, pack
from brimful.data.example_batches import make_batch
from brimful.data.examples import Examples
from brimful.data.ragged import Ragged
from brimful.model.encoder import Capture, Encoder
from brimful.model.heads import PretrainingHead, SequenceHead
from brimful.model.shape import EncoderConfig
from brimful.objectives.imitation import TEACHER, LayerDistillation, LogitDistillation
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
from builders.tables import bits_of, labelled

ARCHITECTURES = ["modern", "bert", "prenorm"]
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
    config = EncoderConfig(
        architecture=architecture,
        vocabulary_size=VOCABULARY,
        hidden_size=hidden,
        layers=layers,
        heads=2,
        intermediate_size=20,
        max_length=MAX_LENGTH,
        local_attention=6,
        global_every=2,
    )
    return randomise(Encoder(config))


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


def with_predictions(batch: PackedBatch, labels: list[np.ndarray], slots: int | None = None) -> PackedBatch:
    """The batch with the labels of each of its sequences (IGNORED: no prediction), in M `slots`."""
    flat = np.concatenate(labels)
    chosen = np.flatnonzero(flat != IGNORED)
    size = len(chosen) if slots is None else slots
    positions, targets = np.zeros(size, np.int64), np.full(size, IGNORED, np.int64)
    positions[: len(chosen)], targets[: len(chosen)] = chosen, flat[chosen]
    return replace(batch, mlm_positions=torch.from_numpy(positions), mlm_labels=torch.from_numpy(targets))


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
    objective: Objective,
    encoder: Encoder,
    make_batch: Callable[[np.ndarray, int | None], PackedBatch],
    lengths: list[int],
    rows: int,
    filler: int,
    seed: int,
) -> None:
    """One by one, all in one row with filler, and micro-batches of random rows with filler are equal."""
    count = len(lengths)
    alone = update(objective, encoder, [make_batch(np.array([index]), None) for index in range(count)])
    packed = update(objective, encoder, [make_batch(np.arange(count), sum(lengths) + filler)])
    random = np.random.default_rng(seed)
    dealt = [
        make_batch(chosen, sum(lengths[i] for i in chosen) + filler) for chosen in spread(count, rows, random)
    ]
    split = update(objective, encoder, dealt)
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


Targets = dict[str, np.ndarray | Ragged]


def draw_label_sets(lengths: list[int], random: np.random.Generator) -> Targets:
    return {"labels": bits_of(random.integers(0, 2, (len(lengths), 2)))}


def draw_weighted_classes(lengths: list[int], random: np.random.Generator) -> Targets:
    weights = random.uniform(0.2, 3, len(lengths)).astype(np.float32)
    return {"label": random.integers(0, CLASSES, len(lengths)), "weight": weights}


def draw_values(lengths: list[int], random: np.random.Generator) -> Targets:
    values = random.normal(size=len(lengths)).astype(np.float32)
    values[0] = IGNORED  # which is a value like any other
    return {"label": values}


def draw_tags(lengths: list[int], random: np.random.Generator) -> Targets:
    return {"tags": Ragged.of([random.choice([IGNORED, 0, 1, 2], n) for n in lengths], np.int64)}


def draw_spans(lengths: list[int], random: np.random.Generator) -> Targets:
    return {"span": np.sort(random.integers(0, np.array(lengths)[:, None], (len(lengths), 2)), 1)}


def draw_logits(lengths: list[int], random: np.random.Generator) -> Targets:
    return {TEACHER: random.normal(size=(len(lengths), CLASSES)).astype(np.float32)}


TARGETS: dict[str, tuple[Task, Callable[[list[int], np.random.Generator], Targets]]] = {
    "classes": (TASK, draw_weighted_classes),
    "values": (Regression(), draw_values),
    "label sets": (MultiLabel(["a", "b"]), draw_label_sets),
    "tags": (TokenClassification(["O", "B-a", "I-a"]), draw_tags),
    "spans": (QuestionAnswering(), draw_spans),
    "logits": (TASK, draw_logits),
}


def batch_maker(examples: Examples) -> Callable[[np.ndarray, int | None], PackedBatch]:
    """Make batches of examples, in which S is larger than needed where T is."""

    def some(chosen: np.ndarray, slots: int | None) -> PackedBatch:
        return make_batch(examples, chosen, slots, None if slots is None else slots + 1)

    return some


@pytest.mark.parametrize("kind", TARGETS)
@contract
@given(temperature=st.sampled_from([1.0, 2.5]), **CASES)
def test_every_task_is_the_same_packed_split_and_alone(
    kind, architecture, lengths, rows, filler, seed, temperature
):
    task, draw_targets = TARGETS[kind]
    torch.manual_seed(seed)
    encoder, random = encoder_of(architecture), np.random.default_rng(seed)
    examples = replace(examples_of(lengths, random), targets=draw_targets(lengths, random))
    head = randomise(task.new_head(encoder))
    objective = Supervised(task, head)
    if kind == "logits":
        objective = LogitDistillation(head, task.imitation(temperature))
    check_contract(objective, encoder, batch_maker(examples), lengths, rows, filler, seed)


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
    check_contract(objective, student, batch_maker(examples), lengths, rows, filler, seed)


# What the terms are, against their formulas


@pytest.fixture
def seed(seed):
    torch.manual_seed(seed)
    return seed


@pytest.mark.parametrize("loss_mean", ["tokens", "sequences"])
def test_evaluation_is_what_is_trained(seed, monkeypatch, loss_mean):
    """Over two batches of several slices: the same means as an update's, and shares of right answers."""
    monkeypatch.setattr("brimful.objectives.masked_lm.PREDICTIONS_AT_ONCE", 3)
    random = np.random.default_rng(seed)
    encoder = encoder_of("bert")
    head = randomise(PretrainingHead(encoder))
    batches = []
    for lengths in ([9, 1, 20], [24, 7]):
        sequences = [random.integers(0, VOCABULARY, n, dtype=np.int32) for n in lengths]
        labels = [
            np.where(random.random(n) < 0.5, random.integers(0, VOCABULARY, n), IGNORED) for n in lengths
        ]
        labels[0][0] = 5
        batch = pack(sequences, max_length=MAX_LENGTH, pad=0, slots=50)
        pair = torch.full((len(batch.offsets) - 1,), IGNORED)
        pair[: len(lengths) - 1] = torch.from_numpy(random.integers(0, 2, len(lengths) - 1))
        batches.append(replace(with_predictions(batch, labels, 50), targets={"pair": pair}))
    objective = MaskedLMAndPairs(head, {"a": batches[:1], "b": batches[1:]}, loss_mean)
    with torch.no_grad():
        figures = objective.evaluate(encoder, Runtime(World(0, 1, torch.device("cpu")), "fp32"))
    means, _ = update(objective, encoder, batches)
    assert figures["loss"] == pytest.approx(float(means["mlm"]), rel=1e-12)
    for name, batch in zip("ab", batches, strict=True):
        own, _ = update(objective, encoder, [batch])
        assert figures[f"loss.{name}"] == pytest.approx(float(own["mlm"]), rel=1e-12)
    assert figures["pair_loss"] == pytest.approx(float(means["pair"]), rel=1e-12)
    by_token, _ = update(MaskedLM(head, {}), encoder, batches)
    assert figures.get("token_loss", figures["loss"]) == pytest.approx(float(by_token["mlm"]), rel=1e-12)
    assert ("token_loss" in figures) == (loss_mean == "sequences")
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
    ("architecture", "width", "layer_map"),
    [("modern", 16, "uniform"), ("bert", 12, "last"), ("prenorm", 12, (0, 2))],
)
def test_layer_distillation_is_tinyberts_mean_squares(seed, architecture, width, layer_map):
    """Against the formulas on one sequence: hidden states, scores before softmax."""
    teacher, student = encoder_of(architecture, layers=4), encoder_of(architecture, width)
    objective = LayerDistillation(teacher, student, LayerLosses(layer_map=layer_map))
    imitated = {"uniform": (1, 3), "last": (2, 3)}.get(layer_map, layer_map)
    randomise(objective.projections)
    random = np.random.default_rng(seed)
    batch = pack([random.integers(0, VOCABULARY, 11, dtype=np.int32)], max_length=MAX_LENGTH, pad=0)
    theirs, ours = Capture(), Capture()
    teacher(batch, capture=theirs)
    student(batch, capture=ours)
    means, _ = update(objective, student, [batch])
    (project,) = objective.projections or [torch.nn.Identity()]

    def scores(capture: Capture, layer: int) -> torch.Tensor:
        q, k = capture.queries[layer], capture.keys[layer]
        return torch.einsum("ihd,jhd->hij", q, k) / q.shape[-1] ** 0.5

    hidden = [F.mse_loss(project(ours.hidden[m + 1]), theirs.hidden[g + 1]) for m, g in enumerate(imitated)]
    attention = [F.mse_loss(scores(ours, m), scores(theirs, g)) for m, g in enumerate(imitated)]
    expected = {
        "embedding": F.mse_loss(project(ours.hidden[0]), theirs.hidden[0]),
        "hidden": sum(hidden) / 2,
        "attention": sum(attention) / 2,
    }
    torch.testing.assert_close(means, {name: value.detach() for name, value in expected.items()})
    assert all(parameter.grad is None for parameter in teacher.parameters())


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


# Figures


def test_classification_metrics_by_hand():
    predicted, labels = np.array([0, 0, 1, 1, 1, 2]), np.array([0, 1, 1, 1, 0, 0])
    figures = TASK.measure(np.eye(3, dtype=np.float32)[predicted], labelled("label", labels))
    assert figures["n"] == 6
    assert figures["accuracy"] == pytest.approx(3 / 6)
    assert figures["f1"] == pytest.approx((2 / 5 + 4 / 6 + 0) / 3)
