"""bench/distil: its lengths, its peer, and a quick run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.distil.worker import CASES, agree, skewed_lengths

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("length", CASES)
def test_lengths_have_the_real_share_and_the_longest_text(length):
    count, share, longest = CASES[length]
    lengths = skewed_lengths(count, round(share * count * length), longest)
    assert len(lengths) == count
    assert sum(lengths) == pytest.approx(share * count * length, rel=0.01)
    assert max(lengths) == longest


def test_the_peer_has_the_losses_of_the_same_models():
    assert agree()["difference"] < 1e-5


@pytest.mark.slow
def test_bench_distil_runs(tmp_path):
    out = tmp_path / "distil.json"
    command = [sys.executable, "-m", "bench.distil", "--quick", "--threads", "1", "--lengths", "128"]
    done = subprocess.run([*command, "--out", str(out)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text())["rows"]
    sides = {row["side"]: row for row in rows if "side" in row}
    assert list(sides) == ["floor", "brimful", "tinybert", "dynamic"]
    assert sides["brimful"]["brimful_times_as_fast"] == 1
    assert sides["tinybert"]["brimful_times_less_memory"] > sides["dynamic"]["brimful_times_less_memory"] > 1
    assert sides["dynamic"]["losses"]["hidden"] > 0
