"""Larger vocabularies: what old ids score stays, new rows are means. Smaller ones: nothing else changes."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import transformers

from brimful.hf.folders import save_model
from brimful.model.heads import MaskedLMHead, PretrainingHead, SequenceHead
from brimful.start.vocabulary import extend_vocabulary, keep_rows
from builders.encoders import MODELS, random_row, run_peer, small


@pytest.fixture(autouse=True)
def _random(seed: int) -> None:
    torch.manual_seed(seed)


def model_of(name: str, kind: type[MaskedLMHead] = MaskedLMHead, **changes):
    """In float64, with a bias that is not zero."""
    encoder = small(name, layers=2, **changes).double().eval()
    head = kind(encoder).double().eval()
    torch.nn.init.normal_(head.bias)
    return encoder, head


@pytest.mark.parametrize("kind", [MaskedLMHead, PretrainingHead])
@pytest.mark.parametrize("name", MODELS)
def test_old_ids_score_as_before_and_new_ones_the_mean_of_theirs_less_what_is_lent(name, kind):
    encoder, head = model_of(name, kind)
    size = encoder.config.vocabulary_size
    spelled = {size: [5, 9, 9], size + 1: [40], size + 2: [], size + 3: [40, 41], size + 80: [7, 8]}
    known = list(range(size - 3))
    larger, grown = extend_vocabulary(encoder, head, spelled, known)
    assert type(grown) is kind
    assert larger.config.vocabulary_size == size + 81
    assert len(larger.embedding.weight) % 64 == 0
    assert not larger.embedding.weight[size + 81 :].any()
    assert not larger.training
    assert not grown.training
    batch = random_row([3, 60, 1, 128], pad=encoder.config.pad_id)
    with torch.no_grad():
        before, hidden = head(encoder(batch)), larger(batch)
        after = grown(hidden)
        # The same sums in another order, of matrices with more rows.
        torch.testing.assert_close(after[:, :size], before, atol=1e-12, rtol=1e-12)
        for index, parts in spelled.items():
            # 40 is lent to a whole piece, to half of another, and to the one that is made of all.
            lent = 1.5 + 1 / len(known) if 40 in (parts or known) else 1
            wanted = before[:, parts or known].mean(1) - math.log(lent)
            torch.testing.assert_close(after[:, index], wanted, atol=1e-11, rtol=1e-11)
        if kind is PretrainingHead:
            pair = head.pair(encoder(batch), batch)
            torch.testing.assert_close(grown.pair(hidden, batch), pair, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("name", ["bert", "modern"])
def test_new_pieces_never_outweigh_the_old_ones(name, seed):
    """Whatever the hidden state, and though they are many and share their parts."""
    draw = random.Random(seed)
    encoder, head = model_of(name)
    size = encoder.config.vocabulary_size
    common = draw.sample(range(size), 4)
    spelled = {
        size + i: draw.choices(common, k=draw.randint(1, 3)) + draw.choices(range(size), k=draw.randint(0, 2))
        for i in range(500)
    }
    _, grown = extend_vocabulary(encoder, head, spelled, range(size))
    with torch.no_grad():
        # Also transformed states at which a common piece is all but certain.
        states = torch.cat([head.transform(encoder(random_row([100]))), 30 * encoder.word_embeddings[common]])
        shares = F.linear(states, *grown.decoder).softmax(-1)[:, size:].sum(-1)
    assert 1e-3 < shares.max() <= 0.5


def test_spare_rows_are_taken_first():
    encoder, head = model_of("bert")
    size = encoder.config.vocabulary_size
    larger, grown = extend_vocabulary(encoder, head, {size - 2: [3, 4]}, range(size - 2))
    assert larger.config == encoder.config
    changed = (larger.word_embeddings != encoder.word_embeddings).any(1).nonzero().flatten().tolist()
    assert changed == [size - 2]
    torch.testing.assert_close(grown.bias[size - 2], head.bias[[3, 4]].mean())  # each is lent by half


def test_without_a_head_the_encoder_alone_grows():
    encoder, _ = model_of("modern")
    size = encoder.config.vocabulary_size
    larger, head = extend_vocabulary(encoder, None, {size: [3, 4]}, range(size))
    assert head is None
    torch.testing.assert_close(larger.word_embeddings[size], encoder.word_embeddings[[3, 4]].mean(0))


@pytest.mark.parametrize("name", MODELS)
def test_transformers_reads_what_was_extended_tied_as_before(tmp_path, name):
    """Its own resize of the unextended model, with the new rows written by hand, is the reference."""
    encoder, head = model_of(name)
    size = encoder.config.vocabulary_size
    save_model(tmp_path / "before", encoder, head)
    larger, grown = extend_vocabulary(encoder, head, {size: [5, 9], size + 1: [40, 41, 42]}, range(size))
    save_model(tmp_path / "after", larger, grown)
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(
        tmp_path / "before", dtype=torch.float64
    ).eval()
    theirs.resize_token_embeddings(size + 2, mean_resizing=False)
    weight, decoder = theirs.get_input_embeddings().weight, theirs.get_output_embeddings()
    with torch.no_grad():
        for tensor in (weight, decoder.bias):
            tensor[size] = tensor[[5, 9]].mean(0)
            tensor[size + 1] = tensor[[40, 41, 42]].mean(0)
    ours = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "after", dtype=torch.float64).eval()
    assert ours.get_input_embeddings().weight.data_ptr() == ours.get_output_embeddings().weight.data_ptr()
    batch = random_row([30, 100], pad=encoder.config.pad_id)
    batch.tokens[::7] = size
    batch.tokens[3::7] = size + 1
    with torch.no_grad():
        wanted, real = run_peer(theirs, batch)
        found, _ = run_peer(ours, batch)
        torch.testing.assert_close(found.logits[real], wanted.logits[real], atol=1e-11, rtol=1e-11)
        # Their rotary positions are float32.
        torch.testing.assert_close(grown(larger(batch)), wanted.logits[real], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", [None, MaskedLMHead, PretrainingHead, SequenceHead])
@pytest.mark.parametrize("name", MODELS)
def test_kept_rows_give_the_same_states_and_scores(name, kind):
    encoder = small(name).eval()
    head = kind and kind(encoder, **({"classes": 3} if kind is SequenceHead else {})).eval()
    if isinstance(head, MaskedLMHead):
        torch.nn.init.normal_(head.bias)
    # The padding token gets another id, which in RoBERTa moves the positions.
    kept = [5, 7, 4, encoder.config.pad_id, *range(20, 91, 3)]
    smaller, narrowed = keep_rows(encoder, head, np.array(kept))
    assert (smaller.config.vocabulary_size, smaller.config.pad_id) == (len(kept), 3)
    assert smaller.config.max_length == encoder.config.max_length
    assert not smaller.training
    batch = random_row([1, 40, 128, 13], filler=20)
    batch.tokens[: batch.real_tokens].remainder_(len(kept))
    batch.tokens[batch.tokens == 3] = 4
    old = replace(batch, tokens=torch.tensor(kept, dtype=batch.tokens.dtype)[batch.tokens.long()])
    with torch.no_grad():
        hidden = smaller(batch)
        torch.testing.assert_close(hidden, encoder(old), atol=0, rtol=0)
        if isinstance(head, MaskedLMHead):
            torch.testing.assert_close(narrowed(hidden), head(hidden)[:, kept], atol=1e-5, rtol=1e-5)
        if isinstance(head, PretrainingHead):
            assert torch.equal(narrowed.pair(hidden, batch), head.pair(hidden, batch))
    if kind in (None, SequenceHead):
        assert narrowed is head
    assert smaller.embedding.weight[len(kept) :].count_nonzero() == 0


def test_rows_that_cannot_be_kept_are_refused():
    encoder = small("bert")
    for kept in ([1, 2], [0, 1, 1], [0, -1], [0, 100], []):
        with pytest.raises(ValueError, match="kept"):
            keep_rows(encoder, None, kept)
