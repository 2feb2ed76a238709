"""brimful convert: any form of folder becomes one form, checked against transformers."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

from brimful import Encoder
from brimful.cli import main
from brimful.commands import convert as converting
from brimful.commands.convert import convert
from brimful.corpus.tokenize.training import train
from brimful.errors import BrimfulError
from brimful.nn.heads import MaskedLMHead, PretrainingHead, SequenceHead
from brimful.nn.interop import load_model, save_model
from brimful.text.tokenizer import load, special_ids
from builders.encoders import small

TEXTS = ["the room was clean and quiet", "这本书很好看", "not worth the money", "价格太高"] * 10


@pytest.fixture
def folder(tmp_path: Path, seed: int) -> Path:
    """A BERT with both heads of its pretraining and a pooler, pickled, with a vocab.txt."""
    torch.manual_seed(seed)
    tokenizer = train(TEXTS, 80)
    encoder = small("bert", vocabulary_size=tokenizer.get_vocab_size())
    encoder.tokenizer = tokenizer
    path = tmp_path / "given"
    save_model(path, encoder, PretrainingHead(encoder))
    vocabulary = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    (path / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    (path / "tokenizer.json").unlink()
    (path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    torch.save(load_file(path / "model.safetensors"), path / "pytorch_model.bin")
    (path / "model.safetensors").unlink()
    return path


def test_a_pickled_folder_becomes_safetensors(folder, tmp_path, capsys):
    out = tmp_path / "out"
    for _ in range(2):  # an earlier conversion is replaced
        result = convert(folder=str(folder), out=str(out))
    assert result["max_abs_hidden_difference"] < 1e-5
    assert (result["model"], result["left_out"]) == ("BertForPreTraining", [])
    files = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "conversion.json"}
    assert {path.name for path in out.iterdir()} == files
    assert load(out).encode(TEXTS[0]).ids == load(folder).encode(TEXTS[0]).ids
    ours, theirs = load_model(out), load_model(folder)
    assert all(
        torch.equal(one, other)
        for mine, given in zip(ours[:2], theirs[:2], strict=True)
        for one, other in zip(mine.parameters(), given.parameters(), strict=True)
    )
    assert main(["convert", str(folder), "--out", str(out)]) == 0
    line = capsys.readouterr().out
    assert line.startswith(f"{out}: BertForPreTraining, ")
    assert line.endswith(" of transformers'\n")
    assert line.count("\n") == 1
    assert main(["verify", str(out)]) == 0


@pytest.mark.parametrize("name", ["bert", "roberta", "electra", "modern"])
def test_pieces_that_some_texts_do_not_use_are_dropped(tmp_path, capsys, name):
    """Hidden states are those of transformers under the old ids, and the texts keep their vectors."""
    tokenizer = train(TEXTS, 100)
    encoder = small(name, vocabulary_size=tokenizer.get_vocab_size() + 5, pad_id=special_ids(tokenizer).pad)
    encoder.tokenizer = tokenizer
    save_model(tmp_path / "given", encoder, MaskedLMHead(encoder))
    texts = [TEXTS[0], TEXTS[2], "room"] * 10
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    given, out = str(tmp_path / "given"), str(tmp_path / "out")
    result = convert(folder=given, out=out, keep_pieces_of=(str(tmp_path / "texts.txt"),))
    assert result["max_abs_hidden_difference"] < 1e-5
    assert result["pieces"] == result["pruned"]["pieces_after"] < result["pruned"]["pieces_before"]
    smaller, head, _ = load_model(out)
    assert type(head) is MaskedLMHead
    assert smaller.config.vocabulary_size == result["pieces"]
    for one, other in zip(Encoder.load(out).encode(texts), Encoder.load(given).encode(texts), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert main(["convert", given, "--out", out, "--keep-pieces-of", str(tmp_path / "texts.txt")]) == 0
    line = capsys.readouterr().out
    pieces = f"{result['pieces']} pieces of {result['pruned']['pieces_before']}"
    assert pieces in line
    assert "unknown in unseen text: 0.000% before, 0.000% after" in line


def test_a_dry_run_writes_nothing(folder, tmp_path, capsys):
    assert main(["convert", str(folder), "--out", str(tmp_path / "out"), "--dry-run"]) == 0
    assert "nothing was written" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_a_discriminator_leaves_its_head_and_a_classifier_keeps_it(folder, tmp_path, capsys):
    tokenizer = load(folder)
    encoder = small("electra", vocabulary_size=tokenizer.get_vocab_size())
    encoder.tokenizer = tokenizer
    save_model(tmp_path / "one", encoder, SequenceHead(encoder, 3), ["a", "b", "c"])
    result = convert(folder=str(tmp_path / "one"), out=str(tmp_path / "two"))
    assert result["model"] == "ElectraForSequenceClassification"
    assert load_model(tmp_path / "two")[2] == ["a", "b", "c"]
    model = transformers.ElectraForPreTraining(transformers.AutoConfig.from_pretrained(tmp_path / "one"))
    model.save_pretrained(tmp_path / "one")
    result = convert(folder=str(tmp_path / "one"), out=str(tmp_path / "two"))
    assert (result["model"], len(result["left_out"])) == ("ElectraModel", 2)
    assert "left out: discriminator_predictions.dense" in capsys.readouterr().err
    assert type(Encoder.load(tmp_path / "two")) is Encoder


def test_what_differs_is_not_written(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(converting, "max_difference", lambda *_: 2e-3)
    with pytest.raises(BrimfulError, match=r"differ .* by 2\.0e-03; nothing was written"):
        convert(folder=str(folder), out=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_without_transformers_it_is_said(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(converting.importlib.util, "find_spec", lambda name: None)
    assert main(["convert", str(folder), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert "not compared with transformers" in said.out
    assert "transformers is not installed" in said.err


def test_what_cannot_be_converted_is_refused(folder, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(BrimfulError, match="not an earlier conversion"):
        convert(folder=str(folder), out=str(tmp_path / "mine"))
    with pytest.raises(BrimfulError, match="not an earlier conversion"):
        convert(folder=str(folder), out=str(folder))
    with pytest.raises(BrimfulError, match="holds no model"):
        convert(folder=str(tmp_path / "mine"), out=str(tmp_path / "out"))
    (folder / "vocab.txt").unlink()
    with pytest.raises(BrimfulError, match="no tokenizer in"):
        convert(folder=str(folder), out=str(tmp_path / "out"))
    (folder / "sentencepiece.bpe.model").write_bytes(b"x")
    with pytest.raises(BrimfulError, match="is a SentencePiece model"):
        convert(folder=str(folder), out=str(tmp_path / "out"))
    assert isinstance(load_model(folder)[1], MaskedLMHead)
