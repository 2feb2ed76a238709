"""bench.infer.start: every kind of model predicts, and its process is measured (one round)."""

import json
from pathlib import Path

import pytest

from bench.infer import start


@pytest.mark.slow
def test_each_kind_of_model_has_a_row(tmp_path: Path) -> None:
    start.main(["--texts", "3", "--rounds", "1", "--cores", "0", "--out", str(tmp_path / "start.json")])
    rows = json.loads((tmp_path / "start.json").read_text())["rows"]
    assert [row["side"] for row in rows] == [*start.FLOORS, *start.MODELS]
    assert all(row["cpu_seconds"] > 0 for row in rows)
