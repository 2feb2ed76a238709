"""`brimful distil --augment.copies`: an epoch has the texts and new copies, for any number of ranks."""

from pathlib import Path

import pytest
import torch

from brimful import Encoder
from brimful.nn.heads import MaskedLMHead
from brimful.nn.interop import save_model
from brimful.nn.layers import EncoderConfig
from brimful.text.tokenizer import load
from brimful.train.metrics import read_metrics
from builders.verbs import Call, labelled_rows, run, write_table

COPIES, TEXTS = 3, 48


@pytest.fixture(scope="module")
def teacher(chained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fine-tuned encoder of two thin layers that was saved with a masked-LM head."""
    folder = tmp_path_factory.mktemp("augmented")
    tokenizer = load(chained)
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "layers": 2, "heads": 2, "intermediate_size": 64, "max_length": 64}
    encoder = Encoder(EncoderConfig(vocabulary_size=tokenizer.get_vocab_size(), dropout=0.0, **shape))
    encoder.tokenizer = tokenizer
    save_model(folder / "encoder", encoder, MaskedLMHead(encoder))
    train = write_table(folder / "train.tsv", labelled_rows(TEXTS, seed=1))
    test = write_table(folder / "test.tsv", labelled_rows(20, seed=2))
    options = ("--epochs", 1, "--learning-rates", 1e-3, "--ladder", "none", "--precision", "fp32")
    data = ("--encoder", folder / "encoder", "--train", train, "--test", test)
    run("finetune", *data, "--out", folder / "run", *options)
    return folder / "run"


def line(teacher: Path, out: Path) -> tuple:
    epochs = ("--layers.epochs", 1, "--logits.epochs", 2, "--precision", "fp32", "--batch", 16)
    augment = ("--augment.copies", COPIES, "--augment.choices", 5)
    return ("distil", "--teacher", teacher, "--out", out, "--student-layers", 1, *epochs, *augment,
            "--trainer.log-every", 1)  # fmt: skip


def losses(out: Path, stage: str, term: str) -> list[float]:
    return [
        row[term] for row in read_metrics(out / "stages" / "seed-0" / stage / "metrics.jsonl") if term in row
    ]


def test_an_epoch_has_the_texts_and_their_copies(teacher, tmp_path, call: Call) -> None:
    answer = call(*line(teacher, tmp_path / "run"))
    summary = answer.value
    assert summary["texts"] == (1 + COPIES) * TEXTS
    assert len(losses(tmp_path / "run", "layers", "loss.embedding")) == (1 + COPIES) * TEXTS // 16
    assert len(losses(tmp_path / "run", "logits", "loss.logits")) == 2 * (1 + COPIES) * TEXTS // 16
    assert summary["student"]["n"] == 20
    plain = call("distil", "--teacher", teacher, "--out", tmp_path / "dry", "--augment.rate", 0.3)
    assert "augment.rate is set and augment.copies is 0: give --augment.copies" in plain.message


def test_a_dry_run_makes_no_table(teacher, tmp_path, call: Call) -> None:
    answer = call(*line(teacher, tmp_path / "run"), "--dry-run")
    assert answer.value["texts"] == TEXTS
    assert "augmenting" not in answer.error


@pytest.mark.slow
def test_two_ranks_learn_from_the_same_copies(teacher, tmp_path) -> None:
    run(*line(teacher, tmp_path / "one"))
    run(*line(teacher, tmp_path / "two"), ranks=2)
    for stage, term in (("layers", "loss.embedding"), ("layers", "loss.hidden"), ("logits", "loss.logits")):
        alone = losses(tmp_path / "one", stage, term)
        assert losses(tmp_path / "two", stage, term) == pytest.approx(alone, rel=1e-4)
