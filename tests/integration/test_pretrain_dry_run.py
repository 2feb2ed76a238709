"""`brimful pretrain --dry-run`: what a run takes, for programs and for a person; and what is measured."""

from pathlib import Path

import pytest

from brimful.stages import pretrain_data
from builders.verbs import SMALL, Call

AUTO = ("--rows-per-micro-batch", "auto")


@pytest.mark.slow
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
    """Those which divide an update, whatever rows this run has. A row of this test takes 4.5 GiB."""
    monkeypatch.setattr(pretrain_data, "make_longest_batch", lambda stream, rows: rows)
    monkeypatch.setattr(pretrain_data, "trace_pass", lambda make, trainer, precision, rows: rows * (9 << 29))
    given = ("--data", corpus_dir, "--out", tmp_path / "dry", *SMALL, "--rows-per-update", 12, "--dry-run")
    given += ("--validation-tokens", 0, "--trainer.evaluate-every", 5, "--trainer.checkpoint-every", 5)
    for options, rows in ((AUTO, 12), (("--rows-per-micro-batch", 3), 3)):
        answer = call("pretrain", *given, *options)
        assert "trainer.evaluate_every does nothing" in answer.error
        memory = answer.value["memory"]
        assert memory["holds"] == {"16": 2, "32": 6, "80": 12}
        assert (memory["rows_per_micro_batch"], memory["pass"]) == (rows, rows * (9 << 29))
