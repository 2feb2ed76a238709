"""bench.distil.copies: what a process has of its own does not grow with the number of copies."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_memory_does_not_grow_with_copies(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.distil.copies", "--rows", "3000", "--copies", "1", "20"]
    done = subprocess.run([*command, "--out", tmp_path / "a.json"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "a.json").read_text())["rows"]
    for verb in ("augment", "distil"):
        few, many = (row for row in rows if row["verb"] == verb)
        assert many["rows"] > 8 * few["rows"]
        assert many["anonymous_mb"] < few["anonymous_mb"] + {"augment": 15, "distil": 60}[verb]
