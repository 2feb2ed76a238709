"""The verbs as a user runs them, on a CUDA device that records."""

import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture
def reviews(tmp_path: Path) -> tuple[Path, Path]:
    """A training and a test table of two classes."""
    rows = [("good news today", "good"), ("bad news again", "bad")] * 40
    paths = tmp_path / "train.tsv", tmp_path / "test.tsv"
    for path, part in zip(paths, (rows, rows[:20]), strict=True):
        path.write_text(
            "text\tlabel\n" + "".join(f"{text} {i}\t{label}\n" for i, (text, label) in enumerate(part))
        )
    return paths


def test_pretrain_to_export(play, corpus_dir: Path, reviews: tuple[Path, Path], tmp_path: Path) -> None:
    """Defaults choose CUDA, 16 bits, compiled steps and the rows of a micro-batch; every verb ends well."""
    train, test = map(str, reviews)
    runs = tmp_path / "runs"
    verbs = {
        "pretrain": [
            *("--data", corpus_dir, "--out", runs / "pretrained", "--model", "tiny", "--trainer.steps", 6),
            *("--rows-per-update", 8, "--packing.capacity", 512),
        ],
        "finetune": [
            *("--encoder", runs / "pretrained", "--train", train, "--test", test),
            *("--out", runs / "tuned", "--epochs", 1),
        ],
        "distil": [
            *("--teacher", runs / "tuned", "--out", runs / "student", "--student-layers", 1),
            *("--layers.epochs", 1, "--logits.epochs", 1),
        ],
        "predict": ["--model", runs / "tuned", "--input", test, "--output", tmp_path / "predicted.jsonl"],
        "export": [runs / "tuned", "--out", tmp_path / "exported"],
    }
    for verb, arguments in verbs.items():
        done = play(verb, *arguments, settings={"gib": 8})
        assert done.returncode == 0, (verb, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr, (verb, done.stderr)
        assert "is not compiled" not in done.stdout + done.stderr, verb
    summary = json.loads((runs / "pretrained" / "summary.json").read_text())
    assert summary["precision"] == "bf16"
    assert "rows_per_micro_batch:" in (runs / "pretrained" / "config.yaml").read_text()
