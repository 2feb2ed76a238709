"""Heads: logits and gradients equal to transformers'."""

import pytest
import torch
import transformers
from test_encoder import ARCHITECTURES, VOCABULARY, padded, random_row, run_peer, small
from torch import nn

from brimful.errors import BrimfulError
from brimful.nn.heads import MaskedLMHead, SequenceHead
from brimful.nn.interop import save_model
from brimful.nn.padded import PaddedModel


@pytest.fixture(autouse=True)
def _random(seed: int) -> None:
    torch.manual_seed(seed)


def folder_as(directory, encoder, head, kind):
    save_model(directory, encoder, head)
    return kind.from_pretrained(directory).eval()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_masked_lm_logits_equal_transformers(tmp_path, architecture):
    encoder = small(architecture).eval()
    head = MaskedLMHead(encoder).eval()
    nn.init.normal_(head.bias)
    nn.init.uniform_(head.norm.weight, 0.5, 2)
    batch = random_row([1, 60, 22, 128], filler=20)
    model = folder_as(tmp_path / "model", encoder, head, transformers.AutoModelForMaskedLM)
    positions = torch.randperm(batch.real_tokens)[:50]
    with torch.no_grad():
        logits = head(encoder(batch), positions)
        output, real = run_peer(model, batch)
    assert logits.shape == (50, VOCABULARY)
    torch.testing.assert_close(logits, output.logits[real][positions], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_masked_lm_head_is_tied(architecture):
    encoder = small(architecture)
    head = MaskedLMHead(encoder)
    assert not any(p is encoder.embedding.weight for p in head.parameters())
    batch = random_row([20])
    head(encoder(batch), torch.tensor([3])).logsumexp(-1).sum().backward()
    assert encoder.embedding.weight.grad[:VOCABULARY].abs().sum(1).gt(0).all()
    assert not encoder.embedding.weight.grad[VOCABULARY:].any()


@pytest.mark.parametrize(
    ("architecture", "pooling"), [("bert", "first"), ("modern", "first"), ("modern", "mean")]
)
def test_sequence_logits_equal_transformers(tmp_path, architecture, pooling):
    encoder = small(architecture).eval()
    head = SequenceHead(encoder, 3, pooling=pooling).eval()
    batch = random_row([1, 60, 22, 128], filler=20)
    model = folder_as(tmp_path / "model", encoder, head, transformers.AutoModelForSequenceClassification)
    with torch.no_grad():
        logits = head(encoder(batch), batch)
        output, _ = run_peer(model, batch)
    assert logits.shape == (batch.offsets.numel() - 1, 3)
    assert logits.isfinite().all()
    torch.testing.assert_close(logits[:4], output.logits, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_empty_slots_and_filler_have_no_gradient(pooling):
    encoder = small("modern").double()
    head = SequenceHead(encoder, 2, pooling=pooling).double()
    batch = random_row([5, 9], filler=40)
    head(encoder(batch), batch)[: batch.real_sequences].square().sum().backward()
    assert not encoder.embedding.weight.grad[0].any()
    assert all(p.grad.isfinite().all() for p in (*encoder.parameters(), *head.parameters()))


def test_bert_classifiers_know_no_mean():
    with pytest.raises(BrimfulError, match="pooling 'mean'"):
        SequenceHead(small("bert"), 2, pooling="mean")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kind", [None, MaskedLMHead, SequenceHead])
def test_padded_model_equals_packed(architecture, kind):
    encoder = small(architecture).eval()
    head = kind(encoder, *([3] if kind is SequenceHead else [])) if kind else None
    batch = random_row([1, 60, 22, 128])
    inputs, real = padded(batch)
    model = PaddedModel(encoder, head.eval() if head else None)
    with torch.no_grad():
        got = model(**inputs)
        hidden = encoder(batch)
        if isinstance(head, SequenceHead):
            torch.testing.assert_close(got, head(hidden, batch)[:4], atol=1e-5, rtol=1e-4)
        else:
            expected = head(hidden) if head else hidden
            torch.testing.assert_close(got[real], expected, atol=1e-5, rtol=1e-4)
