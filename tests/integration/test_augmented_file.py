"""A file of `brimful augment` is a table like any other: `distil` learns from each of its rows."""

from pathlib import Path

import pytest

from brimful.hf.folders import save_model
from brimful.model.heads import MaskedLMHead
from brimful.train.metrics import read_metrics
from builders.thin_encoders import thin_encoder
from builders.verbs import Call, labelled_rows, write_table


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--train", "--unlabelled"])
def test_a_student_learns_from_copies(chained: Path, tmp_path: Path, call: Call, option: str) -> None:
    encoder = thin_encoder(chained, dropout=0.0)
    save_model(tmp_path / "encoder", encoder, MaskedLMHead(encoder))
    train = write_table(tmp_path / "train.tsv", labelled_rows(24, seed=1))
    test = write_table(tmp_path / "test.tsv", labelled_rows(20, seed=2))
    options = ("--epochs", 1, "--learning-rates", 1e-3, "--ladder", "none", "--precision", "fp32")
    data = ("--encoder", tmp_path / "encoder", "--train", train, "--test", test)
    call("finetune", *data, "--out", tmp_path / "teacher", *options)
    made = ("--input", train, "--output", tmp_path / "more.tsv", "--encoder", tmp_path / "encoder")
    written = call("augment", *made, "--copies", 3).value["written"]
    assert 24 < written <= 4 * 24
    stages = ("--layers.epochs", 1, "--logits.epochs", 2, "--precision", "fp32", "--batch", 16)
    line = ("distil", "--teacher", tmp_path / "teacher", "--out", tmp_path / "run", *stages)
    summary = call(*line, option, tmp_path / "more.tsv", "--trainer.log-every", 1).value
    texts = written + 24 * (option == "--unlabelled")
    assert summary["texts"] == texts
    for stage, term, epochs in (("layers", "embedding", 1), ("logits", "logits", 2)):
        rows = read_metrics(tmp_path / "run" / "stages" / "seed-0" / stage / "metrics.jsonl")
        assert sum(f"loss.{term}" in row for row in rows) == round(epochs * texts / 16)
