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
from brimful.model.heads import MaskedLMHead, PretrainingHead, SequenceHead
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
from builders.tables import labelled

ARCHITECTURES = ["modern", "bert", "prenorm"]
VOCABULARY, MAX_LENGTH, CLASSES = 90, 24, 3
TASK = Classification(["a", "b", "c"])

contract = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def _lengths(draw: st.DrawFn) -> list[int]:
    """1 to 12 sequences of 1 to MAX_LENGTH tokens, often one of the shortest or the longest."""
    length = st.one_of(st.sampled_from([1, 2, MAX_LENGTH]), st.integers(1, MAX_LENGTH))
    return draw(st.lists(length, min_size=1, max_size=12))


CASES = {
    "architecture": st.sampled_from(ARCHITECTURES),
    "lengths": _lengths(),
    "rows": st.integers(1, 4),
    "filler": st.integers(0, 40),
    "seed": st.integers(0, 2**31),
}

OTHER_LOSSES = LayerLosses(embedding=0, hidden=0.5, attention=2.0, layer_map="last")


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


@contract
@given(loss_mean=st.sampled_from(["tokens", "sequences"]), pairs=st.booleans(), **CASES)
def test_masked_lm_is_the_same_packed_split_and_alone(
    architecture, lengths, rows, filler, seed, loss_mean, pairs
):
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    encoder = encoder_of(architecture)
    examples = examples_of(lengths, random)
    labels = [np.where(random.random(n) < 0.4, random.integers(0, VOCABULARY, n), IGNORED) for n in lengths]
    kind, head = (MaskedLMAndPairs, PretrainingHead) if pairs else (MaskedLM, MaskedLMHead)
    objective = kind(randomise(head(encoder)), [], loss_mean)
    relation = np.where(random.random(len(lengths)) < 0.7, random.integers(0, 2, len(lengths)), IGNORED)

    def make_batch(chosen: np.ndarray, slots: int | None) -> PackedBatch:
        tokens, segments = ([column[i] for i in chosen] for column in (examples.tokens, examples.segments))
        batch = pack(tokens, segments=segments, max_length=MAX_LENGTH, pad=0, slots=slots)
        pair = torch.full((len(batch.offsets) - 1,), IGNORED)
        pair[: len(chosen)] = torch.from_numpy(relation[chosen])
        batch = replace(batch, targets={"pair": pair})
        return with_predictions(batch, [labels[i] for i in chosen], slots)

    check_contract(objective, encoder, make_batch, lengths, rows, filler, seed)


def examples_batches(examples: Examples) -> Callable[[np.ndarray, int | None], PackedBatch]:
    """Batches of examples in which S is larger than needed where T is."""

    def make_batch(chosen: np.ndarray, slots: int | None) -> PackedBatch:
        batch = pack(
            [examples.tokens[i] for i in chosen],
            segments=[examples.segments[i] for i in chosen],
            max_length=MAX_LENGTH,
            pad=0,
            slots=slots,
            sequence_slots=None if slots is None else slots + 1,
        )
        given = examples.targets["label"][chosen]
        none = np.nan if given.dtype.kind == "f" else IGNORED
        labels = np.full(len(batch.offsets) - 1, none, given.dtype)
        labels[: len(chosen)] = given
        return replace(batch, targets={"label": torch.from_numpy(labels)})

    return make_batch


@contract
@given(**CASES)
def test_classification_is_the_same_packed_split_and_alone(architecture, lengths, rows, filler, seed):
    torch.manual_seed(seed)
    encoder = encoder_of(architecture)
    examples = examples_of(lengths, np.random.default_rng(seed))
    objective = Supervised(TASK, randomise(SequenceHead(encoder, CLASSES)))
    check_contract(objective, encoder, examples_batches(examples), lengths, rows, filler, seed)


@contract
@given(**CASES)
def test_regression_is_the_same_packed_split_and_alone(architecture, lengths, rows, filler, seed):
    torch.manual_seed(seed)
    encoder, random = encoder_of(architecture), np.random.default_rng(seed)
    values = random.normal(size=len(lengths)).astype(np.float32)
    values[0] = IGNORED  # which is a value like any other
    examples = replace(examples_of(lengths, random), targets={"label": values})
    objective = Supervised(Regression(), randomise(SequenceHead(encoder, 1)))
    check_contract(objective, encoder, examples_batches(examples), lengths, rows, filler, seed)


def _weighted(count: int, random: np.random.Generator) -> dict[str, np.ndarray]:
    weights = random.uniform(0.2, 3, count).astype(np.float32)
    return {"label": random.integers(0, CLASSES, count), "weight": weights}


TARGETS: list[tuple[Task, Callable[[list[int], np.random.Generator], dict[str, np.ndarray | Ragged]]]] = [
    (TASK, lambda lengths, random: _weighted(len(lengths), random)),
    (
        MultiLabel(["a", "b"]),
        lambda lengths, random: {  # bits, of which the first says that there is a target
            "labels": np.packbits(np.insert(random.integers(0, 2, (len(lengths), 2)), 0, 1, axis=1), axis=1)
        },
    ),
    (
        TokenClassification(["O", "B-a", "I-a"]),
        lambda lengths, random: {
            "tags": Ragged.of((random.choice([IGNORED, 0, 1, 2], n) for n in lengths), np.int64)
        },
    ),
    (
        QuestionAnswering(),
        lambda lengths, random: {
            "span": np.sort(np.stack([random.integers(0, lengths), random.integers(0, lengths)], 1), 1)
        },
    ),
]


@contract
@given(which=st.integers(0, len(TARGETS) - 1), **CASES)
def test_every_other_task_is_the_same_packed_split_and_alone(
    which, architecture, lengths, rows, filler, seed
):
    task, targets_of = TARGETS[which]
    torch.manual_seed(seed)
    encoder, random = encoder_of(architecture), np.random.default_rng(seed)
    examples = replace(examples_of(lengths, random), targets=targets_of(lengths, random))

    def some(chosen: np.ndarray, slots: int | None) -> PackedBatch:
        return make_batch(examples, chosen, slots, None if slots is None else slots + 1)

    objective = Supervised(task, randomise(task.new_head(encoder)))
    check_contract(objective, encoder, some, lengths, rows, filler, seed)


@contract
@given(
    width=st.sampled_from([16, 12]),
    teacher_layers=st.sampled_from([2, 4]),
    losses=st.sampled_from([LayerLosses(), OTHER_LOSSES]),
    **CASES,
)
def test_layer_distillation_is_the_same_packed_split_and_alone(
    architecture, lengths, rows, filler, seed, width, teacher_layers, losses
):
    torch.manual_seed(seed)
    teacher, student = encoder_of(architecture, layers=teacher_layers), encoder_of(architecture, width)
    examples = examples_of(lengths, np.random.default_rng(seed))
    objective = LayerDistillation(teacher, student, losses)
    randomise(objective.projections)
    check_contract(objective, student, examples_batches(examples), lengths, rows, filler, seed)


@contract
@given(temperature=st.sampled_from([1.0, 2.5]), **CASES)
def test_logit_distillation_is_the_same_packed_split_and_alone(
    architecture, lengths, rows, filler, seed, temperature
):
    torch.manual_seed(seed)
    student, random = encoder_of(architecture, 12), np.random.default_rng(seed)
    logits = random.normal(size=(len(lengths), CLASSES)).astype(np.float32)
    examples = replace(examples_of(lengths, random), targets={TEACHER: logits})

    def some(chosen: np.ndarray, slots: int | None) -> PackedBatch:
        return make_batch(examples, chosen, slots, None if slots is None else slots + 1)

    head = randomise(SequenceHead(student, CLASSES))
    objective = LogitDistillation(head, TASK.imitation(temperature))
    check_contract(objective, student, some, lengths, rows, filler, seed)


# What the terms are, against their formulas


@pytest.fixture
def seed(seed: int) -> int:
    torch.manual_seed(seed)
    return seed


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_masked_lm_is_the_mean_cross_entropy_of_the_predictions(seed, architecture):
    random = np.random.default_rng(seed)
    encoder = encoder_of(architecture)
    head = randomise(MaskedLMHead(encoder))
    batch = pack([random.integers(0, VOCABULARY, 20, dtype=np.int32)], max_length=MAX_LENGTH, pad=0)
    labels = np.full(20, IGNORED)
    labels[[3, 9, 10]] = [5, 0, VOCABULARY - 1]
    means, _ = update(MaskedLM(head, {}), encoder, [with_predictions(batch, [labels], 8)])
    chances = head(encoder(batch)).log_softmax(-1)
    expected = -(chances[3, 5] + chances[9, 0] + chances[10, VOCABULARY - 1]) / 3
    torch.testing.assert_close(means["mlm"], expected.detach())


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


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("width", [16, 12])
@pytest.mark.parametrize("layer_map", ["uniform", "last", (0, 2)])
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


def test_a_student_that_equals_its_teacher_has_no_layer_loss(seed):
    teacher = encoder_of("modern")
    student = teacher.keep_layers([0, 1])
    examples = examples_of([5, 9], np.random.default_rng(seed))
    means, gradients = update(
        LayerDistillation(teacher, student), student, [make_batch(examples, np.arange(2))]
    )
    assert all(float(mean) < 1e-20 for mean in means.values())
    assert all(float(gradient.abs().max()) < 1e-10 for gradient in gradients.values())


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


def test_the_teacher_gets_no_gradient(seed):
    teacher, student = encoder_of("modern"), encoder_of("modern")
    batch = make_batch(examples_of([5, 9], np.random.default_rng(seed)), np.arange(2))
    update(LayerDistillation(teacher, student), student, [batch])
    assert all(parameter.grad is None for parameter in teacher.parameters())


# Figures


def test_classification_metrics_by_hand():
    predicted, labels = np.array([0, 0, 1, 1, 1, 2]), np.array([0, 1, 1, 1, 0, 0])
    figures = TASK.measure(np.eye(3, dtype=np.float32)[predicted], labelled("label", labels))
    assert figures["n"] == 6
    assert figures["accuracy"] == pytest.approx(3 / 6)
    # class 0: 1 hit, 1 false, 2 missed; class 1: 2 hits, 1 false, 1 missed; class 2: 1 false
    assert figures["f1"] == pytest.approx((2 / 5 + 4 / 6 + 0) / 3)
