"""Losses of heads: packed rows == each sequence alone == transformers' own losses, and their gradients."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers.models.modernbert import modeling_modernbert

from brimful.base.types import IGNORED
from brimful.data.batch import PackedBatch, pack
from brimful.hf.folders import HEADS, save_model
from brimful.hf.tensor_names import from_hf
from brimful.model.cross_entropy import count_labels, cross_entropy_sum
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead, PairHead, PretrainingHead, SequenceHead, SpanHead, TokenHead
from brimful.objectives.losses import span_cross_entropy_sum
from brimful.objectives.masked_lm import MaskedLM, MaskedLMAndPairs
from builders.encoders import MODELS, VOCABULARY, padded, random_row, rotate_in_full, run_peer, small

CLASSES = 3
Ours = Callable[[Encoder, nn.Module, PackedBatch], dict[str, tuple[Tensor, float]]]
Theirs = Callable[..., Tensor]


@pytest.fixture(autouse=True, scope="module")
def _rotations_in_float64():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modeling_modernbert, "apply_rotary_pos_emb", rotate_in_full)
        yield


# What each loss is here


def of_objective(make: Callable[..., MaskedLM]) -> Ours:
    def loss(encoder: Encoder, head: nn.Module, batch: PackedBatch):
        objective = make(head, {})
        sums, weights = objective.loss(encoder, batch), objective.normalizers(batch)
        return {term: (sums[term], weights[term]) for term in objective.coefficients}

    return loss


def labels_of(name: str) -> Ours:
    def loss(encoder: Encoder, head: nn.Module, batch: PackedBatch):
        hidden, labels = encoder(batch), batch.targets[name]
        logits = head(hidden) if isinstance(head, TokenHead) else head(hidden, batch)
        return {name: (cross_entropy_sum(logits, labels), count_labels(labels))}

    return loss


def span(encoder: Encoder, head: nn.Module, batch: PackedBatch):
    targets = batch.targets["span"]
    return {"span": (span_cross_entropy_sum(head(encoder(batch)), targets, batch), count_labels(targets) / 2)}


# What it is there: on the padded batch, or as a mean over sequences that stand alone


def padded_labels(batch: PackedBatch, flat: Tensor, real: Tensor) -> Tensor:
    labels = torch.full(real.shape, IGNORED)
    labels[real] = flat[: batch.real_tokens]
    return labels


def masked_labels(batch: PackedBatch) -> Tensor:
    flat = torch.full((len(batch.tokens),), IGNORED)
    used = batch.mlm_labels != IGNORED
    flat[batch.mlm_positions[used]] = batch.mlm_labels[used]
    return flat


def their_masked_lm(model, batch: PackedBatch) -> Tensor:
    options = {}
    if type(model).__name__.endswith("ForPreTraining"):
        options["next_sentence_label"] = batch.targets["pair"][: batch.real_sequences]
    output, real = run_peer(model, batch)
    labels = padded_labels(batch, masked_labels(batch), real)
    if type(model).__name__.startswith("ModernBert"):  # its loss is in float32 whatever the model
        return F.cross_entropy(output.logits.flatten(0, 1), labels.flatten())
    return run_peer(model, batch, labels=labels, **options)[0].loss


def their_labels(name: str) -> Theirs:
    def loss(model, batch: PackedBatch) -> Tensor:
        labels = batch.targets[name][: batch.real_sequences]
        if name == "token":
            labels = padded_labels(batch, batch.targets[name], padded(batch)[1])
        return run_peer(model, batch, labels=labels)[0].loss

    return loss


def their_masked_lm_alone(model, batch: PackedBatch) -> Tensor:
    parts = [part for part in singles(batch) if count_labels(part.mlm_labels)]
    return torch.stack([their_masked_lm(model, part) for part in parts]).mean()


def their_spans_alone(model, batch: PackedBatch) -> Tensor:
    """On sequences alone: on a padded batch their softmax goes over the padding."""
    losses = []
    for part in singles(batch):
        start, end = part.targets["span"][:1].T
        if 0 <= int(start) < len(part.tokens):
            losses.append(run_peer(model, part, start_positions=start, end_positions=end)[0].loss)
    return torch.stack(losses).mean()


class Case(NamedTuple):
    """A head with one of its losses."""

    head: type[nn.Module]
    ours: Ours
    theirs: Theirs


by_sequence = of_objective(lambda head, held_out: MaskedLM(head, held_out, "sequences"))
CASES = {
    "masked-lm": Case(MaskedLMHead, of_objective(MaskedLM), their_masked_lm),
    "masked-lm-by-sequence": Case(MaskedLMHead, by_sequence, their_masked_lm_alone),
    "sequence": Case(SequenceHead, labels_of("label"), their_labels("label")),
    "token": Case(TokenHead, labels_of("token"), their_labels("token")),
    "span": Case(SpanHead, span, their_spans_alone),
    "pair": Case(PairHead, labels_of("pair"), their_labels("pair")),
    "pretraining": Case(PretrainingHead, of_objective(MaskedLMAndPairs), their_masked_lm),
}
WITH_PAIRS = ("bert", "prenorm")
"""The architectures that have the last two in transformers."""
PAIRED = [
    (model, case) for model in MODELS for case in CASES if model in WITH_PAIRS or not case.startswith("p")
]


def make_head(kind: type[nn.Module], encoder: Encoder) -> nn.Module:
    return kind(encoder, CLASSES) if kind in (SequenceHead, TokenHead) else kind(encoder)


@cache
def trio(model_name: str, kind: type[nn.Module]):
    """An encoder, a head, and the class of transformers with their weights, all in float64."""
    encoder = small(model_name, layers=2)
    head = make_head(kind, encoder)
    for parameter in (*encoder.parameters(), *head.parameters()):
        if parameter.ndim == 1:  # so that what norms and biases do is seen
            nn.init.normal_(parameter, mean=0.5, std=0.3)
    with TemporaryDirectory() as folder:
        save_model(Path(folder, "model"), encoder, head)
        auto = getattr(transformers, f"AutoModel{HEADS[kind]}")
        model = auto.from_pretrained(Path(folder, "model"))
    return encoder.double(), head.double(), model.double()


def draw_targets(batch: PackedBatch, random: np.random.Generator, *, spare: int = 5) -> PackedBatch:
    """The batch with targets of every kind, some of them missing; at least one of each is there."""
    lengths = np.array(batch.lengths[: batch.real_sequences])
    T, S = len(batch.tokens), len(batch.offsets) - 1

    def drawn(size: int, slots: int, classes: int) -> Tensor:
        labels = np.full(slots, IGNORED)
        labels[:size] = np.where(random.random(size) < 0.6, random.integers(0, classes, size), IGNORED)
        labels[random.integers(size)] = random.integers(classes)
        return torch.from_numpy(labels)

    words = drawn(batch.real_tokens, T, VOCABULARY).numpy()
    positions, labels = np.zeros(T + spare, np.int64), np.full(T + spare, IGNORED)
    chosen = np.flatnonzero(words != IGNORED)
    positions[: len(chosen)], labels[: len(chosen)] = chosen, words[chosen]

    spans = np.full((S, 2), IGNORED)
    spans[: len(lengths)] = random.integers(0, lengths[:, None], (len(lengths), 2))
    gone = random.random(len(lengths)) < 0.3
    gone[random.integers(len(lengths))] = False
    spans[: len(lengths)][gone] = IGNORED
    targets = {
        "label": drawn(len(lengths), S, CLASSES),
        "pair": drawn(len(lengths), S, 2),
        "token": drawn(batch.real_tokens, T, CLASSES),
        "span": torch.from_numpy(spans),
    }
    return replace(
        batch, mlm_positions=torch.from_numpy(positions), mlm_labels=torch.from_numpy(labels), targets=targets
    )


def singles(batch: PackedBatch) -> Iterator[PackedBatch]:
    masked = masked_labels(batch)
    for index in range(batch.real_sequences):
        part, own = slice(*batch.offsets[index : index + 2].tolist()), slice(index, index + 1)
        tokens, segments = [batch.tokens[part].numpy()], [batch.segments[part].numpy()]
        alone = pack(tokens, segments=segments, max_length=128, pad=0)
        targets = {name: values[part if name == "token" else own] for name, values in batch.targets.items()}
        chosen = (masked[part] != IGNORED).nonzero()[:, 0]
        yield replace(alone, mlm_positions=chosen, mlm_labels=masked[part][chosen], targets=targets)


def our_mean(case: Case, encoder: Encoder, head: nn.Module, batches: list[PackedBatch]):
    """The loss of an update over the batches, and its gradients."""
    for module in (encoder, head):
        module.zero_grad(set_to_none=True)
    parts = [case.ours(encoder, head, batch) for batch in batches]
    weights = {term: sum(part[term][1] for part in parts) for term in parts[0]}
    loss = torch.stack([part[term][0] / weights[term] for part in parts for term in part]).sum()
    loss.backward()
    named = (*encoder.named_parameters(), *head.named_parameters(prefix="head"))
    return loss.detach(), {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in named}


def their_mean(case: Case, encoder: Encoder, model, batch: PackedBatch):
    """transformers' loss, and its gradients under our names."""
    model.zero_grad(set_to_none=True)
    loss = case.theirs(model, batch)
    loss.backward()
    gradients = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in model.named_parameters()}
    prefix = f"{model.base_model_prefix}."
    gradients |= {name.removeprefix(prefix): gradient for name, gradient in gradients.items()}
    reference = Encoder(encoder.config).to(loss.dtype)
    head = make_head(case.head, reference).to(loss.dtype)
    with torch.no_grad():
        reference.embedding.weight.zero_()
    from_hf(reference, encoder.config, gradients)
    from_hf(head, encoder.config, gradients)
    return loss.detach(), {**reference.state_dict(), **head.state_dict(prefix="head.")}


@pytest.mark.cases(8)
@pytest.mark.parametrize(("model_name", "case_name"), PAIRED)
@settings(max_examples=3, suppress_health_check=[HealthCheck.too_slow])
@given(
    lengths=st.lists(st.one_of(st.just(1), st.integers(1, 40)), min_size=1, max_size=6),
    filler=st.integers(0, 150),
    seed=st.integers(0, 2**31),
)
@example(lengths=[1, 128, 1, 3], filler=0, seed=0)  # no filler, and a sequence of the greatest length
@example(lengths=[1], filler=0, seed=0)
def test_packed_equals_alone_equals_transformers(model_name, case_name, lengths, filler, seed):
    """In float64, where rounding is all that differs."""
    torch.manual_seed(seed)
    batch = random_row(lengths, filler, pad=1 if model_name == "roberta" else 0)
    batch = draw_targets(batch, np.random.default_rng(seed))
    case = CASES[case_name]
    encoder, head, model = trio(model_name, case.head)
    expected, wanted = their_mean(case, encoder, model, batch)
    size = max(float(gradient.norm()) for gradient in wanted.values())
    for batches in ([batch], list(singles(batch))):
        loss, gradients = our_mean(case, encoder, head, batches)
        torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-10)
        for name, gradient in gradients.items():
            # Gradients that are zero but for rounding, as the key's bias has, are held to the largest one's;
            # where all are small, rounding is that of a probability less its label, which is up to one.
            bound = 1e-9 * max(float(wanted[name].norm()), 1e-2 * max(size, 1.0))
            assert float((gradient - wanted[name]).norm()) <= bound, name


@pytest.mark.parametrize("case_name", ["span", "masked-lm-by-sequence", "pretraining", "token"])
def test_a_batch_without_targets_has_no_loss(case_name):
    encoder, batch = small("bert"), random_row([5, 1], filler=3)
    nothing = torch.full((9,), IGNORED)
    targets = {"pair": nothing[:5], "token": nothing, "span": torch.full((5, 2), IGNORED)}
    batch = replace(batch, mlm_positions=torch.zeros_like(nothing), mlm_labels=nothing, targets=targets)
    case = CASES[case_name]
    for loss, weight in case.ours(encoder, make_head(case.head, encoder), batch).values():
        assert (float(loss.detach()), weight) == (0, 0)
        loss.backward(retain_graph=True)
    assert all(p.grad is None or not p.grad.any() for p in encoder.parameters())


def test_spans_by_hand():
    """Starts and ends each have their softmax, and each counts half."""
    batch = random_row([3, 1, 2], filler=4)
    logits = torch.randn(10, 2, dtype=torch.float64)
    targets = torch.tensor([[2, 0], [0, 0], [1, IGNORED], *[[IGNORED, IGNORED]] * 3])
    a, c = logits[:3].log_softmax(0), logits[4:6].log_softmax(0)
    expected = -(a[2, 0] + a[0, 1] + 0 + 0 + c[1, 0]) / 2
    torch.testing.assert_close(span_cross_entropy_sum(logits, targets, batch), expected)
    assert span_cross_entropy_sum(logits * 1e30, targets, batch).isfinite()
    assert span_cross_entropy_sum(logits.bfloat16(), targets, batch).dtype == torch.float32
