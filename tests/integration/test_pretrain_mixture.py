"""`brimful pretrain` on mixtures and in phases: real command lines, and what they refuse."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from brimful.base.storage import read_json
from brimful.cli.main import main
from brimful.train.metrics import read_metrics
from builders.verbs import SMALL, Call, write_table

TWELVE = (*SMALL, "--trainer.steps", 12, "--trainer.checkpoint-every", 4)


def test_a_mixture_in_phases(chained: Path, other: Path, tmp_path: Path):
    """A --config file: two sources, three to one, and two phases."""
    path, mixed = tmp_path / "recipe.yaml", tmp_path / "run"
    data = [{"path": str(chained), "weight": 3, "name": "a"}, {"path": str(other), "name": "b"}]
    phases = [{"steps": 5, "max_length": 32}, {"steps": 7, "update_size": 30}]
    recipe = {"data": data, "phases": phases, "seed": 3, "rows_per_update": 20, "rows_per_micro_batch": 10}
    path.write_text(yaml.safe_dump(recipe))
    assert main([*map(str, ("pretrain", "--config", path, "--out", mixed, *TWELVE))]) == 0
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


def test_a_phase_that_will_not_begin_is_said(chained: Path, tmp_path: Path, call: Call):
    dry = ("--data", chained, "--out", tmp_path / "run", *SMALL, "--trainer.steps", 2, "--dry-run")
    answer = call("pretrain", *dry, "--phases", "1:64", "1:32")
    assert answer.value["dry_run"]
    assert "no block is expected to begin" in answer.error


@pytest.mark.slow
def test_what_will_not_be_learned_is_said(tmp_path: Path, call: Call):
    rows = [{"text": " ".join("abcdefgh"[: 1 + number % 8])} for number in range(99)]
    texts, data = write_table(tmp_path / "texts.jsonl", rows), tmp_path / "data"
    assert main(["prepare", texts, "--out", str(data), "--workers", "1"]) == 0
    dry = ("--data", data, "--out", tmp_path / "run", *SMALL, "--trainer.steps", 2, "--dry-run")
    answer = call("pretrain", *dry, "--architecture", "bert", "--sequences.kind", "nsp")
    assert "data gives no pairs" in answer.error


def refused(call: Call, out: Path, *arguments) -> str:
    """The message of a command line that fails and leaves nothing."""
    message = call("pretrain", "--out", out, *TWELVE, *arguments).message
    assert not out.exists()
    return message


def test_damaged_corpora_are_refused(chained: Path, tmp_path, call: Call):
    """The tokenizer always, tokens unless they are not to be verified."""
    out, data = tmp_path / "run", shutil.copytree(chained, tmp_path / "data")
    shard = next(path for path in sorted((data / "shards").glob("*.tok")) if path.stat().st_size)
    whole = shard.read_bytes()
    shard.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    assert f"{shard} is damaged" in refused(call, out, "--data", data)
    unchecked = tmp_path / "unchecked"
    assert call("pretrain", "--data", data, "--out", unchecked, *TWELVE, "--no-verify-data").code == 0
    shard.unlink()
    for flags in ((), ("--no-verify-data",)):
        assert f"{shard} is missing" in refused(call, out, "--data", data, *flags)
    shard.write_bytes(whole)
    file = data / "tokenizer.json"
    text = file.read_text(encoding="utf-8")
    word = next(word for word in json.loads(text)["model"]["vocab"] if len(word) == 1 and word.isalpha())
    changed = text.replace(f'"{word}":', '"~":', 1).rstrip().encode()
    file.write_bytes(changed + b" " * (len(text.encode()) - len(changed)))
    for flags in ((), ("--no-verify-data",)):
        assert f"{file} is damaged" in refused(call, out, "--data", data, *flags)


def test_sources_that_cannot_be_used_are_refused(chained: Path, documents, tmp_path, call: Call):
    texts = write_table(tmp_path / "texts.jsonl", [{"text": text.upper()} for text in documents[:50]])
    assert main(["prepare", texts, "--out", str(tmp_path / "mine"), "--workers", "1"]) == 0
    for arguments, message in (
        (("--data", chained, "--sequences.kind", "nsp"), "needs token types"),
        (("--data", chained, tmp_path / "mine"), "mine was made with another tokenizer"),
        (("--data", chained, tmp_path / "mine"), "--tokenizer"),
    ):
        assert message in refused(call, tmp_path / "run", *arguments)
