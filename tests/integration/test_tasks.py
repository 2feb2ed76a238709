"""`brimful finetune`, `distil` and `predict`, from the tables of a user to the predictions on new texts."""

import json
from pathlib import Path

import pytest

from brimful.base.storage import read_json
from brimful.cli.main import main
from brimful.hf.folders import load_model
from brimful.train.metrics import read_metrics
from builders.shared import made_once
from builders.verbs import SMALL, Call, labelled_rows, write_table

FIT = ("--precision", "fp32", "--batch", 8, "--max-length", 32)


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A train table and a test table, separable by which half words come from."""
    folder = tmp_path_factory.mktemp("tables")
    return {
        "train": write_table(folder / "train.tsv", labelled_rows(120, seed=3)),
        "test": write_table(folder / "test.jsonl", labelled_rows(50, seed=6)),
    }


@pytest.fixture(scope="session")
def finetuned(pretrained: Path, tables: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run directory of fine-tuning with two learning rates and two seeds."""
    rates = ("--learning-rates", 1e-5, 1e-3, "--seed", 0, 1, "--epochs", 2)
    data = ("--encoder", pretrained, "--train", tables["train"], "--test", tables["test"])

    def make(folder: Path) -> None:
        assert main([*map(str, ("finetune", *data, "--out", folder / "run", *FIT, *rates))]) == 0

    return made_once(tmp_path_factory, "finetuned", make) / "run"


def lines_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def column(name: str, path: Path) -> list:
    return [row[name] for row in lines_of(path)]


def test_two_rates_and_two_seeds_give_means_and_their_spread(finetuned):
    summary = read_json(finetuned / "summary.json")
    test, trials = summary["test"], summary["trials"]
    first, second = test["accuracy_runs"]
    assert test["n"] == 50
    assert test["accuracy"] == pytest.approx((first + second) / 2)
    assert test["accuracy_std"] == pytest.approx(abs(first - second) / 2**0.5)
    assert summary["labels"] == ["high", "low"]
    assert summary["leaked_test_texts"] == 0
    tried = [(trial["seed"], trial["learning_rate"]) for trial in trials]
    assert tried == [(0, 1e-5), (0, 1e-3), (1, 1e-5), (1, 1e-3)]
    best = max(trials, key=lambda trial: trial["dev_accuracy"])
    assert summary["learning_rate"] == best["learning_rate"]
    assert summary["dev"]["accuracy"] == best["dev_accuracy"]
    hits = sum(row["gold"] == row["prediction"] for row in lines_of(finetuned / "predictions.jsonl"))
    assert hits / 50 in test["accuracy_runs"]
    assert read_metrics(finetuned / "metrics.jsonl")[-1]["loss.classification"] > 0


def test_the_model_predicts_the_test_table_as_finetuning_did(finetuned, tables, tmp_path, call: Call):
    """The folder has the model of the best seed."""
    out, told = tmp_path / "out.jsonl", finetuned / "predictions.jsonl"
    given = ("--model", finetuned, "--input", tables["test"], "--precision", "fp32")
    answer = call("predict", *given, "--output", out).value
    assert (answer["texts"], answer["output"]) == (50, str(out))
    assert column("prediction", out) == column("prediction", told)
    assert column("probability", out) == pytest.approx(column("probability", told), abs=1e-5)


def test_bad_tables_and_settings_are_one_clear_line(pretrained, tables, tmp_path, call: Call):
    """Faults of a single table: tests/tables."""
    rows, test = labelled_rows(60, seed=4), tables["test"]
    pairs = write_table(tmp_path / "pairs.tsv", [{"text_b": row["text"]} | row for row in rows])
    for name, value, message in (
        ("train", [pairs], f"{pairs} has pairs of texts, {test} single ones"),
        ("max-length", [1000], "max_length is 1000"),
        ("epochs", [0], "epochs is 0"),
        ("optimizer.weight-decay", [-1], "weight_decay is -1"),
        ("seed", [1, 1], "no value twice"),
    ):
        options = {"encoder": [pretrained], "train": [tables["train"]], "test": [test], name: value}
        given = [part for option, values in options.items() for part in (f"--{option}", *values)]
        assert message in call("finetune", *given, "--out", tmp_path / "run").message
    assert not (tmp_path / "run").exists()


def test_two_layers_are_distilled_into_one(finetuned, tmp_path, call: Call):
    unlabelled = tmp_path / "more.txt"
    unlabelled.write_text("\n".join(row["text"] for row in labelled_rows(80, seed=9)), encoding="utf-8")
    out = tmp_path / "run"
    stages = ("--layers.epochs", 4, "--logits.epochs", 4)
    student = ("--unlabelled", unlabelled, "--student-layers", 1, "--precision", "fp32", "--batch", 16)
    summary = call("distil", "--teacher", finetuned, "--out", out, *student, *stages).value
    assert summary["texts"] == 200
    assert summary["test"]["n"] == 50
    assert summary["student"]["accuracy"] > 0.9
    assert summary["teacher"]["accuracy"] in read_json(finetuned / "summary.json")["test"]["accuracy_runs"]
    assert summary["student"]["parameters"] < summary["teacher"]["parameters"]
    first, *_, last = read_metrics(out / "stages" / "seed-0" / "layers" / "metrics.jsonl")
    for term in ("hidden", "attention"):
        assert last[f"loss.{term}"] < 0.8 * first[f"loss.{term}"], term
    encoder, head, labels = load_model(out / "model")
    assert (encoder.config.layers, head.classes, labels) == (1, 2, ["high", "low"])
    assert len((out / "predictions.jsonl").read_text(encoding="utf-8").splitlines()) == 50


def test_a_dry_run_writes_nothing(chained, pretrained, finetuned, tables, tmp_path, call: Call):
    out = tmp_path / "run"
    runs = (chained, pretrained, finetuned)
    before = [(path, path.stat().st_mtime_ns) for run in runs for path in run.rglob("*")]
    data = ("--encoder", pretrained, "--train", tables["train"], "--test", tables["test"])
    lines = [
        ("prepare", tables["test"], "--out", out),
        ("pretrain", "--data", chained, "--out", out, *SMALL),
        ("finetune", *data, "--out", out, "--learning-rates", 1e-4, 1e-3),
        ("distil", "--teacher", finetuned, "--out", out, "--student-layers", 1),
        ("distil-encoder", "--teacher", pretrained, "--out", out, "--data", chained),
        ("predict", "--model", finetuned, "--input", tables["test"], "--output", tmp_path / "out.tsv"),
        ("export", finetuned, "--out", out, "--format", "hf"),
    ]
    for line in lines:
        assert call(*line, "--dry-run").value["dry_run"] is True, line[0]
        assert list(tmp_path.iterdir()) == [], line[0]
    assert before == [(path, path.stat().st_mtime_ns) for run in runs for path in run.rglob("*")]
