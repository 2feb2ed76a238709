"""bench/distil: its lengths, its peer, and a quick run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.distil.students import STUDENTS, facts_of, show
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


@pytest.mark.parametrize("two_stages", [True, False])
def test_a_student_of_outputs_alone_is_not_compared_with_itself(two_stages, capsys):
    names = ("teacher", "student", "student_layer_drop", "student_without_distillation", "tfidf")
    pairs = [f"student_minus_{name}" for name in names if name != "student"]
    made = {name: {"accuracy": 0.8, "loss": 1.0} for name in names}
    made |= {"primary_metric": "accuracy", "precision": "fp32", "seconds": 1.0, "texts": 4}
    made |= {"comparisons": {pair: {"difference": 0.0, "standard_error": 0.0} for pair in pairs}}
    made |= {group: dict.fromkeys(names[:3], 2.0) for group in ("parameters", "latency_ms")}
    row = facts_of(made, two_stages=two_stages)
    assert ("layer_drop" in json.dumps(row)) is two_stages
    assert row["student"] == {"accuracy": 0.8}
    assert row["comparisons"].keys() >= {"student_minus_teacher", "student_minus_tfidf"}
    show([{"table": "reviews", "shape": "any", **row}])
    printed = capsys.readouterr().out
    assert ("two stages" in printed) is two_stages
    assert printed.count("teacher's layers, outputs alone") == 1


def test_the_smallest_student_alone_is_of_outputs_alone():
    without = [name for name, of in STUDENTS.items() if of(12).get("layers", {}).get("epochs") == 0]
    assert without == ["small"]
    assert STUDENTS["small"](12)["initialisation"] == "teacher"


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
