"""Heads: logits equal to transformers'."""

import pytest
import torch
import transformers
from torch import nn

from brimful.base.errors import BrimfulError
from brimful.exporting.padded_model import PaddedModel
from brimful.hf.folders import HEADS, save_model
from brimful.hf.tensor_names import from_hf, to_hf
from brimful.model.encoder import Encoder
from brimful.model.heads import (
    MaskedLMHead,
    PairHead,
    PretrainingHead,
    SequenceHead,
    SpanHead,
    TokenHead,
    pool,
)
from brimful.model.presets import preset
from brimful.stages.task_trainings import start_transform
from builders.encoders import MODELS, padded, peer, peer_class, random_row, run_peer, small


def make_head(kind, encoder, classes=3):
    return kind(encoder, classes) if kind in (SequenceHead, TokenHead) else kind(encoder)


def folder_as(directory, encoder, head):
    """What transformers reads from a folder of the model."""
    save_model(directory, encoder, head)
    return getattr(transformers, f"AutoModel{HEADS[type(head)]}").from_pretrained(directory).eval()


@pytest.mark.parametrize("architecture", ["bert", "prenorm", "modern"])
def test_initial_weights_of_heads_spread_as_in_transformers(architecture):
    """Deviations of two draws of n numbers differ by 1 / sqrt(n) of their size: within six times this."""
    config = preset("tiny", architecture, vocabulary_size=512, layers=3)
    encoder = Encoder(config)
    their_config = peer_class(config).config
    kinds = [MaskedLMHead, SequenceHead, TokenHead, SpanHead]
    for kind in kinds if architecture == "modern" else [*kinds, PairHead, PretrainingHead]:
        their_config.num_labels = 128 if kind in (SequenceHead, TokenHead) else 2
        ours, theirs = (make_head(kind, encoder, classes=128) for _ in range(2))
        auto = getattr(transformers, f"AutoModel{HEADS[kind]}")
        from_hf(theirs, config, auto.from_config(their_config).state_dict())
        for name, tensor in ours.state_dict().items():
            expected = theirs.state_dict()[name]
            if tensor.ndim == 2:  # 128 numbers, where there is one class
                tolerance = 6 / tensor.numel() ** 0.5
                assert float(tensor.std()) == pytest.approx(float(expected.std()), rel=tolerance), name
            else:
                assert torch.equal(tensor, expected), name


class Halve(nn.Module):
    """Dropout that draws nothing: where it stands shows in the result."""

    def forward(self, x):
        return x / 2


@pytest.mark.parametrize("model_name", MODELS)
@pytest.mark.parametrize("kind", [SequenceHead, TokenHead, SpanHead])
def test_classifiers_drop_where_transformers_does(tmp_path, model_name, kind):
    encoder = small(model_name, dropout=0.1).eval()
    head = SequenceHead(encoder, 3, pooling="first") if kind is SequenceHead else make_head(kind, encoder)
    for bias in (head.classifier.bias, getattr(head.dense, "bias", None)):
        if bias is not None:
            nn.init.normal_(bias)
    model = folder_as(tmp_path / "model", encoder, head)
    owner = "drop" if model_name == "modern" else "dropout"
    if kind is SequenceHead and model_name in ("roberta", "electra"):
        owner = "classifier.dropout"
    if kind is SpanHead and model_name != "modern":
        assert not hasattr(model, owner)
        assert isinstance(head.dropout, nn.Identity)
    else:
        assert model.get_submodule(owner).p == head.dropout.p == 0.1
        head.dropout = Halve()
        model.set_submodule(owner, Halve())
    batch = random_row([1, 60, 22, 128], pad=encoder.config.pad_id)
    with torch.no_grad():
        output, real = run_peer(model, batch)
        hidden = encoder(batch)
    if isinstance(head, SequenceHead):
        torch.testing.assert_close(head(hidden, batch)[:4], output.logits, atol=1e-5, rtol=1e-4)
    else:
        scores = output.logits if kind is TokenHead else torch.stack(output[:2], -1)
        torch.testing.assert_close(head(hidden), scores[real], atol=1e-5, rtol=1e-4)


def test_pair_heads_drop_nothing():
    encoder = small("bert", dropout=0.5)
    head = PairHead(encoder).train()
    batch = random_row([5, 9])
    hidden = encoder.eval()(batch)
    assert torch.equal(head(hidden, batch), head(hidden, batch))


@pytest.mark.parametrize("model_name", MODELS)
@pytest.mark.parametrize("kind", [SequenceHead, TokenHead, SpanHead])
def test_heads_start_from_the_transforms_of_pretraining(model_name, kind):
    """As where transformers loads a pretrained folder into the class of a task: in modern from the transform
    of the masked-LM head, in BERT from the pooler."""
    encoder = small(model_name)
    pretrained, head = PretrainingHead(encoder), make_head(kind, encoder)
    nn.init.uniform_(pretrained.norm.weight, 0.5, 2)
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    taken = start_transform(head, encoder.config, to_hf(pretrained, encoder.config))
    pooled = model_name in ("bert", "prenorm") and kind is SequenceHead
    assert taken is (pooled or model_name == "modern")
    source = pretrained.pair if pooled else pretrained
    for name, tensor in head.state_dict().items():
        new = name.startswith("classifier") or not taken
        assert torch.equal(tensor, before[name] if new else source.state_dict()[name])


@pytest.mark.parametrize("model_name", ["bert", "prenorm", "roberta"])
def test_the_mean_goes_to_the_classifier_as_it_is(model_name):
    """Logits of transformers' encoder, a mean over its tokens, and one matrix; in float64."""
    encoder = small(model_name).double()
    head = SequenceHead(encoder, 3, pooling="mean", dropout=0.1).double().eval()
    assert {name for name, _ in head.named_parameters()} == {"classifier.weight", "classifier.bias"}
    nn.init.normal_(head.classifier.bias)
    head.dropout = Halve()
    batch = random_row([1, 60, 22, 128], filler=20, pad=encoder.config.pad_id)
    output, real = run_peer(peer(encoder), batch)
    mean = torch.stack([hidden[tokens].mean(0) for hidden, tokens in zip(output[0], real, strict=True)])
    theirs = mean / 2 @ head.classifier.weight.T + head.classifier.bias
    torch.testing.assert_close(head(encoder(batch), batch)[:4], theirs, atol=1e-10, rtol=1e-10)


def test_a_new_head_pools_as_the_encoder_was_trained():
    for model_name in MODELS:
        encoder = small(model_name)
        assert SequenceHead(encoder, 2).pooling == ("mean" if model_name == "modern" else "first")
        for pooling in ("mean", "first"):
            encoder.pooling = pooling
            assert SequenceHead(encoder, 2).pooling == pooling
            assert encoder.keep_layers([0]).pooling == pooling
    with pytest.raises(BrimfulError, match=r"unknown pooling 'means': did you mean 'mean'\?"):
        SequenceHead(encoder, 2, pooling="means")


@pytest.mark.parametrize("model_name", MODELS)
@pytest.mark.parametrize("kind", [None, MaskedLMHead, SequenceHead, PairHead, TokenHead, SpanHead])
def test_padded_model_equals_packed(model_name, kind):
    encoder = small(model_name).eval()
    head = make_head(kind, encoder) if kind else None
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


@pytest.mark.parametrize("pooling", ["mean", "first", "max"])
def test_pooling_is_that_of_each_sequence_by_itself(pooling, seed):
    torch.manual_seed(seed)
    batch = random_row([5, 1, 3])
    hidden = torch.randn(9, 4, dtype=torch.float64)
    one_by_one = {
        "mean": lambda part: part.mean(0),
        "first": lambda part: part[0],
        "max": lambda part: part.amax(0),
    }
    expected = [one_by_one[pooling](part) for part in hidden.split([5, 1, 3])]
    pooled = pool(hidden, batch, pooling)
    torch.testing.assert_close(pooled[:3], torch.stack(expected))
    assert pooled.shape == (len(batch.offsets) - 1, hidden.shape[1])
