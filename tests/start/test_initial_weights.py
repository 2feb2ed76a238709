"""Weights that a new model starts with: heads that look at neighbours, a vocabulary that is known."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from brimful.base.config import build, read_yaml
from brimful.base.errors import BrimfulError
from brimful.commands.pretrain import pretrain
from brimful.corpus.shards import Corpus
from brimful.model.encoder import Capture, Encoder
from brimful.model.heads import MaskedLMHead
from brimful.model.presets import preset
from brimful.optim.config import OptimizerConfig
from brimful.stages.pretrain_config import PretrainConfig
from brimful.start.initial_weights import OFFSETS, look_at_neighbours, start_from_neighbourhoods
from brimful.start.neighbourhoods import piece_vectors
from brimful.train.trainer import Trainer
from builders.encoders import VOCABULARY, random_row


@pytest.fixture(autouse=True)
def _random(seed: int) -> None:
    torch.manual_seed(seed)


@pytest.mark.parametrize(
    ("name", "changes", "looking"),
    [
        ("tiny", {}, 1),
        ("tiny", {"layers": 1}, 1),
        ("mini", {"layers": 3}, 2),
        ("mini", {}, 3),
        ("mini", {"layers": 6}, 3),
        ("mini", {"hidden_size": 104, "heads": 4}, 3),
        ("mini", {"rope_theta": 160_000.0, "global_every": 2, "local_attention": 64}, 3),
    ],
)
@pytest.mark.parametrize("knows", [False, True])
def test_heads_of_the_first_layers_look_at_their_neighbours(name, changes, looking, knows):
    encoder = Encoder(preset(name, vocabulary_size=VOCABULARY, **changes)).double()
    if knows:  # vectors of very different lengths
        vectors = np.random.default_rng(0).standard_normal((VOCABULARY, encoder.config.hidden_size))
        vectors *= np.geomspace(0.01, 10, VOCABULARY)[:, None]
        head = MaskedLMHead(encoder).double()
        start_from_neighbourhoods(encoder, head, vectors, np.full(VOCABULARY, 1 / VOCABULARY))
    before = [layer.qkv.weight.detach().clone() for layer in encoder.layers]
    look_at_neighbours(encoder)
    shape = encoder.config
    length = 90
    batch = random_row([length])
    capture = Capture()
    with torch.no_grad():
        encoder(batch, capture=capture)
    heads = min(len(OFFSETS), shape.heads)
    inner = torch.arange(4, length - 4)
    for index in range(looking):
        q, k = (x[index].transpose(0, 1) for x in (capture.queries, capture.keys))
        seen = (q @ k.mT / shape.head_dim**0.5).softmax(-1)
        for head, offset in zip(range(heads), OFFSETS, strict=False):
            by_offset = {d: float(seen[head, inner, inner + d].mean()) for d in range(-4, 5)}
            assert by_offset.pop(offset) > max(0.2, 1.4 * max(by_offset.values())), (index, head)
    for index, (layer, old) in enumerate(zip(encoder.layers, before, strict=True)):
        changed = (layer.qkv.weight != old).any(1).view(3, shape.heads, -1).any(-1)
        assert changed.sum() == (2 * heads if index < looking else 0)


def test_the_common_part_of_the_embeddings_changes_no_prediction():
    encoder = Encoder(preset("tiny", vocabulary_size=400)).double()
    head = MaskedLMHead(encoder).double()
    hidden = torch.randn(20, 128, dtype=torch.float64)
    before = head(hidden).softmax(-1)
    padding = encoder.embedding.weight[400:].clone()
    look_at_neighbours(encoder)
    torch.testing.assert_close(head(hidden).softmax(-1), before)
    assert torch.equal(encoder.embedding.weight[400:], padding)


def test_a_head_of_a_known_vocabulary_predicts_frequencies_before_it_has_seen_anything():
    encoder = Encoder(preset("tiny", vocabulary_size=400))
    head = MaskedLMHead(encoder)
    frequencies = np.arange(400) / np.arange(400).sum()
    vectors = np.random.default_rng(0).standard_normal((400, 128), np.float32)
    vectors[7] = 0
    start_from_neighbourhoods(encoder, head, vectors, frequencies)
    found = encoder.word_embeddings.detach()
    assert float(found.std()) == pytest.approx(encoder.config.initializer_range, rel=0.1)
    assert found[7].norm() < found[8].norm()
    assert torch.cosine_similarity(found[8:], torch.from_numpy(vectors[8:])).mean() > 0.8
    scores = head(torch.zeros(1, 128))[0].softmax(0)
    np.testing.assert_allclose(scores.detach().numpy(), frequencies, atol=1e-5)


def test_what_is_known_of_few_pieces_is_as_large_as_random_embeddings():
    encoder = Encoder(preset("tiny", vocabulary_size=400))
    vectors = np.zeros((400, 128), np.float32)
    vectors[:4] = np.random.default_rng(0).standard_normal((4, 128))
    start_from_neighbourhoods(encoder, MaskedLMHead(encoder), vectors, np.full(400, 1 / 400))
    found = encoder.word_embeddings.detach()
    assert float(found[:4].std()) == pytest.approx(encoder.config.initializer_range, rel=0.2)


def test_held_out_documents_say_nothing(corpus_dir, tmp_path, monkeypatch):
    read = []

    def vectors(corpora, width, seed):
        read.extend(shard.split for corpus in corpora for shard in corpus.shards)
        return piece_vectors(corpora, width, seed)

    monkeypatch.setattr("brimful.stages.pretrain.piece_vectors", vectors)
    pretrain.run(settings(corpus_dir, tmp_path / "a"))
    assert set(read) == {"train"}
    assert {shard.split for shard in Corpus.open(corpus_dir).shards} == {"train", "validation"}


def settings(corpus_dir, out, **options):
    steps = {"trainer": {"steps": 1, "log_every": 1}, "packing": {"max_length": 32, "capacity": 64}}
    return build(PretrainConfig, {"data": corpus_dir, "out": out, "model": "tiny"} | steps | options)


def start_of(config) -> dict[str, torch.Tensor]:
    """What a run starts with: it learns nothing."""
    pretrain.run(replace(config, optimizer=OptimizerConfig(learning_rate=0.0)))
    return load_file(Path(config.out) / "encoder" / "model.safetensors")


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    ("options", "attention", "vocabulary"),
    [
        ({}, "neighbours", "data"),
        ({"initial": {"attention": "random"}}, "random", "data"),
        ({"initial": {"vocabulary": "random"}}, "neighbours", "random"),
        ({"architecture": "bert"}, "random", "random"),
        ({"architecture": "prenorm", "initial": {"vocabulary": "data"}}, "random", "data"),
    ],
)
def test_a_run_starts_with_the_weights_that_it_says(corpus_dir, tmp_path, options, attention, vocabulary):
    plain = {"attention": "random", "vocabulary": "random"}
    found = start_of(settings(corpus_dir, tmp_path / "a", **options))
    random = start_of(settings(corpus_dir, tmp_path / "b", **options | {"initial": plain}))
    chosen = {"attention": attention, "vocabulary": vocabulary}
    assert read_yaml(tmp_path / "a" / "config.yaml")["initial"] == chosen
    (embeddings,) = (name for name in found if "tok_embeddings.w" in name or "word_embeddings" in name)
    (queries,) = (name for name in found if "s.0.attn.Wqkv" in name or ".0.attention.self.query.w" in name)
    bias = "decoder.bias" if "decoder.bias" in found else "cls.predictions.bias"
    assert torch.equal(found[bias], random[bias]) == (vocabulary == "random")
    assert torch.equal(found[queries], random[queries]) == (attention == "random")
    assert torch.equal(found[embeddings], random[embeddings]) == (attention == vocabulary == "random")


def test_a_run_killed_before_its_first_update_starts_with_the_same_weights(corpus_dir, tmp_path, monkeypatch):
    expected = start_of(settings(corpus_dir, tmp_path / "a"))
    config = replace(settings(corpus_dir, tmp_path / "b"), optimizer=OptimizerConfig(learning_rate=0.0))
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pretrain.run(config)
    monkeypatch.setattr("brimful.stages.pretrain.piece_vectors", interrupt)  # what it started with is kept
    pretrain.run(PretrainConfig(resume=str(tmp_path / "b")))
    found = load_file(tmp_path / "b" / "encoder" / "model.safetensors")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)


def interrupt(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "options",
    [
        {"architecture": "bert", "initial": {"attention": "neighbours"}},
        {"start_from": "somewhere", "initial": {"vocabulary": "data"}, "model": None},
    ],
)
def test_weights_that_a_model_cannot_start_with_are_refused(corpus_dir, tmp_path, options):
    with pytest.raises(BrimfulError, match="initial"):
        settings(corpus_dir, tmp_path / "run", **options)
