"""brimful export of folders from elsewhere: any form becomes one form, checked against transformers."""

import json
from contextlib import contextmanager

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

from brimful import Encoder, export
from brimful.base.errors import BrimfulError
from brimful.base.storage import LOCK, atomic_directory
from brimful.cli.main import main
from brimful.commands import export as exporting
from brimful.corpus.text.special_ids import special_ids
from brimful.corpus.text.tokenizer import load
from brimful.corpus.tokenize.vocabulary_training import train
from brimful.exporting import gate as export_check
from brimful.hf import folders
from brimful.hf.folders import load_model, save_model, write_modules
from brimful.hf.model_folder import ModelFolder
from brimful.hf.text_reading import reads_token_types
from brimful.model.heads import MaskedLMHead, PretrainingHead, SequenceHead
from builders.encoders import small

TEXTS = ["the room was clean and quiet", "这本书很好看", "not worth the money", "价格太高"] * 10


@pytest.fixture
def folder(tmp_path, seed):
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
    for _ in range(2):  # an earlier export is replaced
        result = export(run=str(folder), out=str(out))
    assert result["max_abs_hidden_difference"] < 1e-5
    assert (result["model"], result["left_out"]) == ("BertForPreTraining", [])
    files = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "export.json"}
    files |= {"README.md", "example.py"}
    assert {path.name for path in out.iterdir()} == files
    assert load(out).encode(TEXTS[0]).ids == load(folder).encode(TEXTS[0]).ids
    ours, theirs = load_model(out), load_model(folder)
    assert all(
        torch.equal(one, other)
        for mine, given in zip(ours[:2], theirs[:2], strict=True)
        for one, other in zip(mine.parameters(), given.parameters(), strict=True)
    )
    assert main(["export", str(folder), "--out", str(out)]) == 0
    assert "BertForPreTraining, " in capsys.readouterr().out
    assert main(["inspect", str(out), "--verify"]) == 0


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    "name",
    ["roberta", "modern", *(pytest.param(name, marks=pytest.mark.slow) for name in ("bert", "electra"))],
)
def test_pieces_that_some_texts_do_not_use_are_dropped(tmp_path, name):
    """Hidden states are those of transformers under the old ids, and the texts keep their vectors."""
    tokenizer = train(TEXTS, 100)
    encoder = small(name, vocabulary_size=tokenizer.get_vocab_size() + 5, pad_id=special_ids(tokenizer).pad)
    encoder.tokenizer = tokenizer
    save_model(tmp_path / "given", encoder, MaskedLMHead(encoder))
    texts = [TEXTS[0], TEXTS[2], "room"] * 10
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    given, out = str(tmp_path / "given"), str(tmp_path / "out")
    result = export(run=given, out=out, keep_pieces_of=(str(tmp_path / "texts.txt"),))
    assert result["max_abs_hidden_difference"] < 1e-5
    assert result["pieces"] == result["pruned"]["pieces_after"] < result["pruned"]["pieces_before"]
    smaller, head, _ = load_model(out)
    assert type(head) is MaskedLMHead
    assert smaller.config.vocabulary_size == result["pieces"]
    for one, other in zip(Encoder.load(out).encode(texts), Encoder.load(given).encode(texts), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_all_fields_of_the_texts_are_read_and_what_is_wrong_is_said(folder, tmp_path, capsys):
    rows = [{"a": TEXTS[0], "text_b": TEXTS[1], "c": TEXTS[2]}] * 40
    lines = [json.dumps(row) for row in rows] + ["{broken", json.dumps({"text_b": "x"})]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    table = "a\ttext_b\n" + "\n".join(f"{row['c']}\t{row['a']}" for row in rows)
    (tmp_path / "pairs.tsv").write_text(table)
    given = {"run": str(folder), "out": str(tmp_path / "out")}
    files = (str(tmp_path / "pairs.jsonl"), str(tmp_path / "pairs.tsv"))
    with pytest.raises(BrimfulError, match=r"set --read\.field"):
        export(**given, keep_pieces_of=files)
    result = export(**given, keep_pieces_of=files, read={"field": "a"}, more_fields=["c"])
    said = " ".join(capsys.readouterr().err.split())
    assert f"{files[0]}: broken JSON lines: 1" in said
    assert f"{files[0]}: records without a text 'a': 1" in said
    assert f"{files[1]}: no field 'c': 1" in said
    assert "no field 'text_b'" not in said
    assert result["pruned"]["texts"] == 3 * 40 + 1 + 2 * 40
    before, after = load(folder), load(tmp_path / "out")
    for text in rows[0].values():
        assert after.encode(text).tokens == before.encode(text).tokens


def test_the_padding_token_of_config_json_stays(folder, tmp_path):
    """It may be a plain piece that no text uses; without a piece it is refused."""
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[::2]), encoding="utf-8")
    options = {"run": str(folder), "keep_pieces_of": (str(tmp_path / "texts.txt"),)}
    pieces = load(folder).get_vocab()
    unused = next(piece for piece in pieces if "书" in piece)
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | {"pad_token_id": pieces[unused]}))
    assert export(**options, out=str(tmp_path / "out"))["max_abs_hidden_difference"] < 1e-5
    assert load(tmp_path / "out").id_to_token(Encoder.load(tmp_path / "out").config.pad_id) == unused
    values |= {"pad_token_id": len(pieces), "vocab_size": len(pieces) + 1}
    (folder / "config.json").write_text(json.dumps(values))
    tensors = torch.load(folder / "pytorch_model.bin")
    for name, tensor in tensors.items():
        if len(tensor) == len(pieces):
            tensors[name] = torch.cat((tensor, tensor[:1]))
    torch.save(tensors, folder / "pytorch_model.bin")
    with pytest.raises(BrimfulError, match=f"needs the id {len(pieces)}, which has no piece"):
        export(**options, out=str(tmp_path / "other"))


def test_a_discriminator_leaves_its_head_and_a_classifier_keeps_it(folder, tmp_path, capsys):
    tokenizer = load(folder)
    encoder = small("electra", vocabulary_size=tokenizer.get_vocab_size())
    encoder.tokenizer = tokenizer
    save_model(tmp_path / "one", encoder, SequenceHead(encoder, 3), ["a", "b", "c"])
    result = export(run=str(tmp_path / "one"), out=str(tmp_path / "two"))
    assert result["model"] == "ElectraForSequenceClassification"
    assert load_model(tmp_path / "two")[2] == ["a", "b", "c"]
    model = transformers.ElectraForPreTraining(transformers.AutoConfig.from_pretrained(tmp_path / "one"))
    model.save_pretrained(tmp_path / "one")
    result = export(run=str(tmp_path / "one"), out=str(tmp_path / "two"))
    assert (result["model"], len(result["left_out"])) == ("ElectraModel", 2)
    assert "left out: discriminator_predictions.dense" in capsys.readouterr().err
    assert type(Encoder.load(tmp_path / "two")) is Encoder


@pytest.mark.parametrize("classifier", [False, True])
def test_a_folder_of_sentence_transformers_stays_one(tmp_path, capsys, classifier):
    tokenizer = train(TEXTS, 80)
    encoder = small("bert", vocabulary_size=tokenizer.get_vocab_size())
    encoder.tokenizer = tokenizer
    given, out = tmp_path / "given", tmp_path / "out"
    head = SequenceHead(encoder, 2, pooling="mean") if classifier else None
    save_model(given, encoder, head, max_length=50, token_types=False)
    if not classifier:
        write_modules(given, encoder.config.hidden_size, "first", 50)
        settings = json.dumps({"max_seq_length": 50, "do_lower_case": True}, indent=1)
        (given / "sentence_bert_config.json").write_text(settings + "\n")
        (given / "config_sentence_transformers.json").write_text('{"prompts": {"query": "query: "}}')
        modules = json.loads((given / "modules.json").read_text())
        modules.append({"idx": 2, "name": "2", "path": "2_Normalize", "type": "models.Normalize"})
        (given / "modules.json").write_text(json.dumps(modules))
    result = export(run=str(given), out=str(out))
    assert result["left_out"] == []
    assert "left out" not in capsys.readouterr().err
    files = ["sentence_bert_config.json", "1_Pooling/config.json"]
    files += ["modules.json", "2_Dense/config.json", "2_Dense/model.safetensors"] if classifier else []
    assert all((out / file).read_bytes() == (given / file).read_bytes() for file in files)
    prompts = "config_sentence_transformers.json"
    assert classifier or (out / prompts).read_bytes() == (given / prompts).read_bytes()
    loaded, loaded_head, _ = load_model(out)
    assert loaded.pooling == ModelFolder(out).pooling == ("mean" if classifier else "first")
    assert (loaded_head is not None) is classifier
    assert not reads_token_types(ModelFolder(out), loaded.config)
    assert main(["inspect", str(out), "--verify"]) == 0


def test_what_differs_is_not_written(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(export_check, "measure_difference", lambda *_: (2e-3, 2e-3))
    with pytest.raises(BrimfulError, match=r"differ .* by 2\.0e-03; nothing was written"):
        export(run=str(folder), out=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_large_hidden_states_may_differ_by_their_rounding(folder, tmp_path):
    """With weights of 50 in the last norm, float32 rounds by more than 1e-4."""
    tensors = torch.load(folder / "pytorch_model.bin")
    name = max(name for name in tensors if name.endswith("output.LayerNorm.weight"))
    torch.save(tensors | {name: tensors[name] * 500}, folder / "pytorch_model.bin")
    assert export(run=str(folder), out=str(tmp_path / "out"))["max_abs_hidden_difference"] > 1e-4


def test_without_transformers_a_warning_names_it(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(export_check.importlib.util, "find_spec", lambda name: None)
    assert main(["export", str(folder), "--out", str(tmp_path / "out")]) == 0
    assert "transformers is not installed" in capsys.readouterr().err


def test_a_setting_that_only_transformers_refuses_is_named(folder, tmp_path):
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | {"bos_token_id": "x"}))
    with pytest.raises(BrimfulError, match=r"cannot load .*given; .*bos_token_id"):
        export(run=str(folder), out=str(tmp_path / "out"))


@pytest.mark.filterwarnings("error")
def test_weights_that_overflow_are_named(folder, tmp_path):
    tensors = torch.load(folder / "pytorch_model.bin")
    tensors["bert.embeddings.position_embeddings.weight"][:, ::2] = 3.4e38
    torch.save(tensors, folder / "pytorch_model.bin")
    with pytest.raises(BrimfulError, match="given: the model's outputs are NaN or infinite"):
        export(run=str(folder), out=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_exported_is_refused(folder, tmp_path):
    for name in ("mine/notes.txt", "earlier/export.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("{}")
    for run, out, message in (
        ("given", "mine", "not an earlier export"),
        ("given", "given", "not an earlier export"),
        ("mine", "out", "holds no model"),
        ("given", "earlier/x/y", r"is in the export .*earlier"),
    ):
        with pytest.raises(BrimfulError, match=message):
            export(run=str(tmp_path / run), out=str(tmp_path / out))
    (folder / "vocab.txt").unlink()
    with pytest.raises(BrimfulError, match=r"no tokenizer in .*given"):
        export(run=str(folder), out=str(tmp_path / "out"))
    (folder / "sentencepiece.bpe.model").write_bytes(b"x")
    with pytest.raises(BrimfulError, match="SentencePiece"):
        export(run=str(folder), out=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_folder_is_locked_while_a_model_is_exported_to_it(folder, tmp_path, monkeypatch):
    """What another process is told: tests/base/test_folder_lock.py."""
    out = tmp_path / "out"
    locks = []

    def save(*given, **options):
        locks.append((out / LOCK).exists())
        save_model(*given, **options)

    monkeypatch.setattr(folders, "save_model", save)
    export(run=str(folder), out=str(out))
    assert locks == [True]
    assert not (out / LOCK).exists()


def test_an_interrupt_says_that_nothing_was_written(folder, tmp_path, monkeypatch, capsys):
    """Until the folder has its name."""
    line = ["export", str(folder), "--out", str(tmp_path / "out")]

    @contextmanager
    def late(*arguments):
        with atomic_directory(*arguments) as place:
            yield place
        raise KeyboardInterrupt

    def early(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(folders, "save_model", early)
        assert main(line) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "brimful: interrupted; nothing was written"
    assert not (tmp_path / "out").exists()
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(exporting, "atomic_directory", late)
            assert main(line) == 130
        assert capsys.readouterr().err.splitlines()[-1] == "brimful: interrupted"
        assert (tmp_path / "out" / "export.json").exists()
