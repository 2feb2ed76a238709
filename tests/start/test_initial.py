"""Pretraining that goes on from a trained model: what it starts with, what is refused, how it resumes."""

import shutil
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file

import brimful
from brimful.base.config import build
from brimful.base.errors import BrimfulError
from brimful.cli.arguments import parse
from brimful.corpus.text.special_ids import special_ids
from brimful.corpus.text.tokenizer import load, save
from brimful.model.heads import PretrainingHead
from brimful.stages.pretrain_config import PretrainConfig
from brimful.stages.pretrain_data import open_initial_model
from brimful.train.metrics import read_metrics
from brimful.train.trainer import Trainer

FAMILIES = ["bert", "roberta", "electra", "megatron-bert", "modernbert"]
QUICK = {"packing": {"max_length": 32, "capacity": 128}, "verify_data": False, "validation_tokens": 2000}


@pytest.fixture(autouse=True)
def _random(seed: int) -> None:
    torch.manual_seed(seed)


def folder_of(path, tokenizer, family="bert", kind=transformers.AutoModelForMaskedLM, spare=0):
    """A random model of `transformers` without dropout, saved with a tokenizer; all its parameters random."""
    special = special_ids(tokenizer)
    values = {
        "vocab_size": tokenizer.get_vocab_size() + spare,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": 129 if family == "roberta" else 128,
        "initializer_range": 0.1,
        "pad_token_id": special.pad,
    }
    if family == "roberta":
        values["type_vocab_size"] = 1
    if family == "modernbert":
        names = ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
        values |= {"local_attention": 10} | dict.fromkeys(names, special.sep)
    else:
        values |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = kind.from_config(transformers.AutoConfig.for_model(family, **values)).eval()
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=float("orm" in name and "bias" not in name), std=0.1)
    model.save_pretrained(path)
    save(tokenizer, path, segments=family != "modernbert")
    return model


def run(start: Path, data: str | Path, out: Path, **options):
    steps = {"trainer": {"steps": 2, "log_every": 1}}
    return brimful.pretrain(
        **{"start_from": start, "data": data, "out": out} | QUICK | steps | options,
    )


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.mark.cases(1)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_that_learns_nothing_ends_where_it_started(corpus_dir, tmp_path, family):
    """At a rate of 0 the folder comes back tensor by tensor, its head too, and the loss is what it was."""
    folder_of(tmp_path / "hf", load(corpus_dir), family, spare=3)
    still = {"optimizer": {"learning_rate": 0.0}}
    summary = run(tmp_path / "hf", corpus_dir, tmp_path / "run", **still)
    before, after = tensors(tmp_path / "hf"), tensors(tmp_path / "run" / "encoder")
    assert before.keys() - {"cls.predictions.decoder.bias", "lm_head.decoder.bias"} <= after.keys()
    assert all(torch.equal(after[name], before[name]) for name in before.keys() & after.keys())
    first, *_, last = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert (first["step"], last["step"]) == (0, 2)
    assert {k: v for k, v in first.items() if k != "step"} == {k: v for k, v in last.items() if k != "step"}
    assert summary["validation_at_start"]["loss"] == first["validation.loss"] == summary["validation"]["loss"]


def test_a_vocabulary_with_one_piece_more_is_refused(corpus_dir, tmp_path):
    folder_of(tmp_path / "hf", load(corpus_dir))
    more = load(corpus_dir)
    more.add_tokens(["dandelion"])
    with pytest.raises(BrimfulError, match=r"another vocabulary than the model of .*hf \(1 of .*--tokenizer"):
        open_initial_model(PretrainConfig(start_from=str(tmp_path / "hf")), more)


@pytest.mark.slow
@pytest.mark.parametrize("at", [0, 3])
def test_a_killed_run_goes_on_without_the_folder(corpus_dir, tmp_path, monkeypatch, at):
    """Before its first checkpoint too: then it starts over. The head was drawn anew."""
    folder_of(tmp_path / "hf", load(corpus_dir), kind=transformers.AutoModel)
    trainer = {"trainer": {"steps": 4, "log_every": 1, "checkpoint_every": 2}}
    run(tmp_path / "hf", corpus_dir, tmp_path / "whole", **trainer)
    update = Trainer.train_step

    def killed(self, *arguments):
        if self.progress.step == at:
            raise RuntimeError("killed")
        return update(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_step", killed)
        with pytest.raises(RuntimeError, match="killed"):
            run(tmp_path / "hf", corpus_dir, tmp_path / "killed", **trainer)
    shutil.rmtree(tmp_path / "hf")
    brimful.pretrain(resume=str(tmp_path / "killed"))
    whole, resumed = (tensors(tmp_path / name / "encoder") for name in ("whole", "killed"))
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.parametrize(
    ("family", "kind"), [("bert", transformers.AutoModel), ("electra", transformers.AutoModelForPreTraining)]
)
def test_a_model_without_a_head_gets_a_new_one_and_says_so(corpus_dir, tmp_path, capsys, family, kind):
    """Also a discriminator, whose head predicts something else."""
    folder_of(tmp_path / "hf", load(corpus_dir), family, kind=kind)
    run(tmp_path / "hf", corpus_dir, tmp_path / "run")
    assert f"{tmp_path}/hf has no masked-LM head: a new one is drawn" in capsys.readouterr().err
    configs = [PretrainConfig(start_from=str(tmp_path / "hf"), seed=seed) for seed in (1, 1, 2)]
    drawn = [open_initial_model(config, load(corpus_dir)).head.dense.weight for config in configs]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_pairs_take_the_head_for_pairs_where_there_is_one(corpus_dir, tmp_path):
    tokenizer, config = load(corpus_dir), {"sequences": {"kind": "nsp"}}
    model = folder_of(tmp_path / "both", tokenizer, kind=transformers.AutoModelForPreTraining)
    folder_of(tmp_path / "mlm", tokenizer)
    both, mlm = (
        open_initial_model(build(PretrainConfig, config | {"start_from": tmp_path / name}), tokenizer)
        for name in ("both", "mlm")
    )
    assert isinstance(both.head, PretrainingHead)
    assert both.warnings == ()
    assert torch.equal(both.head.pair.classifier.weight, model.cls.seq_relationship.weight)
    assert isinstance(mlm.head, PretrainingHead)
    assert "no head for pairs" in mlm.warnings[0]
    without = open_initial_model(PretrainConfig(start_from=str(tmp_path / "both")), tokenizer)
    assert torch.equal(without.head.dense.weight, both.head.dense.weight)
    assert not isinstance(without.head, PretrainingHead)


def test_a_vocab_txt_does_for_a_tokenizer_and_a_difference_is_named(corpus_dir, tmp_path):
    tokenizer = load(corpus_dir)
    folder_of(tmp_path / "hf", tokenizer)
    (tmp_path / "hf" / "tokenizer.json").unlink()
    (tmp_path / "hf" / "vocab.txt").write_text(
        "\n".join(sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)), encoding="utf-8"
    )
    (tmp_path / "hf" / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    found = open_initial_model(PretrainConfig(start_from=str(tmp_path / "hf")), tokenizer)
    assert ["another normalizer" in warning for warning in found.warnings] == [True]
    (tmp_path / "hf" / "vocab.txt").unlink()
    with pytest.raises(BrimfulError, match="needs its tokenizer beside it"):
        open_initial_model(PretrainConfig(start_from=str(tmp_path / "hf")), tokenizer)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "mini"}, "model is for a new model"),
        ({"packing": {"max_length": 129, "capacity": 256}}, "129 tokens do not fit .* 128 positions"),
        ({"phases": [{"steps": 2, "max_length": 200}], "packing": {"capacity": 256}}, "200 tokens do not"),
        ({"sequences": {"kind": "nsp"}}, "token types"),
    ],
)
def test_options_that_the_model_does_not_allow_are_refused(corpus_dir, tmp_path, options, message):
    folder_of(tmp_path / "hf", load(corpus_dir), "roberta" if "sequences" in options else "bert")
    with pytest.raises(BrimfulError, match=message):
        run(tmp_path / "hf", corpus_dir, tmp_path / "run", **options)
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").glob("*.yaml"))


def options_of(*arguments: str) -> PretrainConfig:
    return parse(PretrainConfig, arguments, "brimful pretrain")[0]


def test_flags_of_a_shape_stand_beside_its_preset():
    config = options_of(
        *("--model", "tiny", "--architecture", "bert", "--model.layers", "3", "--model.hidden-size", "96"),
        *("--heads", "4", "--model.intermediate_size=80", "--model.dropout", "0.2"),
    )
    assert (config.model, config.architecture) == ("tiny", "bert")
    shape = {"layers": 3, "hidden_size": 96, "heads": 4, "intermediate_size": 80, "dropout": 0.2}
    assert config == build(PretrainConfig, {"model": "tiny", "architecture": "bert", "shape": shape})
    found = config.encoder_config()
    assert {name: getattr(found, name) for name in shape} == shape
    assert options_of("--model", "mini") == build(PretrainConfig, {"model": "mini"})


@pytest.mark.parametrize(
    ("values", "nouns"),
    [
        ({"shape": {"heads": 5}}, ("hidden_size", "256", "5 heads")),
        ({"shape": {"layers": 0}}, ("model.layers", "0")),
        ({"start_from": "x", "shape": {"dropout": 0.1}}, ("model.dropout", "start_from")),
    ],
)
def test_shapes_that_are_refused(values: dict, nouns: tuple[str, ...]):
    with pytest.raises(BrimfulError) as error:
        build(PretrainConfig, values)
    assert all(noun in str(error.value) for noun in nouns)
    assert "\n" not in str(error.value)
