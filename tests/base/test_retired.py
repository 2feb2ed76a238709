"""What is retired: one line for options, values, models; configurations that did not use an option open."""

import json
from pathlib import Path

import pytest

from brimful import Encoder
from brimful.base.config import build
from brimful.base.errors import BrimfulError
from brimful.base.retired import OPTIONS, VALUES, VERBS, instead_of
from brimful.cli.main import main
from brimful.commands.export import export
from brimful.commands.predict import predict
from brimful.distillation.origin import finetuning_of
from brimful.finetuning import replay
from brimful.finetuning.config import FinetuneConfig
from brimful.hf.folders import save_model
from brimful.model.heads import SequenceHead
from brimful.pretraining.config import PretrainConfig
from brimful.serving.config import PredictConfig
from brimful.tasks.model import load_task_model
from brimful.tasks.registry import find_task
from builders.encoders import small, word_tokenizer

ROOT = Path(__file__).parents[2]


def test_a_retired_flag_is_answered_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    line = ("predict", "--model", "m", "--input", "i", "--output", "o", "--submission")
    assert main(line) == 2
    said = capsys.readouterr().err
    assert said.startswith("brimful: --submission is retired: predictions are .jsonl")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "verb"),
    [
        (("--student", "static"), "distil-static"),
        (("--vectors.epochs", "1"), "distil-encoder"),
    ],
)
def test_what_became_a_verb_names_it(capsys: pytest.CaptureFixture[str], option, verb) -> None:
    assert main(["distil", "--teacher", "t", "--out", "o", *option]) in (1, 2)
    said = capsys.readouterr().err
    assert f" is retired: `brimful {verb}` " in said
    assert said.count("\n") == 1


def test_a_saved_configuration_without_its_use_still_opens() -> None:
    given = {"model": "m", "input": "i", "output": "o.jsonl"}
    assert build(PredictConfig, {**given, "submission": False}) == build(PredictConfig, given)
    with pytest.raises(BrimfulError, match=r"^submission is retired: predictions"):
        build(PredictConfig, {**given, "submission": True})


def test_an_option_is_known_with_and_without_its_group() -> None:
    for option in OPTIONS:
        for name in (option, option.replace("_", "-"), option.rpartition(".")[2], f"{option}.any"):
            assert instead_of(name) == f"{option} is retired: {OPTIONS[option].instead}"
    assert instead_of("output") is None


def test_a_group_is_retired_from_the_verbs_that_have_it(capsys: pytest.CaptureFixture[str]) -> None:
    """fine-tuning has no `trainer.hours`; pretrain has, and predict has no such group."""
    line = ("finetune", "--encoder", "e", "--train", "t", "--test", "t", "--out", "o")
    assert main([*line, "--hours", "2"]) == 2
    assert "trainer.hours is retired: the epochs decide" in capsys.readouterr().err
    assert build(FinetuneConfig, {"trainer": {"hours": 0.0, "clip": 0.5}}).trainer.clip == 0.5
    with pytest.raises(BrimfulError, match=r"^trainer.hours is retired"):
        build(FinetuneConfig, {"trainer": {"hours": 2.0}})
    assert build(PretrainConfig, {"trainer": {"hours": 2.0}}).trainer.hours == 2.0
    with pytest.raises(BrimfulError, match=r"^unknown key hours"):
        build(PretrainConfig, {"hours": 2.0})
    assert main(["predict", "--model", "m", "--input", "i", "--output", "o", "--hours", "2"]) == 2
    assert "unknown option --hours" in capsys.readouterr().err


def test_a_finished_run_is_read_whatever_it_set(tmp_path: Path) -> None:
    """Its tables serve a student, and its batches are shown."""
    given = {
        "encoder": "e",
        "train": "t",
        "test": "t",
        "out": "o",
        "attention_dropout": 0.2,
        "precision": "bf16",
    }
    given |= {"optimizer": {"name": "lamb", "weight_decay": 0.1}, "trainer": {"prefetch": 0}}
    (tmp_path / "config.yaml").write_text(json.dumps(given))
    kept = {name: given[name] for name in ("encoder", "train", "test", "out", "precision")}
    expected = build(FinetuneConfig, {**kept, "optimizer": {"weight_decay": 0.1}})
    assert finetuning_of(tmp_path) == expected
    assert replay.finetuning_of(tmp_path) == (tmp_path, expected)
    with pytest.raises(BrimfulError, match="is retired"):
        build(FinetuneConfig, given)


def test_history_names_what_is_retired() -> None:
    page = (ROOT / "docs" / "history.md").read_text(encoding="utf-8")
    assert [option for option in OPTIONS if option.replace("_", "-") not in page] == []
    assert [verb for verb in VERBS if verb not in page] == []
    assert [f"{option} {value}" for option, value in VALUES if value not in page] == []


@pytest.mark.parametrize(
    "of_choices", [{"architectures": ["BertForMultipleChoice"]}, {"problem_type": "multiple_choice"}]
)
def test_models_of_choices_are_refused_and_their_encoders_open(tmp_path: Path, of_choices: dict) -> None:
    encoder = small("bert")
    encoder.tokenizer = word_tokenizer("bert")
    save_model(tmp_path / "model", encoder, SequenceHead(encoder, 1))
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | of_choices))
    (tmp_path / "a.txt").write_text("w1\n")
    out = str(tmp_path / "out.jsonl")
    said = "model: task multiple-choice is retired: score each choice as a pair"
    with pytest.raises(BrimfulError, match=said):
        predict(model=str(tmp_path), input=str(tmp_path / "a.txt"), output=out)
    with pytest.raises(BrimfulError, match=said):
        load_task_model(tmp_path)
    with pytest.raises(BrimfulError, match=said):
        export(run=str(tmp_path / "model"), out=str(tmp_path / "exported"), format="hf")
    assert Encoder.load(tmp_path / "model").config == encoder.config
    with pytest.raises(BrimfulError, match=r"^task multiple-choice is retired"):
        find_task("multiple-choice")
