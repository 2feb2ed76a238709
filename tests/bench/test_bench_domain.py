"""bench.domain: errors of differences; a quick run leaks nothing and says what it did."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench.domain import ARMS, DIFFERENCES, paired_difference
from brimful.commands.demo_reviews import same_text

ROOT = Path(__file__).parents[2]


def test_errors_of_a_difference(seed):
    draw = np.random.default_rng(seed)
    rows, seeds = 500, 4
    first, second = draw.random((seeds, rows)) < 0.8, draw.random((seeds, rows)) < 0.7
    second |= draw.random(rows) < 0.3  # what all seeds get right
    found = paired_difference(first, second)
    by_seed = [np.mean(a) - np.mean(b) for a, b in zip(first, second, strict=True)]
    assert found["by_seed"] == pytest.approx(by_seed)
    assert found["difference"] == pytest.approx(np.mean(by_seed))
    assert found["seed_error"] == pytest.approx(math.sqrt(np.var(by_seed, ddof=1) / seeds))
    means = first.mean(axis=0), second.mean(axis=0)
    gaps = means[0] - means[1]
    drawn = gaps[draw.integers(0, rows, (10_000, rows))].mean(1).std()
    # 10,000 resamples: a standard error of 1 / sqrt(20,000), 0.7 %; six of them.
    assert found["test_error"] == pytest.approx(drawn, rel=0.043)
    assert found["error"] == pytest.approx(math.hypot(found["test_error"], found["seed_error"]))
    single = paired_difference(first[:1], second[:1])
    assert single["seed_error"] is None
    assert single["error"] == single["test_error"]


@pytest.fixture(scope="module")
def quick(tmp_path_factory) -> tuple[Path, dict]:
    """A quick run's folder and record."""
    folder = tmp_path_factory.mktemp("domain")
    command = [sys.executable, "-m", "bench.domain", "--quick", "--work", str(folder / "work")]
    command += ["--out", str(folder / "domain.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    record = json.loads((folder / "domain.json").read_text())
    assert str(folder) not in (folder / "domain.json").read_text()
    for name in (*ARMS, *(" - ".join(pair) for pair in DIFFERENCES)):
        assert f"| {name} |" in done.stdout
    return folder / "work", record


@pytest.mark.slow
def test_test_reviews_are_seen_by_the_last_judging_only(quick):
    work, record = quick
    text = work / "text"

    def reviews(path: Path) -> set[str]:
        lines = path.read_text(encoding="utf-8").splitlines()
        return {same_text(line.rsplit("\t", 1)[0]) for line in lines[path.suffix == ".tsv" :]}

    test = reviews(text / "test.tsv")
    assert len(test) == record["test"] > 0
    labelled = reviews(text / "train.tsv")
    fit, held_out = reviews(text / "choice" / "train.tsv"), reviews(text / "choice" / "test.tsv")
    assert fit | held_out == labelled
    assert not fit & held_out
    assert not test & (labelled | reviews(text / "training.txt"))
    general = same_text("".join(path.read_text(encoding="utf-8") for path in (text / "general").iterdir()))
    assert not any(review in general for review in test if len(review) > 8)


@pytest.mark.slow
def test_what_is_compared_has_the_same_updates(quick):
    work, record = quick
    trained = [row["pretraining"]["steps"] for arm, row in record["arms"].items() if ARMS[arm][1]]
    assert trained == [2] * 3
    # What a run with replay measures before its first update is what is said of the general encoder.
    replay = json.loads((work / "results" / "continued, replay.json").read_text())
    general = record["arms"]["general"]["losses"]
    assert replay["validation_at_start"]["loss.general"] == general["loss.general"]
    for arm, row in record["arms"].items():
        assert 0 <= row["accuracy"] <= 1, arm
    assert record["learning_rate"] in record["scale"]["learning_rates"]
