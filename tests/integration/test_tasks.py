"""`brimful finetune`, `distil` and `predict`, from the tables of a user to the predictions on new texts."""

import json
import random
from pathlib import Path

import pytest

from brimful.base.storage import read_json
from brimful.cli.main import main
from brimful.hf.folders import load_model
from brimful.train.metrics import read_metrics
from builders.shared import made_once
from builders.verbs import SMALL, Answer, Call, labelled_rows, made_up_words, run, write_table

FIT = ("--precision", "fp32", "--batch", 8, "--max-length", 32)


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A train table, a test table, and one whose rows are pairs; separable by which half words come from."""
    folder = tmp_path_factory.mktemp("tables")
    first = labelled_rows(120, seed=3)
    pairs = [
        {"text": " ".join(made_up_words()[:3]), "text_b": row["text"], "label": row["label"]}
        for row in labelled_rows(90, seed=4)
    ]
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


def test_two_rates_and_two_seeds_give_means_and_their_spread(finetuned):
    summary = read_json(finetuned / "summary.json")
    test = summary["test"]
    assert test["n"] == 50
    assert len(test["accuracy_runs"]) == 2
    assert test["accuracy"] == pytest.approx(sum(test["accuracy_runs"]) / 2)
    assert test["accuracy_std"] == pytest.approx(
        abs(test["accuracy_runs"][0] - test["accuracy_runs"][1]) / 2**0.5
    )
    assert summary["labels"] == ["high", "low"]
    assert summary["leaked_test_texts"] == 0
    tried = [(trial["seed"], trial["learning_rate"]) for trial in summary["trials"]]
    best = max(summary["trials"], key=lambda trial: trial["dev_accuracy"])
    assert (summary["learning_rate"], summary["dev"]["accuracy"]) == (
        best["learning_rate"],
        best["dev_accuracy"],
    )
    assert tried == [(0, 1e-5), (0, 1e-3), (1, 1e-5), (1, 1e-3)]
    predictions = lines_of(finetuned / "predictions.jsonl")
    hits = sum(row["gold"] == row["prediction"] for row in predictions)
    assert hits / 50 in test["accuracy_runs"]
    assert read_metrics(finetuned / "metrics.jsonl")[-1]["loss.classification"] > 0


def predictions(answer: Answer, path: Path) -> list[dict]:
    assert answer.value["output"] == str(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in lines]
    split = [line.split("\t" if path.suffix == ".tsv" else ",") for line in lines]
    assert split[0] == ["row", "prediction", "probability"]
    return [
        {"row": int(row), "prediction": label, "probability": float(value)} for row, label, value in split[1:]
    ]


def test_the_model_predicts_the_test_table_as_finetuning_did(finetuned, tables, tmp_path, call: Call):
    """The best seed's model is the one in the folder."""
    out = tmp_path / "out.jsonl"
    given = ("--model", finetuned, "--input", tables["test"], "--precision", "fp32")
    answer = call("predict", *given, "--output", out)
    assert answer.value["texts"] == 50
    made = lines_of(out)
    told = lines_of(finetuned / "predictions.jsonl")
    assert [row["prediction"] for row in made] == [row["prediction"] for row in told]
    assert [row["probability"] for row in made] == pytest.approx(
        [row["probability"] for row in told], abs=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl"])
def test_predictions_are_in_order_and_those_of_single_texts(finetuned, tmp_path, call: Call, kind, seed):
    draw = random.Random(seed)
    texts = [
        "",
        *(" ".join(draw.choices(made_up_words(), k=draw.randint(1, 40))) for _ in range(12)),
        "",
        "？",
    ]
    draw.shuffle(texts)
    rows = [{"id": str(index), "text": text} for index, text in enumerate(texts)]
    table = write_table(tmp_path / ("in.jsonl" if kind == "jsonl" else "in.tsv"), rows)
    out = tmp_path / f"out.{kind}"
    answer = call("predict", "--model", finetuned / "model", "--input", table, "--output", out)
    together = predictions(answer, out)
    assert len(together) == len(texts)
    for index in (texts.index(""), *draw.sample(range(len(texts)), 3)):
        single = write_table(tmp_path / "one.jsonl", [rows[index]])
        alone = tmp_path / "alone.jsonl"
        answer = call("predict", "--model", finetuned / "model", "--input", single, "--output", alone)
        (expected,) = predictions(answer, alone)
        assert together[index]["prediction"] == expected["prediction"]
        assert together[index]["probability"] == pytest.approx(expected["probability"], abs=2e-6)


def test_what_cannot_be_predicted_says_so(finetuned, pretrained, tables, tmp_path, call: Call):
    out = tmp_path / "out.jsonl"

    def message(**changed: object) -> str:
        values = {"model": finetuned, "input": tables["test"], "output": out} | changed
        return call(
            "predict", *(part for key, value in values.items() for part in (f"--{key}", value))
        ).message

    assert "no model" in message(model=tmp_path)
    refused = message(output=tmp_path / "out.xlsx")
    assert all(ending in refused for ending in (".jsonl", ".tsv", ".csv"))
    assert "cannot read" in message(input=tmp_path / "absent.txt")
    assert not out.exists()


@pytest.mark.slow
def test_a_pair_task_reads_both_texts(pretrained, tables, tmp_path, call: Call):
    """The label is in text_b alone."""
    data = ("--encoder", pretrained, "--train", tables["pairs"], "--test", tables["pairs test"])
    settings = (*FIT, "--epochs", 6, "--learning-rates", 1e-3)
    summary = call("finetune", *data, "--out", tmp_path / "run", *settings).value
    assert summary["test"]["accuracy"] > 0.9
    assert summary["test"]["n"] == 30
    out = tmp_path / "out.tsv"
    made = predictions(
        call("predict", "--model", tmp_path / "run", "--input", tables["pairs test"], "--output", out), out
    )
    told = [row["prediction"] for row in lines_of(tmp_path / "run" / "predictions.jsonl")]
    assert [row["prediction"] for row in made] == told
    line = ("predict", "--model", tmp_path / "run", "--input", tables["test"], "--output", out)
    assert "the model's training table has pairs of texts" in call(*line).message
    export = call("export", tmp_path / "run", "--out", tmp_path / "deployed")
    assert export.code == 0
    assert read_json(tmp_path / "deployed" / "config.json")["text_pairs"] is True


def test_bad_tables_and_settings_are_one_clear_line(pretrained, tables, tmp_path, call: Call):
    def message(*arguments: object, **files: str) -> str:
        data = {"train": tables["train"], "test": tables["test"]} | files
        line = ("--encoder", pretrained, "--train", data["train"], "--test", data["test"])
        return call("finetune", *line, "--out", tmp_path / "run", *FIT, *arguments).message

    strange = write_table(
        tmp_path / "strange.tsv", [{"text": "a", "label": "low"}, {"text": "b", "label": "lwo"}]
    )
    assert "strange.tsv, line 3: unknown label 'lwo'" in message(test=strange)
    assert "'low'" in message(test=strange)
    single = write_table(tmp_path / "single.tsv", [{"text": "a", "label": "low"}] * 3)
    assert "single label" in message(train=single)
    assert "no column 'label'" in message(
        train=write_table(tmp_path / "bare.tsv", [{"text": "a", "lable": "x"}])
    )
    assert f"{tables['pairs']} has pairs of texts, {tables['test']} single ones" in message(
        train=tables["pairs"]
    )
    assert "must be in all tables or in none" in message(test=tables["pairs test"])
    assert "max_length is 1000" in message("--max-length", 1000)
    assert "max_length is 2" in message("--max-length", 2)
    assert "batch is 0" in message("--batch", 0)
    assert "epochs is 0" in message("--epochs", 0)
    assert "weight_decay is -1" in message("--optimizer.weight-decay", -1)
    assert "no value twice" in message("--seed", 1, 1)
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
    before = {
        path: path.stat().st_mtime_ns for run in (chained, pretrained, finetuned) for path in run.rglob("*")
    }
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
    assert before == {
        path: path.stat().st_mtime_ns for run in (chained, pretrained, finetuned) for path in run.rglob("*")
    }


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
    assert sorted(row["probability"] for row in summary["errors"]) == sorted(
        row["probability"] for row in wrong
    )
    rows = lines_of(Path(tables["test"]))
    assert all(rows[error["row"] - 1]["text"] == error["text"] for error in summary["errors"])
    assert len(wrong) == sum(row["rows"] for row in summary["confused"])
    config = read_json(finetuned / "model" / "config.json")
    assert config["calibration_temperature"] == calibration["temperature"]
