"""`brimful finetune`, `distil` and `predict`, from the tables of a user to the predictions on new texts."""

import json
from pathlib import Path

import pytest

from brimful.base.storage import read_json
from brimful.cli.main import main
from brimful.hf.folders import load_model
from brimful.train.metrics import read_metrics
from builders.shared import made_once
from builders.verbs import SMALL, Call, labelled_rows, made_up_words, run, write_table

FIT = ("--precision", "fp32", "--batch", 8, "--max-length", 32)


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A train table, a test table, and one whose rows are pairs; separable by which half words come from."""
    folder = tmp_path_factory.mktemp("tables")
    first = labelled_rows(120, seed=3)
    same = {"text": " ".join(made_up_words()[:3])}
    pairs = [same | {"text_b": row["text"], "label": row["label"]} for row in labelled_rows(90, seed=4)]
    return {
        "train": write_table(folder / "train.tsv", first),
        "test": write_table(folder / "test.jsonl", labelled_rows(50, seed=6)),
        "pairs": write_table(folder / "pairs.tsv", pairs[:60]),
        "pairs test": write_table(folder / "pairs-test.tsv", pairs[60:]),
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


@pytest.mark.slow
def test_a_pair_task_reads_both_texts(pretrained, tables, tmp_path, call: Call):
    """The label is in text_b alone."""
    data = ("--encoder", pretrained, "--train", tables["pairs"], "--test", tables["pairs test"])
    settings = (*FIT, "--epochs", 6, "--learning-rates", 1e-3)
    summary = call("finetune", *data, "--out", tmp_path / "run", *settings).value
    assert summary["test"]["accuracy"] > 0.9
    assert summary["test"]["n"] == 30
    line = ("predict", "--model", tmp_path / "run", "--output", tmp_path / "out.jsonl", "--input")
    assert call(*line, tables["pairs test"]).code == 0
    told = column("prediction", tmp_path / "run" / "predictions.jsonl")
    assert column("prediction", tmp_path / "out.jsonl") == told
    assert "the model's training table has pairs of texts" in call(*line, tables["test"]).message
    assert call("export", tmp_path / "run", "--out", tmp_path / "deployed").code == 0
    assert read_json(tmp_path / "deployed" / "config.json")["text_pairs"] is True


def test_bad_tables_and_settings_are_one_clear_line(pretrained, tables, tmp_path, call: Call):
    """Faults of a single table: tests/tables."""
    pairs, test = tables["pairs"], tables["test"]
    for name, value, message in (
        ("train", [pairs], f"{pairs} has pairs of texts, {test} single ones"),
        ("test", [tables["pairs test"]], "must be in all tables or in none"),
        ("max-length", [1000], "max_length is 1000"),
        ("max-length", [2], "max_length is 2"),
        ("batch", [0], "batch is 0"),
        ("epochs", [0], "epochs is 0"),
        ("optimizer.weight-decay", [-1], "weight_decay is -1"),
        ("seed", [1, 1], "no value twice"),
    ):
        options = {"encoder": [pretrained], "train": [tables["train"]], "test": [test], name: value}
        given = [part for option, values in options.items() for part in (f"--{option}", *values)]
        assert message in call("finetune", *given, "--out", tmp_path / "run").message
    assert not (tmp_path / "run").exists()


DISTIL = ("--precision", "fp32", "--batch", 16, "--student-layers", 1)


def test_two_layers_are_distilled_into_one(finetuned, tmp_path, call: Call):
    unlabelled = tmp_path / "more.txt"
    unlabelled.write_text("\n".join(row["text"] for row in labelled_rows(80, seed=9)), encoding="utf-8")
    out = tmp_path / "run"
    stages = ("--layers.epochs", 4, "--logits.epochs", 4, "--initialisation", "pretrained")
    more = ("--unlabelled", unlabelled, *stages)
    summary = call("distil", "--teacher", finetuned, "--out", out, *DISTIL, *more).value
    assert summary["texts"] == 200
    assert summary["test"]["n"] == 50
    assert summary["student"]["accuracy"] > 0.9
    assert summary["teacher"]["accuracy"] in read_json(finetuned / "summary.json")["test"]["accuracy_runs"]
    assert summary["student"]["parameters"] < summary["teacher"]["parameters"]
    first, *_, last = read_metrics(out / "stages" / "seed-0" / "layers" / "metrics.jsonl")
    for term in ("hidden", "attention"):
        assert last[f"loss.{term}"] < 0.8 * first[f"loss.{term}"], term
    # The student begins with the embeddings that the teacher began with, so this term begins near 0.
    assert last["loss.embedding"] < 0.05
    first, *_, last = read_metrics(out / "stages" / "seed-0" / "logits" / "metrics.jsonl")
    assert last["loss.logits"] < first["loss.logits"]
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


@pytest.mark.slow
@pytest.mark.distributed
def test_two_ranks_fine_tune_as_one_even_if_one_has_nothing_to_do(pretrained, tables, tmp_path, call: Call):
    """An update is a single micro-batch, so the second rank has none."""
    data = ("--encoder", pretrained, "--train", tables["train"], "--test", tables["test"])
    settings = (*FIT, "--dropout", 0, "--epochs", 0.3)
    one = call("finetune", *data, "--out", tmp_path / "one", *settings).value
    two = run("finetune", *data, "--out", tmp_path / "two", *settings, ranks=2)
    assert two["test"]["loss"] == pytest.approx(one["test"]["loss"], rel=1e-4)
    ours, theirs = (read_metrics(tmp_path / name / "metrics.jsonl") for name in ("two", "one"))
    for name in ("loss.classification", "accuracy"):
        assert [line[name] for line in ours] == pytest.approx([line[name] for line in theirs], rel=1e-5)


def test_a_finetuning_says_what_it_noticed(finetuned, tables):
    summary = read_json(finetuned / "summary.json")
    tokens = summary["train"].pop("tokens")
    assert 2 < tokens["median"] <= tokens["p90"] <= tokens["longest"]
    assert summary["train"] == {"n": 120}
    calibration = summary["calibration"]
    assert calibration["dev_n"] == 24
    assert 0.05 <= calibration["temperature"] <= 20
    assert 0 <= calibration["ece_calibrated"] <= 1
    told = lines_of(finetuned / "predictions.jsonl")
    wrong = [row for row in told if row["gold"] != row["prediction"]]
    probabilities = [sorted(row["probability"] for row in rows) for rows in (summary["errors"], wrong)]
    assert probabilities[0] == probabilities[1]
    rows = lines_of(Path(tables["test"]))
    assert all(rows[error["row"] - 1]["text"] == error["text"] for error in summary["errors"])
    assert len(wrong) == sum(row["rows"] for row in summary["confused"])
    config = read_json(finetuned / "model" / "config.json")
    assert config["calibration_temperature"] == calibration["temperature"]
