"""`brimful pretrain` in real processes: the same bits each time, after a kill, and on several ranks."""

import math
import os
import signal
from pathlib import Path

import pytest

from brimful.base.storage import read_json
from brimful.train.metrics import read_metrics
from builders.verbs import (
    SMALL,
    WEIGHTS,
    Call,
    command,
    kill_when,
    run,
    sha256,
    start,
    steps_and_losses,
    wait_for,
    word_entropy,
)


def test_a_finished_run_has_all_its_parts(pretrained):
    summary = read_json(pretrained / "summary.json")
    assert summary["steps"] == 20
    assert 20 * 4 * 128 * 0.9 < summary["tokens"] <= 20 * 4 * 128
    assert summary["tokens_per_second"] > 0
    assert summary["validation"]["loss"] > 0
    assert 0.9 < summary["packing"]["efficiency"] <= 1
    assert summary["packing"]["padded_efficiency"] < summary["packing"]["efficiency"]
    assert summary["verdict"]["unigram_entropy"] < math.log(200)
    assert isinstance(summary["verdict"]["loss_is_normal"], bool)
    assert len(read_metrics(pretrained / "metrics.jsonl")) == 21
    assert {path.name for path in (pretrained / "encoder").iterdir()} == {
        *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "checksums.json")
    }
    assert [path.name for path in pretrained.rglob(".tmp-*")] == []


def test_the_same_seed_gives_the_same_bits_and_another_does_not(
    chained, pretrained_twice, tmp_path, call: Call
):
    first, second = pretrained_twice
    assert sha256(first / WEIGHTS) == sha256(second / WEIGHTS)
    assert steps_and_losses(first) == steps_and_losses(second)
    call("pretrain", "--data", chained, "--out", tmp_path / "four", "--seed", 4, *SMALL)
    assert sha256(tmp_path / "four" / WEIGHTS) != sha256(first / WEIGHTS)


@pytest.mark.slow
def test_a_run_killed_after_a_checkpoint_goes_on_to_the_same_bits(chained, pretrained, tmp_path):
    out = tmp_path / "run"
    process = start(command("pretrain", "--data", chained, "--out", out, "--seed", 3, *SMALL))
    kill_when(process, out / "checkpoints" / "step-5")
    assert not (out / "summary.json").exists()
    summary = run("pretrain", "--resume", out)
    assert sha256(out / WEIGHTS) == sha256(pretrained / WEIGHTS)
    assert steps_and_losses(out) == steps_and_losses(pretrained)
    assert summary["validation"] == read_json(pretrained / "summary.json")["validation"]
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["step-15", "step-20"]


@pytest.mark.slow
@pytest.mark.distributed
def test_one_of_two_ranks_is_asked_to_stop_and_both_do(chained, tmp_path):
    out = tmp_path / "run"
    line = command("pretrain", "--data", chained, "--out", out, *SMALL, "--trainer.steps", 2000, ranks=2)
    with start(line) as process:
        wait_for(process, out / "metrics.jsonl")
        ranks = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(ranks) == 2
        os.kill(int(ranks[1]), signal.SIGUSR1)
        _, error = process.communicate(timeout=60)
    assert process.returncode != 0
    step = len(read_metrics(out / "metrics.jsonl"))
    assert step < 2000
    assert f"at step {step}; continue" in error.decode()
    assert (out / "checkpoints" / f"step-{step}").exists()


@pytest.mark.slow
def test_a_run_killed_before_its_first_checkpoint_starts_over_to_the_same_bits(
    chained, pretrained, tmp_path, call: Call
):
    out = tmp_path / "run"
    process = start(command("pretrain", "--data", chained, "--out", out, "--seed", 3, *SMALL))
    kill_when(process, out / "config.yaml")
    assert not list(out.glob("checkpoints/step-*"))
    again = call("pretrain", "--data", chained, "--out", out, "--seed", 3, *SMALL)
    assert "--resume" in again.message
    answer = call("pretrain", "--resume", out)
    assert "starting over" in answer.error
    assert answer.value["steps"] == 20
    assert sha256(out / WEIGHTS) == sha256(pretrained / WEIGHTS)
    assert steps_and_losses(out) == steps_and_losses(pretrained)


def test_what_cannot_be_resumed_or_overwritten_says_so(chained, pretrained, tmp_path, call: Call):
    before = {path: path.stat().st_mtime_ns for path in pretrained.rglob("*")}
    again = call("pretrain", "--resume", pretrained)  # as a requeue script does
    assert again.code == 0
    assert "is finished; there is nothing to resume" in again.error
    assert again.value == read_json(pretrained / "summary.json")
    assert call("pretrain", "--resume", pretrained, "--seed", 9).code == 2
    for taken in (pretrained, chained):
        message = call("pretrain", "--data", chained, "--out", taken, *SMALL).message
        assert f"{taken} is not empty; choose another --out" in message
    assert "not a run directory" in call("pretrain", "--resume", tmp_path).message
    assert (
        "was not written by `brimful pretrain`: unknown key" in call("pretrain", "--resume", chained).message
    )
    (tmp_path / "mine.txt").write_text("precious")
    assert "not empty" in call("pretrain", "--data", chained, "--out", tmp_path, *SMALL).message
    assert "is a file" in call("pretrain", "--data", chained, "--out", tmp_path / "mine.txt", *SMALL).message
    assert call("pretrain", "--data", chained).code == 2
    new = ("pretrain", "--data", chained, "--out", tmp_path / "new", *SMALL)
    for name, value in (("rows-per-update", 0), ("rows-per-micro-batch", 0)):
        assert f"{name.replace('-', '_')} is {value}" in call(*new, f"--{name}", value).message
    assert not (tmp_path / "new").exists()
    assert {path: path.stat().st_mtime_ns for path in pretrained.rglob("*")} == before


@pytest.mark.slow
@pytest.mark.distributed
def test_two_ranks_have_the_losses_of_one(chained, pretrained, tmp_path):
    out = tmp_path / "run"
    summary = run("pretrain", "--data", chained, "--out", out, "--seed", 3, *SMALL, ranks=2)
    assert summary["world_size"] == 2
    ours, theirs = read_metrics(out / "metrics.jsonl"), read_metrics(pretrained / "metrics.jsonl")
    assert len(ours) == len(theirs) == 21
    for line, expected in zip(ours, theirs, strict=True):
        assert line["step"] == expected["step"]
        for name in ("loss.mlm", "accuracy", "validation.loss"):
            if name in expected:
                assert line[name] == pytest.approx(expected[name], rel=1e-5)
        assert line.get("tokens") == expected.get("tokens")


@pytest.mark.slow
def test_texts_with_structure_are_learned(chained, documents, tmp_path, call: Call):
    """Far below the words' entropy, which is as far as frequencies alone get."""
    settings = ("--model", "tiny", "--packing.capacity", 512, "--packing.max-length", 64)
    settings += ("--rows-per-update", 1)
    settings += ("--trainer.steps", 150, "--optimizer.learning-rate", 5e-3, "--masking.rate", 0.2)
    summary = call("pretrain", "--data", chained, "--out", tmp_path / "run", *settings).value
    assert summary["validation"]["loss"] < word_entropy(documents) - 1.5
