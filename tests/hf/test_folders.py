"""Folders that do not say what they hold, or hold it elsewhere: Google's, TinyBERT's, old ones of others."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hf.test_families import KINDS, check_numbers, refuse, their_config
from safetensors.torch import load_file

from brimful import Encoder, export
from brimful.base.errors import BrimfulError
from brimful.hf.folders import load_model
from brimful.hf.model_folder import ModelFolder
from brimful.model.heads import MaskedLMHead, PretrainingHead
from brimful.runs.inputs import model_files
from builders.encoders import word_tokenizer

# The keys of bert_config.json of BERT, and what Chinese-BERT-wwm and TinyBERT's config.json have more.
GOOGLE = """
attention_probs_dropout_prob hidden_act hidden_dropout_prob hidden_size initializer_range intermediate_size
max_position_embeddings num_attention_heads num_hidden_layers type_vocab_size vocab_size
"""
WWM = {"directionality": "bidi", "pooler_fc_size": 768, "pooler_type": "first_token_transform"}
TINY = {"cell": {}, "emb_size": 32, "pre_trained": "", "structure": [], "training": ""}


def hundred(family: str) -> transformers.PretrainedConfig:
    """A configuration with room for the words of `word_tokenizer`."""
    config = their_config(family)
    config.vocab_size = 100
    return config


def as_google(path: Path, name: str = "config.json", **more: Any) -> None:
    """Rewrite a config.json with Google's keys and some more, under another name."""
    values = {key: value for key, value in json.loads(path.read_text()).items() if key in GOOGLE.split()}
    path.unlink()
    path.with_name(name).write_text(json.dumps(values | more))


def as_bin(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")


@pytest.mark.parametrize("name", ["bert_config.json", "config.json"])
@pytest.mark.parametrize("more", [{}, WWM, TINY], ids=["google", "wwm", "tiny"])
@pytest.mark.parametrize("kind", ["Model", "ForMaskedLM", "ForPreTraining"])
def test_a_configuration_that_can_only_be_berts(tmp_path, name, more, kind):
    """A download has bert_config.json, a pytorch_model.bin and a vocab.txt, and nothing says BERT."""
    model = KINDS[kind].from_config(their_config("bert"))
    model.save_pretrained(tmp_path)
    as_bin(tmp_path)
    as_google(tmp_path / "config.json", name, **more)
    assert ModelFolder.open(tmp_path, "encoder").path == tmp_path
    check_numbers(tmp_path, model, kind)
    head = load_model(tmp_path)[1]
    assert type(head) is {"Model": type(None), "ForMaskedLM": MaskedLMHead}.get(kind, PretrainingHead)
    assert f"e/{name}" in model_files("e", ModelFolder(tmp_path))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"type_vocab_size": 1}, 'does not say what it describes: add "model_type", one of bert, roberta'),
        ({"embedding_size": 16}, "does not say what it describes"),
        ({"max_relative_position": 64}, "does not say what it describes"),
        ({"hidden_size": None}, "lacks 'hidden_size'"),
        ({"architectures": ["AlbertModel"]}, "does not say what it describes"),
        ({"architectures": ["BertGenerationEncoder"]}, "does not say what it describes"),
        ({"model_type": "ernie"}, "model_type 'ernie' is not supported"),
    ],
)
def test_what_may_be_another_model_is_refused(tmp_path, changes, match):
    KINDS["Model"].from_config(their_config("bert")).save_pretrained(tmp_path)
    as_google(tmp_path / "config.json", **changes)
    refuse(tmp_path, match)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_an_old_folder_of_sentence_transformers(tmp_path, family, capsys):
    """Its encoder is in 0_Transformer, with its tokenizer and the length of texts."""
    model = KINDS["Model"].from_config(hundred(family))
    encoder_folder = tmp_path / "st" / "0_Transformer"
    model.save_pretrained(encoder_folder)
    word_tokenizer(family).save(str(encoder_folder / "tokenizer.json"))
    plain = Encoder.load(encoder_folder)
    as_bin(encoder_folder)
    (encoder_folder / f"sentence_{family}_config.json").write_text(json.dumps({"max_seq_length": 40}))
    (tmp_path / "st" / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 32, "pooling_mode_cls_token": True}
    (tmp_path / "st" / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    kinds = {"0_Transformer": "Transformer", "1_Pooling": "Pooling"}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds.items())
    ]
    (tmp_path / "st" / "modules.json").write_text(json.dumps(modules))
    folder = ModelFolder.open(tmp_path / "st", "encoder")
    encoder = Encoder.load(folder.path)
    assert encoder.pooling == "first"
    assert folder.text_length(encoder.config) == 40
    check_numbers(folder.path, model, "Model")
    np.testing.assert_array_equal(encoder.embed(["w1 w2"]), plain.embed(["w1 w2"], "first"))
    names = ("config.json", "pytorch_model.bin", "tokenizer.json", f"sentence_{family}_config.json")
    wanted = {f"e/0_Transformer/{name}" for name in names}
    assert wanted <= model_files("e", folder).keys()
    export(run=str(folder), out=str(tmp_path / "new"))
    assert "transformers does not find" not in capsys.readouterr().err  # it compares with 0_Transformer
    np.testing.assert_array_equal(Encoder.load(tmp_path / "new").embed(["w1 w2"]), encoder.embed(["w1 w2"]))
    shutil.rmtree(encoder_folder)
    with pytest.raises(BrimfulError, match="holds no model"):
        ModelFolder.open(tmp_path / "st", "encoder")


def test_export_makes_a_usual_folder_of_such_a_one(tmp_path):
    model = KINDS["ForPreTraining"].from_config(hundred("bert")).eval()
    model.save_pretrained(tmp_path / "old")
    word_tokenizer().save(str(tmp_path / "old" / "tokenizer.json"))
    as_bin(tmp_path / "old")
    as_google(tmp_path / "old" / "config.json", "bert_config.json")
    result = export(run=str(tmp_path / "old"), out=str(tmp_path / "new"))
    assert result["max_abs_hidden_difference"] is None  # transformers does not find bert_config.json
    assert result["max_abs_logit_difference"] < 1e-5
    again = transformers.AutoModelForPreTraining.from_pretrained(tmp_path / "new")
    for peer in (model, again):
        check_numbers(tmp_path / "new", peer, "ForPreTraining")
    assert type(load_model(tmp_path / "new")[1]) is PretrainingHead
