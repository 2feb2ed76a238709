"""`brimful pretrain --dry-run`: what a run takes, for programs and for a person; and what is measured."""

from pathlib import Path

import pytest

from brimful.cli import main
from brimful.config import build
from brimful.errors import BrimfulError
from brimful.pretraining import outlook as pretrain_dry_run
from brimful.pretraining.config import PretrainConfig
from builders.verbs import SMALL, Call


def test_what_a_run_takes(corpus_dir: Path, tmp_path: Path, call: Call) -> None:
    given = ("--data", corpus_dir, *SMALL)
    said = call("pretrain", *given, "--out", tmp_path / "dry", "--dry-run")
    found = said.value
    assert not (tmp_path / "dry").exists()
    memory = found["memory"]
    parts = ("weights", "gradients", "average", "states", "passing", "pass")
    assert memory["total"] == sum(memory[part] for part in parts)
    assert memory["holds"] == dict.fromkeys(("16", "32", "80"), memory["rows_per_micro_batch"])
    assert "GB with micro-batches of" in said.error

    summary = call("pretrain", *given, "--out", tmp_path / "run").value
    assert summary["parameters"] == found["parameters"]
    run, disk = tmp_path / "run", found["disk"]
    shards = sum(f.stat().st_size for f in (corpus_dir / "shards").iterdir() if f.suffix != ".json")
    assert disk["shards"] == shards
    newest = max((run / "checkpoints").iterdir())
    written = sum(f.stat().st_size for f in newest.iterdir())
    assert disk["checkpoints"] == pytest.approx(3 * written, rel=0.1)
    assert sum(found["epochs"].values()) == pytest.approx(summary["tokens"] / found["tokens"], rel=0.2)


def test_the_most_rows_that_a_gpu_holds(corpus_dir: Path, tmp_path: Path, call: Call, monkeypatch) -> None:
    """Of those that divide an update, for a run that will choose; else whether it holds the rows that are
    given."""
    monkeypatch.setattr(pretrain_dry_run, "SIZES", (0, 1, 2))
    monkeypatch.setattr(pretrain_dry_run, "CONTEXT", 0)
    given = ("--data", corpus_dir, "--out", tmp_path / "dry", "--model", "tiny", "--precision", "fp32")
    given += ("--rows-per-update", 16, "--packing.capacity", 8192, "--dry-run", "--rows-per-micro-batch")
    found = call("pretrain", *given, "auto").value["memory"]
    none, small, large = found["holds"].values()
    assert none == 0 < small < large == found["rows_per_micro_batch"] <= 16
    assert found["pass"] < 2 << 30
    held = call("pretrain", *given, large).value["memory"]["holds"]
    assert list(held.values()) == [0, 0, large]


def test_a_measurement(corpus_dir: Path, tmp_path: Path, call: Call, monkeypatch) -> None:
    monkeypatch.setattr(pretrain_dry_run, "UPDATES", 6)
    phases = ("--phases", "30:32", "10:64", "--trainer.steps", 40)
    given = ("--data", corpus_dir, *SMALL, *phases, "--out", tmp_path / "dry")
    said = call("pretrain", *given, "--dry-run", "measured")
    measured = said.value["measured"]
    assert [each["max_length"] for each in measured["phases"]] == [32, 64]
    seconds = [each["seconds_per_update"] for each in measured["phases"]]
    assert measured["seconds"] == pytest.approx(30 * seconds[0] + 10 * seconds[1])
    assert all(each["tokens_per_second"] > 0 for each in measured["phases"])
    assert measured["peak_bytes"] > said.value["memory"]["weights"]
    assert said.error.count("measuring 6 updates") == 2
    assert not (tmp_path / "dry").exists()


def test_how_a_dry_run_is_asked_for(corpus_dir: Path, tmp_path: Path, capsys) -> None:
    assert main(["pretrain", "--dry-run", "timed"]) == 2
    assert "--dry-run takes [measured], not timed" in capsys.readouterr().err
    assert build(PretrainConfig, {"dry_run": "measured"}).dry_run == "measured"
    with pytest.raises(BrimfulError, match="dry_run"):
        build(PretrainConfig, {"dry_run": "timed"})


def test_evaluations_that_measure_nothing_are_said(corpus_dir, tmp_path, call) -> None:
    given = ("--data", corpus_dir, *SMALL, "--out", tmp_path / "dry", "--dry-run", "--validation-tokens", 0)
    given += ("--trainer.evaluate-every", 5, "--trainer.checkpoint-every", 5)
    assert "evaluate_every does nothing: validation_tokens is 0" in call("pretrain", *given).error
