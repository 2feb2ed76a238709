"""The runs of a record, and the trainings that leave one idea out."""

import os
import re
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.common.processes import time_of_others
from bench.speedrun import curves, ours
from bench.speedrun.__main__ import Speedrun, main, options_of
from bench.speedrun.contest import leave_out, our_seconds
from bench.speedrun.points import Length
from bench.speedrun.records import misses, read_record_file
from bench.speedrun.runs import Runs
from bench.speedrun.side import OURS
from bench.speedrun.sides import (
    IDEAS,
    PRESET,
    our_start,
    without,
)
from bench.speedrun.track import ENGLISH
from brimful.errors import BrimfulError
from builders.speedrun import TRACK, run_of

ROOT = Path(__file__).parents[2]


def test_with_given_seconds_the_runs_of_the_record_set_the_target(tmp_path, monkeypatch):
    made, contests = [], set()

    def run(self, side, settings, seconds, seed, *, contest=None):
        made.append((side, settings["learning"], seconds, seed))
        contests.add(contest)
        return run_of(side, seed, seconds, 0, len(side) + seed)

    monkeypatch.setattr(Runs, "__post_init__", lambda self: None)
    monkeypatch.setattr(Runs, "run", run)
    monkeypatch.setattr(Speedrun, "tuned", lambda self, side: {"learning": side})
    monkeypatch.setattr(Speedrun, "searches_of_rivals", [{"side": "lines"}, {"side": "grouped"}])
    options = ["record", "--work", str(tmp_path), "--sides", OURS, "lines", "grouped", "--our-seconds", "70"]
    speedrun = Speedrun(ENGLISH, options_of([*options, "--target", "early", "--seeds", "4", "5"]))
    target = speedrun.target
    assert (target["loss"], target["rival"], target["seconds"]) == (9.5, "lines", 600.0)
    assert target["losses"]["grouped"]["mean"] == 11.5
    turn = [("grouped", 600.0), ("lines", 600.0), (OURS, 70.0)]
    assert made == [(s, s, t, 4) for s, t in turn] + [(s, s, t, 5) for s, t in turn[::-1]]
    assert len(speedrun.made) == 6
    assert len(made) == 6
    other = Speedrun(ENGLISH, options_of([*options[:-1], "71", "--target", "early", "--seeds", "4", "5"]))
    assert other.made
    assert len(contests) == 2  # so no run of the one is found by the other


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, None),
        ({"cores_of_others": -0.02}, None),
        ({"cores_of_others": 0.06}, "others had 0.06 cores, and at most 0.05 are allowed"),
        ({"cores_of_others": None}, "it is not known"),
        ({"seconds": 64.0}, "it took 64 s instead of 60: something held its last update up"),
        ({"side": OURS, "seconds": 64.0}, "it took 64 s instead of 60"),
        ({"side": OURS, "seconds": 62.0}, None),
    ],
)
def test_a_run_that_measures_nothing_is_not_kept(tmp_path, monkeypatch, change, fault):
    made = run_of("grouped", 7, 60.0, 100, 4.0) | change
    point = {name: made[name] for name in ("seconds", "updates", "tokens", "flops", "loss")}
    lengths = []

    def train(self, place, side, settings, length, **_):
        lengths.append(length)
        (place / "points" / "0000010").mkdir(parents=True)
        cores = made["cores_of_others"]
        return {"points": [point], "cores_of_others": cores, "start_seconds": 1.0, "updates_per_second": 1.0}

    monkeypatch.setattr(Runs, "__post_init__", lambda self: None)
    monkeypatch.setattr(Runs, "data", "text")
    monkeypatch.setattr(Runs, "_train", train)
    monkeypatch.setattr("bench.speedrun.runs.score", lambda *_: {})
    monkeypatch.setattr("bench.speedrun.runs.load_held_out", lambda _: None)
    monkeypatch.setattr("bench.speedrun.runs.tokenizer_of", lambda _: (None, SimpleNamespace(pad=0)))
    monkeypatch.setattr("bench.speedrun.runs.shutil.copyfile", lambda *_: None)
    runs = Runs(ENGLISH, tmp_path, tmp_path / "work", 2, 10.0)
    for again in range(2):
        if fault:
            with pytest.raises(BrimfulError, match=f"{made['side']}, seed 7: {re.escape(fault)}"):
                runs.run(made["side"], {"compile": True}, 60.0, 7, contest="a")
        else:
            kept = runs.run(made["side"], {"compile": True}, 60.0, 7, contest="a")
            assert kept["seconds"] == made["seconds"]
        # A run that is not kept is made again. Before each, a pilot fills the compiler's cache.
        each = [Length(pilot=10.0), Length(seconds=60.0)]
        assert lengths == each * (again + 1 if fault else 1)


@pytest.mark.parametrize("target", ENGLISH.seconds)
@pytest.mark.parametrize("idea", IDEAS)
def test_an_idea_is_one_valid_change(idea, target):
    settings = our_start(ENGLISH, target)
    off = without(settings, idea)
    assert off != settings

    def config(values):
        return ours.config(values, Path("corpus"), Path("out"), Length(updates=100), seed=0)

    whole, less = config(settings), config(off)
    assert less.trainer == whole.trainer
    # The same slots in an update, whatever is packed.
    assert less.rows_per_update * less.packing.capacity == whole.rows_per_update * whole.packing.capacity
    assert whole.validation_tokens == 0


class Trainings:
    """Of Brimful, made up: without Muon they are worse and take longer."""

    def updates_in(self, side, settings, seconds):
        assert (side, settings["masking.rate"], seconds) == (OURS, 0.4, 60.0)
        return 120

    def run(self, side, settings, seconds, seed, *, updates):
        less = settings["optimizer.name"] == "adamw"
        own = updates or 70  # if none are given, as many as take the seconds
        return run_of(side, seed, 90.0 if less else 60.0, own, 4.0 + 0.1 * seed + less * (0.2 + seed))


def test_an_idea_is_left_out_for_the_same_updates():
    whole = {"optimizer.name": "muon", "masking.rate": 0.4}
    found = leave_out(Trainings(), whole, 60.0, [0, 1], ["Muon for matrices", "high mask rate"])
    first, second = found["without"]
    assert first["rise"] == pytest.approx(0.7)
    assert first["standard_error"] == pytest.approx(0.5)
    assert first["longer"] == pytest.approx(1.5)
    assert [run["tokens"] for run in first["runs"]] == [120, 120]
    assert (second["rise"], second["longer"]) == (0.0, 1.0)
    assert [run["loss"] for run in found["whole"]] == [4.0, 4.1]


@pytest.mark.parametrize(("shape", "tokens"), [({"shape.layers": 2}, [[70, 70]]), (PRESET, []), ({}, [])])
def test_a_shape_is_left_out_for_the_same_time(shape, tokens):
    whole = {"optimizer.name": "muon", "masking.rate": 0.4, **shape}
    found = leave_out(Trainings(), whole, 60.0, [0, 1], ["a smaller model"])
    assert [[run["tokens"] for run in each["runs"]] for each in found["without"]] == tokens


def test_the_time_of_others_leaves_out_ended_children(monkeypatch):
    # user, nice, system, idle, waiting, interrupts, soft interrupts, stolen; guests are in the first two
    said = "cpu  500 20 30 9000 800 7 6 5 400 3\ncpu0 1 2 3 4 5 6 7 8 9 10\n"
    monkeypatch.setattr(Path, "exists", lambda self: True)
    monkeypatch.setattr(Path, "read_text", lambda self: said)
    monkeypatch.setattr(resource, "getrusage", lambda who: SimpleNamespace(ru_utime=1.5, ru_stime=0.25))
    assert time_of_others() == pytest.approx(568 / os.sysconf("SC_CLK_TCK") - 1.75)
    monkeypatch.setattr(Path, "exists", lambda self: False)
    assert time_of_others() is None


def test_the_shortest_time_has_a_margin():
    target = {"seconds": 2400.0}
    tried = [{"seconds": 300.0, "reached": True}, {"seconds": 225.0, "reached": False}]
    assert our_seconds(tried, target) == pytest.approx(330.0)
    assert our_seconds([{"seconds": 2000.0, "reached": False}], target) == 2400.0


@pytest.mark.slow
def test_errors_are_one_line(text, tmp_path):
    with pytest.raises(BrimfulError, match="run the step `text` first"):
        Runs(TRACK, tmp_path, tmp_path, 1, 1.0)
    with pytest.raises(SystemExit, match=r"^speedrun: .* has no text: run the step `text` first$"):
        main(["search", "--work", str(tmp_path)])
    runs = Runs(TRACK, text, tmp_path, 1, 0.1)
    with pytest.raises(BrimfulError, match=r"brimful ended with status 1 \(.*optimizer\.name"):
        runs.run(OURS, our_start(TRACK) | {"optimizer.name": "none"}, 5.0, 0)


def test_settings_become_a_configuration_and_other_minutes_no_record():
    assert ours.nested({"a": 1, "b.c": 2, "b.d": 3}) == {"a": 1, "b": {"c": 2, "d": 3}}
    assert replace(ENGLISH, seconds=(1.0, 2.0, 3.0)).full is False
    assert ENGLISH.full


def test_the_figure_of_the_docs_is_drawn_from_committed_results(tmp_path):
    curves.main(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def children_of(process: int) -> list[str]:
    """The process ids of its children."""
    return Path(f"/proc/{process}/task/{process}/children").read_text().split()


@pytest.mark.slow
def test_a_killed_speedrun_continues_and_ends_with_a_record(tmp_path):
    work, out = tmp_path / "work", tmp_path / "speedrun_quick.json"
    command = [sys.executable, "-m", "bench.speedrun", "--quick", "--threads", "1"]
    command += ["--work", str(work), "--out", str(out)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        runs = work / TRACK.name / "runs"
        while not (list(runs.glob("*.json")) and (children := children_of(process.pid))):
            assert process.poll() is None
            time.sleep(0.2)
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    before = {path: path.stat().st_mtime_ns for path in runs.glob("*.json")}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before
    record = read_record_file(out)
    assert "the track was not run at its full size" in misses(record)
    assert {run["side"] for run in record["runs"]} == {OURS, "grouped"}
    assert out.with_suffix(".png").is_file()
    assert str(tmp_path) not in out.read_text()
