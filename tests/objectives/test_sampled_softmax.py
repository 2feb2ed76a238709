"""Sampled softmax: the pieces that predictions are scored against, and what their scores stand for."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from brimful.base.distributed import World
from brimful.base.types import IGNORED
from brimful.data.batch import PackedBatch, pack
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead
from brimful.objectives.masked_lm import MaskedLM
from brimful.objectives.sampled_softmax import sample_vocabulary
from brimful.train.metrics import count_batches
from brimful.train.objective import Runtime
from builders.encoders import VOCABULARY, small
from builders.scores import never_small

RUNTIME = Runtime(World(0, 1, torch.device("cpu")), "fp32")


@given(
    vocabulary=st.integers(2, 300),
    labels=st.lists(st.integers(0, 299), max_size=40),
    unused=st.integers(0, 5),
    more=st.integers(0, 50),
    seed=st.integers(0, 2**31),
)
@settings(deadline=None)
def test_the_sampled_pieces_are_the_labels_the_frequent_and_others(vocabulary, labels, unused, more, seed):
    given_labels = [label % vocabulary for label in labels] + [IGNORED] * unused
    torch.manual_seed(seed)
    tensor = torch.tensor(given_labels, dtype=torch.int64)[torch.randperm(len(given_labels))]
    count = max(1, len(tensor) + more)
    assume(count < vocabulary)
    bias = torch.randn(vocabulary)
    found = sample_vocabulary(tensor, bias, count)
    pieces, used = found.pieces.tolist(), tensor != IGNORED
    distinct = set(tensor[used].tolist())
    frequent = distinct | set(bias.argsort(descending=True)[: count // 4].tolist())
    if len(frequent) < count:
        distinct = frequent
    assert len(set(pieces)) == len(pieces) == count
    assert distinct <= set(pieces) <= set(range(vocabulary))
    assert torch.equal(found.pieces[found.labels[used]], tensor[used])
    assert (found.labels[~used] == IGNORED).all()
    drawn = count - len(distinct)
    stands_for = np.log((vocabulary - len(distinct)) / drawn) if drawn else np.nan
    expected = [0.0 if piece in distinct else stands_for for piece in pieces]
    torch.testing.assert_close(found.shift, torch.tensor(expected, dtype=torch.float32))


def test_other_pieces_are_drawn_each_as_likely_and_the_sum_of_exponentials_has_the_right_mean(seed):
    """Over 4,000 draws: each frequency and the mean within 5 standard errors, which a right one misses once
    in tens of thousands of these tests."""
    torch.manual_seed(seed)
    vocabulary, count, draws = 60, 20, 4000
    labels = torch.tensor([3, 3, 41, IGNORED, 7])
    scores = torch.randn(vocabulary, dtype=torch.float64)
    bias = torch.randn(vocabulary)
    fixed = sorted({3, 41, 7, *bias.argsort(descending=True)[:5].tolist()})
    chosen, sums = torch.zeros(vocabulary), []
    for _ in range(draws):
        sampled = sample_vocabulary(labels, bias, count)
        chosen[sampled.pieces] += 1
        sums.append(float((scores[sampled.pieces] + sampled.shift).exp().sum()))
    assert (chosen[fixed] == draws).all()
    others = np.delete(chosen.numpy(), fixed)
    share = (count - len(fixed)) / (vocabulary - len(fixed))
    assert np.abs(others - draws * share).max() < 5 * (draws * share * (1 - share)) ** 0.5
    assert abs(np.mean(sums) - float(scores.exp().sum())) < 5 * np.std(sums) / draws**0.5


def model(architecture: str = "modern") -> tuple[Encoder, MaskedLMHead]:
    encoder = small(architecture).double()
    head = MaskedLMHead(encoder).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return encoder, head


def batch_of(random: np.random.Generator) -> PackedBatch:
    """Some slots of predictions are not used."""
    batch = pack([random.integers(2, VOCABULARY, n, dtype=np.int32) for n in (20, 9)], max_length=64, pad=0)
    labels = torch.full((16,), IGNORED)
    labels[:13] = torch.from_numpy(random.integers(0, VOCABULARY, 13))
    values = vars(batch) | {"mlm_positions": torch.arange(16), "mlm_labels": labels, "predictions": 13}
    return PackedBatch(**values)


@pytest.mark.parametrize("small_form", [True, False])
@pytest.mark.parametrize("loss_mean", ["tokens", "sequences"])
def test_the_loss_and_its_gradients_are_those_of_the_formula(seed, monkeypatch, loss_mean, small_form):
    """In float64, against logarithms of weighted sums over the sampled pieces."""
    if not small_form:
        never_small(monkeypatch)
    torch.manual_seed(seed)
    encoder, head = model()
    batch = batch_of(np.random.default_rng(seed))
    objective = MaskedLM(head, {}, loss_mean, 40)
    parameters = [*encoder.parameters(), *head.parameters()]

    torch.manual_seed(seed + 1)
    sums = objective.loss(encoder, batch)
    found = torch.autograd.grad(sums["mlm"], parameters)

    torch.manual_seed(seed + 1)
    matrix, bias = head.decoder
    sampled = sample_vocabulary(batch.mlm_labels, bias, 40)
    hidden = head.transform(encoder(batch)[:13])
    weights = torch.zeros(VOCABULARY, dtype=torch.float64)
    weights[sampled.pieces] = sampled.shift.double().exp()
    scores = hidden @ matrix.t() + bias
    losses = (scores.exp() * weights).sum(1).log() - scores[torch.arange(13), batch.mlm_labels[:13]]
    if loss_mean == "sequences":  # all are in the first one
        losses = losses / 13
    torch.testing.assert_close(sums["mlm"], losses.sum(), rtol=1e-6, atol=0)  # shifts are in float32
    expected = torch.autograd.grad(losses.sum(), parameters)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("count", [VOCABULARY, 10 * VOCABULARY])
def test_the_whole_vocabulary_is_not_sampled(seed, count):
    torch.manual_seed(seed)
    encoder, head = model("bert")
    batch = batch_of(np.random.default_rng(seed))
    exact, sampled = (MaskedLM(head, {}, "tokens", number) for number in (None, count))
    assert torch.equal(exact.loss(encoder, batch)["mlm"], sampled.loss(encoder, batch)["mlm"])


def test_the_sampled_pieces_are_as_many_as_predictions_at_least(seed):
    torch.manual_seed(seed)
    encoder, head = model("bert")
    batch = batch_of(np.random.default_rng(seed))
    losses = []
    for count in (1, len(batch.mlm_labels)):
        torch.manual_seed(seed + 1)
        losses.append(MaskedLM(head, {}, "tokens", count).loss(encoder, batch)["mlm"])
    assert torch.equal(*losses)


def test_an_evaluation_covers_the_vocabulary(seed):
    torch.manual_seed(seed)
    encoder, head = model()
    held_out = {"a": [batch_of(np.random.default_rng(seed))]}
    with torch.no_grad():
        exact, sampled = (
            MaskedLM(head, held_out, "tokens", number).evaluate(encoder, RUNTIME) for number in (None, 40)
        )
    assert exact == sampled


def test_flops_are_those_of_the_sampled_pieces(seed):
    torch.manual_seed(seed)
    encoder, head = model()
    batch = batch_of(np.random.default_rng(seed))
    for asked, scored in ((40, 40), (3, 16), (10 * VOCABULARY, VOCABULARY)):
        number = MaskedLM(head, {}, "tokens", asked).sampled
        exact, some = (count_batches([batch], encoder.config, n)["flops"] for n in (None, number))
        assert exact - some == 6 * 13 * (VOCABULARY - scored) * encoder.config.embedding_width
