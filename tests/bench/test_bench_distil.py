"""bench/distil: its lengths, its peer, and a quick run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.distil.worker import agree

ROOT = Path(__file__).resolve().parents[2]


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
