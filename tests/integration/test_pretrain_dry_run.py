"""`brimful pretrain --dry-run`: what a run takes, for programs and for a person; and what is measured."""

from dataclasses import fields
from pathlib import Path

import pytest

from brimful.stages import pretrain_data
from brimful.train.step_memory import Held, room_of_a_pass
from builders.verbs import SMALL, Call

AUTO = ("--rows-per-micro-batch", "auto")


def test_what_a_run_takes(corpus_dir: Path, tmp_path: Path, call: Call) -> None:
    given = ("--data", corpus_dir, *SMALL)
    said = call("pretrain", *given, "--out", tmp_path / "dry", "--dry-run")
    found = said.value
    assert not (tmp_path / "dry").exists()
    memory = found["memory"]
    parts = ("weights", "gradients", "states", "passing", "pass")
    assert memory["total"] == sum(memory[part] for part in parts)
    assert list(memory["holds"]) == ["16", "32", "80"]
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
    """Of those that divide an update, by the memory of each, whatever rows this run has."""
    monkeypatch.setattr(pretrain_data, "GPU_GIGABYTES", (0, 1, 2))
    monkeypatch.setattr(pretrain_data, "CONTEXT_BYTES", 0)
    given = ("--data", corpus_dir, "--out", tmp_path / "dry", "--model", "tiny", "--precision", "fp32")
    given += ("--rows-per-update", 12, "--packing.capacity", 8192, "--dry-run")
    sizes, taken, held = (1, 2, 3, 4, 6, 12), {}, []
    for rows in sizes:
        found = call("pretrain", *given, "--rows-per-micro-batch", rows).value["memory"]
        assert found["rows_per_micro_batch"] == rows
        taken[rows] = found["pass"]
        held.append(found["holds"])
    parts = Held(**{field.name: found[field.name] for field in fields(Held)})
    wanted = {}
    for size in (0, 1, 2):
        room = room_of_a_pass((size << 30) - (parts.total - parts.later), parts.later)
        wanted[str(size)] = max((rows for rows in sizes if taken[rows] <= room), default=0)
    assert wanted["0"] == 0 < wanted["1"] < wanted["2"]
    chooses, on_cpu = (call("pretrain", *given, *more).value["memory"] for more in (AUTO, ()))
    assert [*held, chooses["holds"], on_cpu["holds"]] == 8 * [wanted]
    assert chooses["rows_per_micro_batch"] == wanted["2"]
    assert chooses["pass"] == taken[wanted["2"]]


def test_evaluations_that_measure_nothing_are_said(corpus_dir, tmp_path, call) -> None:
    given = ("--data", corpus_dir, *SMALL, "--out", tmp_path / "dry", "--dry-run", "--validation-tokens", 0)
    given += ("--trainer.evaluate-every", 5, "--trainer.checkpoint-every", 5)
    assert "evaluate_every does nothing: validation_tokens is 0" in call("pretrain", *given).error
