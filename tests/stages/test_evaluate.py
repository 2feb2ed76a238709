"""`brimful evaluate`: losses on held-out text, and models of a task beside each other."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from brimful import evaluate, finetune, prepare
from brimful.base.errors import BrimfulError, UsageError
from brimful.base.types import IGNORED
from brimful.cli.main import main
from brimful.hf.folders import save_model
from brimful.model.heads import MaskedLMHead
from brimful.precision import policy
from brimful.stages.evaluate import mean_of_ratios
from builders.thin_encoders import thin_encoder
from builders.verbs import chained_documents, labelled_rows, write_table

QUICK = {"max_length": 32, "precision": "fp32", "learning_rates": [1e-3], "epochs": 1.0, "seeds": 2}


def made_encoder(folder: Path, corpus_dir: Path, seed: int, *, head: bool = True) -> str:
    encoder = thin_encoder(corpus_dir, seed)
    save_model(folder, encoder, MaskedLMHead(encoder) if head else None)
    return str(folder)


def held_out(text: str, out: Path, encoder: str) -> dict:
    """Text of which all is for validation."""
    return prepare(paths=[text], out=str(out), tokenizer=encoder, validation_share=1)


@pytest.fixture(scope="module")
def inputs(corpus_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("evaluate")
    (folder / "news.txt").write_text("\n".join(chained_documents(40, seed=3)), encoding="utf-8")
    found = {"raw": str(folder / "news.txt"), "text": str(folder / "news")}
    for number, name in enumerate(("one", "two")):
        found[name] = made_encoder(folder / name, corpus_dir, number)
    held_out(found["raw"], folder / "news", found["one"])
    found["bare"] = made_encoder(folder / "bare", corpus_dir, 2, head=False)
    for number, (name, size) in enumerate((("train", 100), ("test", 60))):
        found[name] = write_table(folder / f"{name}.tsv", labelled_rows(size, seed=number))
    return found


def test_losses_on_text_are_those_of_each_sequence_alone(inputs, corpus_dir, tmp_path, monkeypatch):
    """Every masked sequence is run by itself, by `transformers`, in float64."""
    transformers = pytest.importorskip("transformers")
    found = []
    from brimful.stages import evaluate as evaluate_text

    def keep(*arguments):
        found.append(batches(*arguments))
        return found[-1]

    batches = evaluate_text.make_validation_batches
    monkeypatch.setattr(evaluate_text, "make_validation_batches", keep)
    texts = [inputs["text"], str(corpus_dir)]
    given = {"encoders": [inputs[name] for name in ("one", "bare", "two")], "text": texts, "max_length": 32}
    summary = evaluate(**given, out=str(tmp_path / "out"), text_tokens=4000, precision="fp32")
    assert summary["without_masked_lm"] == [inputs["bare"]]
    rows = [(text, inputs[name]) for text in texts for name in ("one", "two")]
    assert [(row["source"], row["encoder"]) for row in summary["text"]] == rows
    model = transformers.AutoModelForMaskedLM.from_pretrained(inputs["one"]).double().eval()
    losses, right = [], []
    for batch in found[0]:
        labels = torch.full((len(batch.tokens),), IGNORED)
        used = batch.mlm_labels != IGNORED
        labels[batch.mlm_positions[used]] = batch.mlm_labels[used]
        begins = np.cumsum([0, *batch.lengths])
        for begin, length in zip(begins, batch.lengths[: batch.real_sequences], strict=False):
            part = slice(begin, begin + length)
            with torch.no_grad():
                logits = model(batch.tokens[part][None].long()).logits[0]
            wanted = labels[part]
            losses += cross_entropy(logits, wanted, reduction="none")[wanted != IGNORED].tolist()
            right += (logits.argmax(-1) == wanted)[wanted != IGNORED].tolist()
    row = summary["text"][0]
    assert row["predictions"] == len(losses)
    assert row["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert row["accuracy"] == pytest.approx(np.mean(right), abs=1e-9)


def test_a_mean_of_ratios_has_the_error_of_the_bootstrap(seed):
    random = np.random.default_rng(seed)
    counts = random.integers(5, 40, 300).astype(float)
    sums = counts * random.normal(3, 0.5, 300)
    mean, error = mean_of_ratios(sums, counts)
    rows = random.integers(0, 300, (4000, 300))
    drawn = sums[rows].sum(1) / counts[rows].sum(1)
    assert mean == pytest.approx(sums.sum() / counts.sum())
    assert error == pytest.approx(drawn.std(), rel=0.15)
    assert math.isnan(mean_of_ratios(sums[:1], counts[:1])[1])


def test_a_task_has_every_model_on_the_same_rows(inputs, tmp_path, capfd):
    pytest.importorskip("sklearn")
    line = ["evaluate", inputs["one"], inputs["bare"], "--train", inputs["train"], "--test", inputs["test"]]
    line += ["--out", str(tmp_path / "out"), "--max-length", "32", "--precision", "fp32", "--epochs", "1"]
    line += ["--learning-rates", "1e-3", "--seeds", "2", "--json"]
    assert main(line) == 0
    summary = json.loads(capfd.readouterr().out)
    names = [row["model"] for row in summary["models"]]
    ours = [f"{inputs[name]}, {how}" for name in ("one", "bare") for how in ("frozen", "fine-tuned")]
    assert names == ["majority", "TF-IDF + linear", *ours]
    rows = {row["model"]: row for row in summary["models"]}
    tuned = rows[f"{inputs['bare']}, fine-tuned"]
    assert tuned["accuracy"] == pytest.approx(np.mean(tuned["accuracy_runs"]))
    assert len(tuned["accuracy_runs"]) == 2
    best = max(row["accuracy"] for row in rows.values())
    for row in rows.values():
        assert row.get("behind", 0) == pytest.approx(best - row["accuracy"])
    assert len(summary["differences"]) == 15
    for pair in summary["differences"]:
        gap = rows[pair["first"]]["accuracy"] - rows[pair["second"]]["accuracy"]
        assert pair["difference"] == pytest.approx(gap)
        assert 0 <= pair["standard_error"] < 0.3
    given = QUICK | {name: inputs[name] for name in ("train", "test")} | {"seed": [0, 1]}
    del given["seeds"]
    alone = finetune(encoder=inputs["bare"], out=str(tmp_path / "alone"), **given)
    assert alone["test"]["accuracy_runs"] == tuned["accuracy_runs"]
    assert alone["baselines"]["frozen"]["accuracy"] == rows[f"{inputs['bare']}, frozen"]["accuracy"]
    assert not list((tmp_path / "out").rglob("*.safetensors"))
    assert main(["evaluate", "--resume", str(tmp_path / "out"), "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == summary
    assert main(line) == 1
    assert "out is not empty; choose another --out" in capfd.readouterr().err


def test_an_interrupted_evaluation_goes_on(inputs, tmp_path, monkeypatch):
    from brimful.stages.task_trainings import Finetuning

    options = {"encoders": [inputs["one"]], "train": inputs["train"], "test": inputs["test"], **QUICK}
    whole = evaluate(**options, out=str(tmp_path / "whole"))
    train, trained = Finetuning.train, []

    def counted(self, *arguments):
        trained.append(arguments[2])
        if trained == [0, 1]:
            raise KeyboardInterrupt
        return train(self, *arguments)

    monkeypatch.setattr(Finetuning, "train", counted)
    with pytest.raises(KeyboardInterrupt):
        evaluate(**options, out=str(tmp_path / "parts"))
    resumed = evaluate(resume=str(tmp_path / "parts"))
    assert [row["accuracy"] for row in resumed["models"]] == [row["accuracy"] for row in whole["models"]]
    assert (tmp_path / "parts" / "summary.json").is_file()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"train": "t.tsv"}, "a task needs --train and --test"),
        ({"text": [__file__]}, "is not a prepared folder; make one with: brimful prepare TEXT"),
        ({"text": [__file__], "seeds": -1}, "seeds is -1"),
    ],
)
def test_what_cannot_be_compared_is_refused(inputs, tmp_path, options, said):
    with pytest.raises((BrimfulError, UsageError), match=said):
        evaluate(encoders=[inputs["one"]], out=str(tmp_path / "out"), **options)
    assert not (tmp_path / "out").exists()


def test_the_number_format_is_the_device_s(inputs, tmp_path, monkeypatch):
    """What begins in one format on a machine does not end in another on the next."""
    given = {"encoders": [inputs["one"]], "text": [inputs["text"]], "max_length": 32, "text_tokens": 500}
    for fast, format in ((False, "fp32"), (True, "bf16")):
        monkeypatch.setattr(policy, "has_fast_bf16", lambda device, fast=fast: fast)
        assert evaluate(**given, out=str(tmp_path / format))["precision"] == format
    assert evaluate(**given, out=str(tmp_path / "asked"), precision="fp32")["precision"] == "fp32"
    (tmp_path / "fp32" / "summary.json").unlink()
    assert evaluate(resume=str(tmp_path / "fp32"))["precision"] == "fp32"


def test_each_encoder_needs_a_head_and_text_of_its_own_tokenizer(inputs, tmp_path):
    other, empty, short = (str(tmp_path / name) for name in ("other", "empty", "short"))
    prepare(paths=[inputs["raw"]], out=other, tokenizer="train:300", validation_share=1)
    prepare(paths=[inputs["raw"]], out=empty, tokenizer=inputs["one"], validation_share=0)
    (tmp_path / "short.txt").write_text("internationalisation\n")
    held_out(str(tmp_path / "short.txt"), tmp_path / "short", inputs["one"])
    settings = {"encoders": [inputs["one"]], "out": str(tmp_path / "out"), "max_length": 32}
    for options, message in (
        ({"max_length": 500}, "max_length is 500"),
        ({"encoders": [inputs["bare"]]}, "no encoder has a masked-LM head"),
        ({"text": [other]}, "no --text was prepared with the tokenizer of .*--validation-share 1"),
        ({"text": [inputs["text"], other]}, "other was prepared with a tokenizer that no encoder has"),
        ({"text": [empty]}, "empty holds no validation documents"),
        ({"text": [short], "precision": "fp32"}, "short is too short: none of its words is masked"),
    ):
        with pytest.raises(BrimfulError, match=message):
            evaluate(**settings | {"text": [inputs["text"]]} | options)
