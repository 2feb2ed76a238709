"""`brimful pretrain` on mixtures, in phases, with pairs: real command lines, and what they refuse."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import yaml
from transformers import BertForPreTraining

from brimful.base.storage import read_json
from brimful.cli.main import main
from brimful.train.metrics import read_metrics
from builders.verbs import (
    SMALL,
    WEIGHTS,
    Call,
    chained_documents,
    command,
    kill_when,
    run,
    sha256,
    start,
    steps_and_losses,
    write_table,
)

TWELVE = (*SMALL, "--trainer.steps", 12, "--trainer.checkpoint-every", 4)


@pytest.fixture(scope="session")
def other(chained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared corpus with the tokenizer of `chained`."""
    folder = tmp_path_factory.mktemp("other")
    texts = write_table(folder / "texts.jsonl", [{"text": text} for text in chained_documents(200, seed=2)])
    arguments = [texts, "--out", str(folder / "other"), "--tokenizer", str(chained), "--workers", "1"]
    assert main(["prepare", *arguments]) == 0
    return folder / "other"


@pytest.fixture(scope="session")
def recipe(chained: Path, other: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A --config file: two sources, three to one, and two phases."""
    path = tmp_path_factory.mktemp("recipe") / "recipe.yaml"
    data = [{"path": str(chained), "weight": 3, "name": "a"}, {"path": str(other), "name": "b"}]
    phases = [{"steps": 5, "max_length": 32}, {"steps": 7, "update_size": 30}]
    recipe = {"data": data, "phases": phases, "seed": 3, "rows_per_update": 20, "rows_per_micro_batch": 10}
    path.write_text(yaml.safe_dump(recipe))
    return path


@pytest.fixture(scope="session")
def mixed(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the recipe, made in one go."""
    out = tmp_path_factory.mktemp("mixed") / "run"
    assert main([*map(str, ("pretrain", "--config", recipe, "--out", out, *TWELVE))]) == 0
    return out


def test_a_mixture_in_phases(mixed: Path):
    *lines, last = read_metrics(mixed / "metrics.jsonl")
    assert len(lines) == 12
    for line in lines:
        assert line["tokens.a"] + line["tokens.b"] == line["tokens"]
        assert abs(line["tokens.a"] - 3 * line["tokens.b"]) <= 3 * 128
        assert 0.9 < line["fill"] <= 1
        assert 0 <= line["data_wait"] <= 1
    used = [b["tokens"] - a["tokens"] for a, b in pairwise(lines)]
    assert all(0.9 * 20 * 128 < tokens <= 20 * 128 for tokens in used[:4])
    assert all(0.9 * 30 * 128 < tokens <= 30 * 128 for tokens in used[4:])
    state = read_json(mixed / "checkpoints" / "step-12" / "checkpoint.json")["state"]
    place = state["cursor"]["sources"]["a"]
    assert (place["epoch"] > 0, place["max_length"]) == (True, 64)  # blocks of the second phase have begun
    assert {"validation.loss", "validation.loss.a", "validation.loss.b"} < last.keys()
    low, high = sorted((last["validation.loss.a"], last["validation.loss.b"]))
    assert low <= last["validation.loss"] <= high


def test_the_saved_configuration_of_a_mixture_is_a_valid_one(mixed: Path, tmp_path, call: Call):
    call("pretrain", "--config", mixed / "config.yaml", "--out", tmp_path / "run")
    assert sha256(tmp_path / "run" / WEIGHTS) == sha256(mixed / WEIGHTS)
    saved = [yaml.safe_load((run / "config.yaml").read_text()) for run in (mixed, tmp_path / "run")]
    assert saved[0] == saved[1] | {"out": saved[0]["out"]}


@pytest.mark.slow
def test_a_killed_mixture_goes_on_to_the_same_bits(recipe: Path, mixed: Path, tmp_path):
    out = tmp_path / "run"
    process = start(command("pretrain", "--config", recipe, "--out", out, *TWELVE))
    kill_when(process, out / "checkpoints" / "step-4")
    run("pretrain", "--resume", out)
    assert sha256(out / WEIGHTS) == sha256(mixed / WEIGHTS)
    assert steps_and_losses(out) == steps_and_losses(mixed)
    packing = [read_json(run / "summary.json")["packing"] for run in (out, mixed)]
    assert packing[0] == packing[1]
    assert not list(out.rglob(".tmp-*"))


@pytest.mark.slow
@pytest.mark.distributed
def test_two_ranks_have_the_losses_of_one_in_a_mixture(recipe: Path, mixed: Path, tmp_path):
    out = tmp_path / "run"
    run("pretrain", "--config", recipe, "--out", out, *TWELVE, ranks=2)
    ours, theirs = read_metrics(out / "metrics.jsonl"), read_metrics(mixed / "metrics.jsonl")
    for line, expected in zip(ours, theirs, strict=True):
        for name in ("step", "tokens", "tokens.a", "tokens.b", "fill"):
            assert line.get(name) == expected.get(name)
        for name in ("loss.mlm", "accuracy", "validation.loss", "validation.loss.b"):
            if name in expected:
                assert line[name] == pytest.approx(expected[name], rel=1e-5)


def test_pairs(chained: Path, tmp_path, call: Call):
    out = tmp_path / "run"
    settings = ("--architecture", "bert", "--sequences.kind", "nsp", "--sequences-per-update", 16)
    summary = call("pretrain", "--data", chained, "--out", out, *TWELVE, *settings).value
    (phase,) = summary["phases"]
    assert phase == {"steps": 12, "max_length": 64, "sequences_per_update": 16}
    assert 0 <= summary["validation"]["pair_accuracy"] <= 1
    assert summary["validation"]["pair_loss"] > 0
    *lines, last = read_metrics(out / "metrics.jsonl")
    assert all(0 < line["loss.pair"] < 3 for line in lines)
    assert {"validation.pair_loss", "validation.pair_accuracy"} < last.keys()
    model, loaded = BertForPreTraining.from_pretrained(out / "encoder", output_loading_info=True)
    assert not loaded["missing_keys"]
    assert not loaded["unexpected_keys"]
    assert model(torch.tensor([[2, 7, 3]])).seq_relationship_logits.shape == (1, 2)


def test_what_a_run_leaves(mixed: Path):
    assert {path.name for path in mixed.iterdir()} == {
        *("config.yaml", "metrics.jsonl", "tensorboard", "checkpoints", "encoder", "summary.json")
    }
    assert read_json(mixed / "summary.json")["phases"] == [
        {"steps": 5, "max_length": 32, "rows_per_update": 20},
        {"steps": 7, "max_length": 64, "rows_per_update": 30},
    ]


@pytest.mark.slow
def test_what_will_not_be_learned_is_said(chained: Path, tmp_path: Path, call: Call):
    rows = [{"text": " ".join("abcdefgh"[: 1 + number % 8])} for number in range(99)]
    texts, data = write_table(tmp_path / "texts.jsonl", rows), tmp_path / "data"
    assert main(["prepare", texts, "--out", str(data), "--workers", "1"]) == 0
    for folder, settings, said in (
        (data, ("--architecture", "bert", "--sequences.kind", "nsp"), "data gives no pairs"),
        (chained, ("--phases", "1:64", "1:32"), "no block is expected to begin"),
    ):
        dry = ("--data", folder, "--out", tmp_path / "run", *SMALL, "--trainer.steps", 2, "--dry-run")
        answer = call("pretrain", *dry, *settings)
        assert answer.value["dry_run"]
        assert said in answer.error


@pytest.mark.slow
def test_phases_with_rates_of_their_own_go_on_after_a_kill(chained: Path, tmp_path: Path):
    first = {"steps": 5, "max_length": 32, "warmup": 0.4}
    second = {"steps": 7, "learning_rate": 4e-4, "warmup": 2.0}
    schedule = {"shape": "polynomial", "decay_from": "start"}
    recipe = {"phases": [first, second], "schedule": schedule, "optimizer": {"learning_rate": 6e-4}}
    config = tmp_path / "recipe.yaml"
    config.write_text(yaml.safe_dump(recipe | {"data": str(chained)}))
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run("pretrain", "--config", config, "--out", whole, *TWELVE)
    process = start(command("pretrain", "--config", config, "--out", killed, *TWELVE))
    kill_when(process, killed / "checkpoints" / "step-4")
    run("pretrain", "--resume", killed)
    assert sha256(killed / WEIGHTS) == sha256(whole / WEIGHTS)
    assert steps_and_losses(killed) == steps_and_losses(whole)
    rates = [line["learning_rate"] for line in read_metrics(whole / "metrics.jsonl") if "loss.mlm" in line]
    expected = [6e-4 * rate for rate in (1 / 2, 1, 0.6**0.5, 0.4**0.5, 0.2**0.5)]
    expected += [4e-4 * rate for rate in (1 / 2, 1, *((left / 7) ** 0.5 for left in range(5, 0, -1)))]
    assert rates == pytest.approx(expected, rel=1e-12)


def test_a_run_ends_with_its_hours(chained: Path, tmp_path: Path, call: Call):
    out, hours = tmp_path / "run", 2 / 3600
    limit = ("--trainer.steps", 100_000, "--trainer.hours", hours)
    answer = call("pretrain", "--data", chained, "--out", out, *TWELVE, *limit)
    assert "the run ends after 0.000555556 hours of training at the latest" in answer.error
    summary = answer.value
    *lines, last = read_metrics(out / "metrics.jsonl")
    assert 1 <= summary["steps"] == len(lines) < 100_000
    before = [0.0, *(line["seconds"] for line in lines)][-2]
    assert before < 3600 * hours <= summary["seconds"] == lines[-1]["seconds"]
    assert "validation.loss" in last
    assert (out / "checkpoints" / f"step-{summary['steps']}").is_dir()
    assert call("pretrain", "--resume", out).value == summary


def test_no_validation_is_asked_for(chained: Path, tmp_path: Path, call: Call):
    out = tmp_path / "run"
    answer = call("pretrain", "--data", chained, "--out", out, *TWELVE, "--validation-tokens", 0)
    assert answer.value["validation"] == {}
    assert "no validation loss" not in answer.error


def refused(call: Call, out: Path, *arguments) -> str:
    """The message of a command line that fails and leaves nothing."""
    message = call("pretrain", "--out", out, *TWELVE, *arguments).message
    assert not out.exists()
    return message


def test_damaged_shards_are_refused(chained: Path, tmp_path, call: Call):
    out, data = tmp_path / "run", tmp_path / "data"
    shutil.copytree(chained, data)
    shard = next(path for path in sorted((data / "shards").glob("*.tok")) if path.stat().st_size)
    whole = shard.read_bytes()
    shard.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    assert f"{shard} is damaged" in refused(call, out, "--data", data)
    unchecked = tmp_path / "unchecked"
    assert call("pretrain", "--data", data, "--out", unchecked, *TWELVE, "--no-verify-data").code == 0
    shard.unlink()
    for flags in ((), ("--no-verify-data",)):
        assert f"{shard} is missing" in refused(call, out, "--data", data, *flags)


def test_another_tokenizer_is_refused(chained: Path, documents: list[str], tmp_path, call: Call):
    out, data = tmp_path / "run", tmp_path / "data"
    shutil.copytree(chained, data)
    file = data / "tokenizer.json"
    text = file.read_text(encoding="utf-8")
    word = next(word for word in json.loads(text)["model"]["vocab"] if len(word) == 1 and word.isalpha())
    changed = text.replace(f'"{word}":', '"~":', 1).rstrip().encode()
    file.write_bytes(changed + b" " * (len(text.encode()) - len(changed)))
    assert f"{file} is damaged" in refused(call, out, "--data", data)
    assert f"{file} is damaged" in refused(call, out, "--data", data, "--no-verify-data")
    texts = write_table(tmp_path / "texts.jsonl", [{"text": text.upper()} for text in documents[:50]])
    assert main(["prepare", texts, "--out", str(tmp_path / "mine"), "--workers", "1"]) == 0
    message = refused(call, out, "--data", chained, tmp_path / "mine")
    assert "mine was made with another tokenizer" in message
    assert "--tokenizer" in message


def test_sources_that_cannot_be_used_are_refused(chained: Path, tmp_path, call: Call):
    out, empty = tmp_path / "run", tmp_path / "empty"
    empty.mkdir()
    assert "holds no finished corpus" in refused(call, out, "--data", empty)
    assert "no prepared corpus" in refused(call, out, "--data", tmp_path / "none")
    assert "two sources are called" in refused(call, out, "--data", chained, chained)
    for weight in ("0", "-1"):
        assert "above 0" in refused(call, out, "--data", f"{chained}:{weight}")
    assert "add up to 7" in refused(call, out, "--data", chained, "--phases", "3:32", "4:64")
    assert "needs token types" in refused(call, out, "--data", chained, "--sequences.kind", "nsp")
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"data": [{"path": str(chained), "wieght": 2}]}))
    assert "data[0].wieght" in refused(call, out, "--config", config)
