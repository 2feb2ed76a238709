"""Folders: ours in transformers, theirs here, and what is refused."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models

from brimful import Encoder
from brimful.base.console import record_warnings
from brimful.base.errors import BrimfulError
from brimful.commands.export import list_unread_modules
from brimful.exporting.exported_model import keep_rows
from brimful.hf.config_json import family_of
from brimful.hf.folders import HEADS, load_model, load_pretrained, save_model
from brimful.hf.model_folder import ModelFolder
from brimful.hf.text_reading import reads_token_types
from brimful.model.heads import MaskedLMHead, PretrainingHead, SequenceHead, TokenHead
from brimful.tasks.task_model import load_task_model
from builders.encoders import MODELS, random_row, run_peer, small, word_tokenizer

ROBERTAS = ["roberta", "xlm-roberta", "camembert"]
FAMILIES = ["bert", *ROBERTAS, "electra", "megatron-bert", "modernbert"]
NAMES = "Model ForMaskedLM ForSequenceClassification ForTokenClassification ForQuestionAnswering"
NAMES += " ForNextSentencePrediction ForPreTraining"
KINDS = {kind: getattr(transformers, f"AutoModel{kind.removeprefix('Model')}") for kind in NAMES.split()}
WITH_PAIRS = ("bert", "megatron-bert")
"""The families whose classes have the last two heads."""
FOLDERS = [(f, k) for f in FAMILIES for k in list(KINDS)[: None if f in WITH_PAIRS else -2]]


def their_config(family: str, **options):
    shared = {"vocab_size": 70, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2}
    shared |= {"intermediate_size": 48, "initializer_range": 0.1}
    shared["max_position_embeddings"] = 130 if family in ROBERTAS else 128
    if family == "modernbert":
        names = ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
        shared |= {"pad_token_id": 0, "local_attention": 10} | dict.fromkeys(names, 1)
    return transformers.AutoConfig.for_model(family, **shared, **options)


def check_numbers(folder: Path, model: transformers.PreTrainedModel, kind: str) -> None:
    """The outputs of a folder here are those of the model in transformers."""
    encoder, head, _ = load_model(folder)
    batch = random_row([1, 40, 128, 13], filler=20, pad=encoder.config.pad_id)
    batch.tokens[: batch.real_tokens].remainder_(68).add_(2)
    with torch.no_grad():
        output, real = run_peer(model.eval(), batch)
        hidden = encoder(batch)
        if isinstance(head, SequenceHead):
            torch.testing.assert_close(head(hidden, batch)[:4], output[0], atol=1e-5, rtol=1e-5)
            return
        ours = (hidden if head is None else head(hidden))[: batch.real_tokens]
        theirs = torch.stack(output[:2], -1) if kind == "ForQuestionAnswering" else output[0]
        torch.testing.assert_close(ours, theirs[real], atol=1e-5, rtol=1e-5)
        if isinstance(head, PretrainingHead):
            scores = head.pair(hidden, batch)[:4]
            torch.testing.assert_close(scores, output.seq_relationship_logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("family", "kind"), FOLDERS)
def test_their_folders_give_the_same_here_and_come_back_unchanged(tmp_path, family, kind):
    labels = {"id2label": {0: "bad", 1: "good", 2: "so-so"}} if kind.endswith("Classification") else {}
    model = KINDS[kind].from_config(their_config(family, **labels)).eval()
    model.save_pretrained(tmp_path / "theirs")

    encoder, head, found_labels = load_model(tmp_path / "theirs")
    assert encoder.config.max_length == 128
    assert found_labels == (["bad", "good", "so-so"] if labels else None)
    check_numbers(tmp_path / "theirs", model, kind)
    save_model(tmp_path / "ours", encoder, head, found_labels)
    theirs, ours = (load_file(tmp_path / place / "model.safetensors") for place in ("theirs", "ours"))
    if kind == "Model":
        theirs = {key: tensor for key, tensor in theirs.items() if not key.startswith("pooler")}
    assert theirs.keys() == ours.keys()
    assert all(torch.equal(theirs[key], ours[key]) for key in ours)
    written = json.loads((tmp_path / "ours/config.json").read_text())
    original = json.loads((tmp_path / "theirs/config.json").read_text())
    tokens = {"bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"}  # ours come from a tokenizer
    ours_alone = {"classifier_dropout", "label2id"}
    for key in written.keys() & original.keys() - tokens - ours_alone:
        assert written[key] == original[key], key


@pytest.mark.parametrize("model_name", MODELS)
@pytest.mark.parametrize("with_head", [None, *HEADS])
def test_our_folders_come_back_bit_for_bit(tmp_path, model_name, with_head):
    encoder = small(model_name)
    encoder.tokenizer = word_tokenizer(model_name)
    options = {"classes": 2} if with_head in (SequenceHead, TokenHead) else {}
    head = with_head and with_head(encoder, **options)
    save_model(tmp_path / "model", encoder, head, ["no", "yes"] if options else None)
    loaded, loaded_head, labels = load_model(tmp_path / "model")
    assert labels == (["no", "yes"] if options else None)
    assert type(loaded_head) is (with_head or type(None))
    assert loaded.config == encoder.config
    assert loaded.tokenizer.get_vocab() == encoder.tokenizer.get_vocab()
    assert not loaded.training
    for ours, theirs in ((encoder, loaded), (head, loaded_head)):
        for name, tensor in ours.state_dict().items() if ours else ():
            assert name == "embedding.weight" or torch.equal(tensor, theirs.state_dict()[name])
    assert torch.equal(loaded.word_embeddings, encoder.word_embeddings)
    assert torch.equal(Encoder.load(tmp_path / "model").word_embeddings, encoder.word_embeddings)


@pytest.mark.parametrize("model_name", MODELS)
def test_automodel_and_autotokenizer_load_our_folder(tmp_path, model_name):
    encoder = small(model_name).eval()
    encoder.tokenizer = word_tokenizer(model_name)
    save_model(tmp_path / "model", encoder, MaskedLMHead(encoder))
    assert ModelFolder(tmp_path / "model").text_length(encoder.config) == 128
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert tokenizer.mask_token == ("<mask>" if model_name == "roberta" else "[MASK]")
    assert tokenizer.model_max_length == 128
    texts = ["w1 w2 w3", "w4", "w5 " * 200]
    encoded = tokenizer(texts, return_tensors="pt", padding=True, truncation=True)
    assert ("token_type_ids" in encoded) == (model_name in ("bert", "prenorm", "electra"))
    model = transformers.AutoModel.from_pretrained(tmp_path / "model").eval()
    assert type(model).__name__ == f"{family_of(encoder.config).name}Model"
    assert model.config.pad_token_id == tokenizer.pad_token_id
    with torch.no_grad():
        theirs = model(**encoded).last_hidden_state
    for ours, wanted, real in zip(
        encoder.encode(texts), theirs, encoded["attention_mask"].bool(), strict=True
    ):
        torch.testing.assert_close(torch.from_numpy(ours), wanted[real], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("model_name", MODELS)
def test_a_pair_head_does_not_disturb_automodel(tmp_path, model_name):
    """Also where transformers knows none: its tensors have names that no class looks for."""
    encoder = small(model_name).eval()
    head = PretrainingHead(encoder).eval()
    save_model(tmp_path / "model", encoder, head)
    model = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "model").eval()
    batch = random_row([9, 1, 30], pad=encoder.config.pad_id)
    with torch.no_grad():
        output, real = run_peer(model, batch)
        torch.testing.assert_close(head(encoder(batch)), output.logits[real], atol=1e-5, rtol=1e-5)


def test_robertas_of_the_hub_are_read(tmp_path):
    """One token type, eps 1e-5, positions from 2, and a tokenizer_config.json that says 512."""
    options = {"type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1, "classifier_dropout": 0.3}
    model = transformers.RobertaForSequenceClassification(their_config("roberta", **options))
    model.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    del values["pad_token_id"]  # the default is 1
    (tmp_path / "config.json").write_text(json.dumps(values))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 512}))
    encoder, head, _ = load_model(tmp_path)
    config = encoder.config
    assert (config.pad_id, config.max_length, config.segments, config.norm_eps) == (1, 128, 1, 1e-5)
    assert encoder.position.weight.shape == (130, 32)
    assert head.dropout_rate == 0.3
    assert ModelFolder(tmp_path).text_length(encoder.config) == 128
    batch = random_row([4])
    batch.tokens.remainder_(70)
    with torch.no_grad():
        zeros = encoder(replace(batch, segments=torch.zeros_like(batch.segments)))
        ones = encoder(replace(batch, segments=torch.ones_like(batch.segments)))
    assert torch.equal(zeros, ones)  # whatever types a tokenizer that is not RoBERTa's gives
    (tmp_path / "config.json").write_text(json.dumps(values | {"max_position_embeddings": 2}))
    with pytest.raises(BrimfulError, match="max_position_embeddings is 2: it must be"):
        load_model(tmp_path)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_decoder_that_is_not_tied_is_left_out_with_a_warning(tmp_path, family):
    config = their_config(family)
    config.tie_word_embeddings = False
    transformers.AutoModelForMaskedLM.from_config(config).save_pretrained(tmp_path)
    for load in (load_model, load_pretrained):
        with record_warnings() as said:
            encoder, head, *_ = load(tmp_path)
        assert head is None
        assert len(said) == 1
        assert "is not tied" in said[0]
    with record_warnings() as said:
        assert torch.equal(Encoder.load(tmp_path).word_embeddings, encoder.word_embeddings)
    assert not said


@pytest.mark.parametrize("model_name", ["bert", "prenorm", "roberta", "electra"])
def test_a_classifier_of_the_mean_comes_back_bit_for_bit(tmp_path, model_name):
    encoder = small(model_name)
    encoder.tokenizer = word_tokenizer(model_name)
    head = SequenceHead(encoder, 3, pooling="mean", dropout=0.3)
    torch.nn.init.normal_(head.classifier.bias)
    save_model(tmp_path / "model", encoder, head, ["a", "b", "c"], max_length=50)
    loaded, loaded_head, labels = load_model(tmp_path / "model")
    assert labels == ["a", "b", "c"]
    assert (loaded_head.pooling, loaded_head.linear, loaded_head.dropout_rate) == ("mean", True, 0.3)
    assert loaded.pooling == "mean"
    for name, tensor in head.state_dict().items():
        assert torch.equal(tensor, loaded_head.state_dict()[name])
    assert torch.equal(loaded.word_embeddings, encoder.word_embeddings)
    assert json.loads((tmp_path / "model/config.json").read_text())["architectures"][0].endswith("Model")
    model, info = transformers.AutoModel.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not info["unexpected_keys"]
    assert all("pooler" in name for name in info["missing_keys"])
    assert torch.equal(model.get_input_embeddings().weight, encoder.word_embeddings)

    # With another pooling before it, the Dense is not what our head computes.
    pooling = tmp_path / "model" / "1_Pooling" / "config.json"
    values = pooling.read_text()
    pooling.write_text(json.dumps(OLD | {"pooling_mode_cls_token": True}))
    assert load_model(tmp_path / "model")[1] is None
    pooling.write_text(values)
    path = tmp_path / "model" / "2_Dense" / "model.safetensors"
    save_file({"linear.weight": torch.zeros(3, 7), "linear.bias": torch.zeros(3)}, path)
    with pytest.raises(BrimfulError, match=r"2_Dense/model.safetensors: the tensor linear.weight has"):
        load_model(tmp_path / "model")
    path.unlink()
    with pytest.raises(BrimfulError, match="2_Dense"):
        load_model(tmp_path / "model")


OLD = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": False}


@pytest.mark.parametrize(
    ("values", "pooling"),
    [
        (OLD | {"pooling_mode_mean_tokens": True}, "mean"),
        (OLD | {"pooling_mode_cls_token": True}, "first"),
        (OLD | {"pooling_mode_max_tokens": True}, None),
        (OLD | {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, None),
        ({"pooling_mode": "mean"}, "mean"),
        ({"pooling_mode": "cls"}, "first"),
        ({"pooling_mode": ["mean", "max"]}, None),
    ],
)
def test_the_pooling_of_sentence_transformers_is_known_and_kept(tmp_path, values, pooling):
    """Classes have other modules' names since version 6."""
    small("bert").save(tmp_path / "model")
    assert load_model(tmp_path / "model")[0].pooling is None
    kinds = {"": "base.modules.transformer.Transformer", "pool": "models.Pooling", "2_Dense": "models.Dense"}
    modules = [{"path": path, "type": f"sentence_transformers.{kind}"} for path, kind in kinds.items()]
    (tmp_path / "model/modules.json").write_text(json.dumps(modules))
    (tmp_path / "model/pool").mkdir()
    (tmp_path / "model/pool/config.json").write_text(json.dumps(values))
    encoder, head, _ = load_model(tmp_path / "model")  # the Dense of an embedding is no classifier
    assert head is None
    assert encoder.pooling == Encoder.load(tmp_path / "model").pooling == pooling
    assert keep_rows(encoder, None, range(10))[0].pooling == pooling
    assert encoder.keep_layers([0]).pooling == pooling
    left = ["2_Dense"] if pooling else ["pool", "2_Dense"]
    assert list_unread_modules(ModelFolder(tmp_path / "model"), encoder, None) == left
    save_model(tmp_path / "again", encoder)
    assert Encoder.load(tmp_path / "again").pooling == pooling
    for text in ("[1]", '{"path": 1}', "["):
        (tmp_path / "model/modules.json").write_text(text)
        refuse(tmp_path / "model", "modules.json is not")


def test_the_pooling_of_a_modernbert_folder_is_known(tmp_path):
    for theirs, ours in (("mean", "mean"), ("cls", "first")):
        config = their_config("modernbert", classifier_pooling=theirs)
        transformers.AutoModelForMaskedLM.from_config(config).save_pretrained(tmp_path)
        assert Encoder.load(tmp_path).pooling == ours


@pytest.mark.parametrize("model_name", MODELS)
def test_a_folder_knows_whether_it_reads_token_types(tmp_path, model_name):
    encoder = small(model_name)
    reads = model_name in ("bert", "prenorm", "electra")
    save_model(tmp_path / "model", encoder)
    # No tokenizer says otherwise.
    assert reads_token_types(ModelFolder(tmp_path / "model"), encoder.config) == reads
    encoder.tokenizer = word_tokenizer(model_name)
    for types in (True, False):
        save_model(tmp_path / "model", encoder, token_types=types)
        assert reads_token_types(ModelFolder(tmp_path / "model"), encoder.config) == (reads and types)
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
        assert ("token_type_ids" in tokenizer("w1 w2")) == (reads and types)


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("config.json", []),
        ("tokenizer_config.json", []),
        ("config.json", {"architectures": {"BertModel": 1}}),
        ("config.json", {"architectures": [1]}),
        ("config.json", {"id2label": ["no", "yes"]}),
        ("config.json", {"id2label": 3}),
        ("config.json", {"classifier_dropout": "much"}),
        ("config.json", {"problem_type": ["regression"]}),
    ],
)
def test_malformed_json_is_refused_in_one_line(tmp_path, file, changes):
    encoder = small("bert")
    encoder.tokenizer = word_tokenizer()
    save_model(tmp_path, encoder, SequenceHead(encoder, 2, pooling="first"), ["no", "yes"])
    path = tmp_path / file
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, **changes} if isinstance(changes, dict) else changes))
    refuse(tmp_path, re.escape(file), load_task_model)


@pytest.mark.parametrize(
    "foreign",
    [
        {"config.json": '{"port": 80}', "thesis.txt": "years of work"},
        {"config.json": "[]"},
        {"config.json": '{"model_type": "bert"}'},
        {"thesis.txt": "years of work"},
        {".git/HEAD": "ref"},
        {"1_Pooling/notes.txt": "years of work"},
    ],
)
def test_a_folder_with_anything_but_a_model_is_not_replaced(tmp_path, foreign):
    """The first three have no weights; the others have a model too."""
    encoder = small("bert")
    if "config.json" not in foreign:
        save_model(tmp_path, encoder, SequenceHead(encoder, 2, pooling="mean"))
    for name, text in foreign.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for save in (encoder.save, lambda folder: save_model(folder, encoder)):
        with pytest.raises(BrimfulError, match="not a folder of a model alone; choose another folder"):
            save(tmp_path)
    assert all((tmp_path / name).read_text() == text for name, text in foreign.items())


def test_any_folder_of_a_model_is_replaced(tmp_path):
    transformers.AutoModel.from_config(their_config("bert")).save_pretrained(tmp_path)
    for name in ("vocab.txt", "special_tokens_map.json"):
        (tmp_path / name).write_text("{}")
    small("bert").save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors"}


@pytest.mark.parametrize(
    ("kind", "lost", "found"),
    [
        ("ForPreTraining", ("cls.seq_relationship",), MaskedLMHead),
        ("ForPreTraining", ("bert.pooler",), MaskedLMHead),
        ("ForPreTraining", ("cls.predictions",), type(None)),
        ("ForPreTraining", (), PretrainingHead),
        ("ForMaskedLM", (), MaskedLMHead),
        ("ForMaskedLM", ("cls.predictions.transform",), type(None)),
        ("ForSequenceClassification", ("classifier",), type(None)),
        ("ForNextSentencePrediction", ("bert.pooler",), type(None)),
    ],
)
def test_what_training_starts_from_may_lack_a_head(tmp_path, kind, lost, found):
    KINDS[kind].from_config(their_config("bert")).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    save_file({name: tensors[name] for name in tensors if not name.startswith(lost or "-")}, path)
    encoder, head = load_pretrained(tmp_path)
    assert type(head) is found
    assert not encoder.training
    name = "bert.embeddings.word_embeddings.weight"
    assert torch.equal(encoder.word_embeddings, tensors[name])
    if found is MaskedLMHead:
        assert torch.equal(head.bias, tensors["cls.predictions.bias"])
        assert type(load_model(tmp_path)[1]) is MaskedLMHead


def refuse(folder: Path, needle: str, load: Callable[[Path], Any] = Encoder.load) -> None:
    """Loading a folder ends with one line."""
    with pytest.raises(BrimfulError, match=needle) as caught:
        load(folder)
    said = str(caught.value)
    assert "\n" not in said
    assert len(said.replace(str(folder), "")) < 450


RELATIVE = {"position_embedding_type": "relative_key"}


@pytest.mark.parametrize(
    ("model_name", "changes", "needle"),
    [
        ("bert", {"model_type": "gpt2"}, "model_type 'gpt2'"),
        ("bert", {"model_type": ["bert"]}, "known: bert, roberta"),
        ("bert", {"hidden_act": "relu"}, "hidden_act 'relu'"),
        ("bert", {"hidden_size": None}, "config.json lacks .hidden_size."),
        ("bert", {"hidden_size": 0}, "hidden_size is 0"),
        ("bert", {"vocab_size": 10**18}, r"config.json: vocab_size is 10{18}: expected int <= 2147483647"),
        ("bert", {"max_position_embeddings": 2}, "max_position_embeddings is 2"),
        ("bert", {"intermediate_size": 81}, "shape"),
        ("bert", {"pad_token_id": 500}, "config.json: model.pad_id: 500"),
        ("bert", RELATIVE, "position_embedding_type"),
        ("prenorm", RELATIVE, "position_embedding_type"),
        ("modern", {"rope_parameters": {"full_attention": {"rope_type": "linear"}}}, "scaled rotary"),
        ("modern", {"rope_parameters": {"full_attention": {"type": "linear"}}}, "scaled rotary"),
        ("modern", {"layer_types": []}, "layer_types"),
    ],
)
def test_other_configurations_are_refused(tmp_path, model_name, changes, needle):
    small(model_name).save(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    refuse(tmp_path, needle)


def test_incomplete_folders_are_refused(tmp_path):
    folder = tmp_path / "model"
    small("bert").save(folder)
    words = {"[UNK]": 0} | {f"w{i}": i for i in range(1, 101)}
    Tokenizer(models.WordLevel(words)).save(str(folder / "tokenizer.json"))
    refuse(folder, "tokenizer.json is not this model's: it has ids up to 103")
    (folder / "tokenizer.json").write_text("{")
    refuse(folder, r"tokenizer\.json is not JSON")
    (folder / "tokenizer.json").unlink()
    tensors = load_file(folder / "model.safetensors")
    save_file({k: v for k, v in tensors.items() if "position" not in k}, folder / "model.safetensors")
    refuse(folder, "position_embeddings")
    (folder / "model.safetensors").write_bytes(b"\x80\x04.")
    refuse(folder, "damaged")
    (folder / "model.safetensors").unlink()
    refuse(folder, "has no weights")
    refuse(tmp_path / "nowhere", "holds no model")


@pytest.mark.parametrize(
    ("changes", "thetas"),
    [
        ({"global_rope_theta": 160_000.0, "global_attn_every_n_layers": 2}, (160_000.0, 10_000.0)),
        # null: the global one, as transformers before version 5; without the key, its default
        ({"global_rope_theta": 80_000.0, "local_rope_theta": None}, (80_000.0, 80_000.0)),
        ({"rope_parameters": {"full_attention": {"rope_theta": 7e4}}, "local_rope_theta": None}, (7e4, 7e4)),
    ],
)
def test_old_modernbert_configurations_are_read(tmp_path, changes, thetas):
    small("modern", layers=4).save(tmp_path)
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    del values["rope_parameters"], values["layer_types"]
    path.write_text(json.dumps(values | changes))
    config = Encoder.load(tmp_path).config
    assert (config.rope_theta, config.rope_theta_local) == thetas
    assert config.global_every == changes.get("global_attn_every_n_layers", 3)


def test_whole_numbers_may_be_written_as_floats(tmp_path):
    small("bert").save(tmp_path)
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({k: float(v) if type(v) is int else v for k, v in values.items()}))
    assert Encoder.load(tmp_path).config == small("bert").config
