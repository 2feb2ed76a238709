"""The searches of the speedrun: what they try, what they may take, and where they train."""

import json
import re
import shutil
import sys
from dataclasses import replace
from threading import Barrier

import pytest
import torch

from bench.speedrun import ours
from bench.speedrun.__main__ import Speedrun, options_of
from bench.speedrun.halving import halve, outclassed, plan, rungs, search
from bench.speedrun.points import Length
from bench.speedrun.rival import RIVALS, new_model
from bench.speedrun.runs import Runs, parameters_allowed
from bench.speedrun.side import OURS
from bench.speedrun.sides import (
    PRESET,
    RIVAL_START,
    SIDES,
    adapted,
    our_start,
    shape_of,
    shapes,
    start,
)
from bench.speedrun.sides import space as space_of
from bench.speedrun.track import CHINESE, ENGLISH
from brimful.errors import BrimfulError
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead
from brimful.model.shape import preset
from brimful.text.special_ids import SpecialIds
from builders.speedrun import TRACK


def test_halving_finds_the_best_and_spends_its_budget():
    spent = []

    def trial(settings, seconds):
        spent.append(seconds)
        # The best has a late start, and one diverges.
        return {"error": "NaN"} if settings["a"] == 3 else {"loss": abs(settings["a"] - 5) + 1 / seconds}

    best, record = halve([{"a": a} for a in range(8)], 480.0, trial)
    assert best == {"a": 5}
    assert rungs(8, 480.0) == [(8, 20.0), (4, 40.0), (2, 80.0)]
    assert sum(spent) == pytest.approx(480)
    assert [len(rung["trials"]) for rung in record] == [8, 4, 2]
    with pytest.raises(BrimfulError, match="every trial failed; the first one: NaN"):
        halve([{"a": 3}, {"a": 3}], 10, trial)


@pytest.mark.parametrize("side", [OURS, "modernbert"])
def test_draws_are_fixed_and_within_the_space(side):
    begin, space = start(side, ENGLISH), space_of(side, ENGLISH)
    drawn = space.draw(begin, 8, "key")
    assert drawn == space.draw(begin, 8, "key")
    assert drawn[0] == begin
    assert len({json.dumps(each) for each in drawn}) == 8
    assert all(shape in map(shape_of, drawn[:4]) for shape in space.shapes)
    for settings in drawn:
        near = space.around(settings).draw(settings, 8, "key")
        for each in (*drawn[1:], *near):
            assert all(each[name] in values for name, values in space.choices.items())
            assert shape_of(each) in space.shapes
        at = space.shapes.index(shape_of(settings))
        assert all(abs(space.shapes.index(shape_of(each)) - at) < 2 for each in near)
        assert all(
            low * 0.9 <= s[name] <= high * 1.1
            for s in drawn[1:]
            for name, (low, high) in space.ranges.items()
        )
        for name in space.ranges:
            assert all(settings[name] * 0.45 <= each[name] <= settings[name] * 2.2 for each in near)


def test_a_committed_search_is_not_repeated(text, tmp_path, monkeypatch):
    def run(self, side, settings, seconds, seed):
        return {"loss": settings["learning_rate"], "seconds": seconds, "tokens": 1}

    monkeypatch.setattr(Runs, "run", run)
    monkeypatch.setattr("bench.speedrun.halving.COMMITTED", tmp_path / "committed")
    first, second = (Runs(TRACK, text, tmp_path / name, 1, 1.0) for name in ("first", "second"))
    made = search(first, "lines", 4, 80.0, 10.0)
    assert len(made["rungs"]) == 2
    shutil.move(tmp_path / "first" / "searches", tmp_path / "committed")
    monkeypatch.setattr(Runs, "run", None)
    assert search(second, "lines", 4, 80.0, 10.0) == made
    with pytest.raises(TypeError):
        search(second, "lines", 4, 90.0, 10.0)


def pace_of_a_cpu(runs, side, settings):
    """Compiled, a side is faster."""
    as_run = {"rows_per_micro_batch": 8}
    pace = {"start_seconds": 2.0, "updates_per_second": 3.0 if settings["compile"] else 1.0}
    return {**pace, "processor": "a", "as_run": as_run}


@pytest.mark.slow
def test_a_search_on_a_gpu_makes_the_updates_of_the_cpu(text, tmp_path, monkeypatch):
    asked, together = [], {10.0: Barrier(4), 20.0: Barrier(2)}

    def run(self, side, settings, seconds, seed, *, updates, device):
        together[seconds].wait(10)  # all trials of a rung are made at once
        asked.append((seconds, updates, device, settings["compile"], settings["rows_per_micro_batch"]))
        if settings["batch"] == 128 and seconds == 10.0:
            raise BrimfulError("it diverged")
        return {"loss": settings["learning_rate"], "seconds": 0.1, "tokens": updates}

    monkeypatch.setattr(Runs, "run", run)
    monkeypatch.setattr(Runs, "pace", pace_of_a_cpu)
    track = replace(TRACK, quick=False)
    runs = Runs(track, text, tmp_path, 1, 1.0)
    made = search(runs, "lines", 4, 80.0, 10.0, device="cuda")
    assert sorted(asked) == [(10.0, 24, "cuda", False, 8)] * 4 + [(20.0, 54, "cuda", False, 8)] * 2
    assert made["spent_seconds"] == 80.0  # of the CPU; a trial that fails counts with its whole time
    assert (made["device"], made["processor"]) == ("cuda", "a")
    assert [trial["updates"] for trial in made["rungs"][1]["trials"]] == [54, 54]
    first = made["rungs"][0]["trials"]
    failed = [trial for trial in first if "error" in trial]
    assert [trial["seconds"] for trial in failed] == [10.0] * len(failed)
    best = min(trial["settings"]["learning_rate"] for trial in first if "loss" in trial)
    assert made["settings"]["learning_rate"] == best
    assert made["settings"]["compile"]
    assert "rows_per_micro_batch" not in made["settings"]


def test_a_search_on_a_gpu_makes_no_pilots(text, tmp_path):
    with pytest.raises(BrimfulError, match="run the step `paces` on the machine of the record"):
        search(
            Runs(replace(TRACK, quick=False), text, tmp_path, 1, 1.0), "lines", 4, 80.0, 10.0, device="cuda"
        )


@pytest.mark.slow
def test_a_gpu_that_is_not_there_is_one_line(text, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(BrimfulError, match="there is no GPU that torch can use"):
        Runs(TRACK, text, tmp_path, 1, 1.0).run(OURS, our_start(TRACK), 9.0, 0, updates=4, device="cuda")


@pytest.mark.slow
def test_a_pilot_says_what_the_device_decided(text, tmp_path):
    pace = Runs(TRACK, text, tmp_path, 1, 0.1).pace(OURS, our_start(TRACK) | {"trainer.compile": False})
    assert set(pace["as_run"]) == {"precision", "rows_per_micro_batch", "trainer.residual"}
    assert pace["as_run"]["trainer.residual"] == "fp32"
    assert 1 <= pace["as_run"]["rows_per_micro_batch"] <= 16
    settings = our_start(TRACK) | pace["as_run"]
    assert ours.config(settings, text, tmp_path, Length(updates=4), seed=0).rows_per_micro_batch >= 1


@pytest.mark.parametrize(("device", "seen"), [("cpu", "''"), ("cuda", "'0'")])
def test_a_training_on_the_cpu_sees_no_gpu(text, tmp_path, monkeypatch, device, seen):
    asks = "import os, sys; sys.exit(repr(os.environ['CUDA_VISIBLE_DEVICES']))"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr("bench.speedrun.runs.command", lambda training: [sys.executable, "-c", asks])
    runs = Runs(TRACK, text, tmp_path, 1, 1.0)
    with pytest.raises(BrimfulError, match=re.escape(f"status 1 ({seen})")):
        runs.run("lines", RIVAL_START, 9.0, 0, updates=4, device=device)


def test_paces_are_the_pilots_of_all_that_a_search_tries(text, tmp_path, monkeypatch):
    measured = []

    def note(runs, side, settings):
        measured.append(settings)
        return pace_of_a_cpu(runs, side, settings)

    monkeypatch.setattr(Runs, "pace", note)
    shutil.copytree(text, tmp_path / "text-english")
    speedrun = Speedrun(ENGLISH, options_of(["paces", "--sides", "lines", "--work", str(tmp_path)]))
    speedrun.paces()
    made = list(measured)
    drawn = plan(speedrun.runs, "lines", 4, 2400.0).drawn
    assert made[-4:] == drawn
    assert {shape_of(settings)["shape.hidden_size"] for settings in drawn} == {128, 192, 256, None}


def test_brimful_is_tuned_in_a_quarter_of_a_rivals_time(text, tmp_path, monkeypatch):
    def run(self, side, settings, seconds, seed):
        return {"loss": 4.0, "seconds": seconds, "tokens": 1}

    monkeypatch.setattr(Runs, "run", run)
    runs = Runs(TRACK, text, tmp_path, 1, 1.0)
    rivals, brimfuls = (search(runs, side, 4, 80.0, 10.0) for side in ("grouped", OURS))
    assert [rivals["spent_seconds"], brimfuls["spent_seconds"]] == [80.0, 20.0]
    assert [rung["seconds"] for rung in rivals["rungs"]] == [10.0, 20.0]
    assert [rung["seconds"] for rung in brimfuls["rungs"]] == [2.5, 5.0]


def test_rivals_far_above_the_best_are_outclassed():
    def ended(side, loss):
        return {"side": side, "rungs": [{"trials": [{"loss": 1.0}]}, {"trials": [{"loss": loss}, {}]}]}

    searches = [ended("grouped", 4.4), ended("lines", 4.6), ended("modernbert", 4.0), ended(OURS, 3.0)]
    assert outclassed(searches) == {"lines"}
    assert outclassed(searches[:2]) == set()


def test_settings_of_another_track_have_this_ones_model():
    tiny = replace(ENGLISH, model="tiny")
    settings = our_start(ENGLISH, 600.0)
    assert adapted(settings, OURS, CHINESE) == settings
    assert adapted(settings, OURS, tiny) == settings | PRESET | {"model": "tiny"}
    assert adapted(start("lines", ENGLISH, 600.0), "lines", tiny) == RIVAL_START | PRESET
    assert adapted(RIVAL_START, "lines", tiny) == RIVAL_START
    near = space_of("lines", tiny).around(adapted(RIVAL_START, "lines", tiny))
    assert near.shapes == (PRESET,)


def test_a_shape_of_no_side_has_no_neighbours():
    odd = start("grouped", ENGLISH) | {"shape.layers": 7}
    with pytest.raises(BrimfulError, match="no side of this track has the shape"):
        space_of("grouped", ENGLISH).around(odd)


@pytest.mark.slow
@pytest.mark.parametrize("shape", shapes("mini"), ids=str)
def test_no_shape_is_larger_than_the_rivals_bert(shape):
    special, vocabulary = SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4), 16_384
    changes = {name.removeprefix("shape."): value for name, value in shape.items() if value is not None}
    encoder = Encoder(preset("mini", "modern", vocabulary_size=vocabulary, **changes))
    models = [new_model(name, ENGLISH, vocabulary, special, shape) for name in RIVALS]
    models.append(torch.nn.ModuleList([encoder, MaskedLMHead(encoder)]))
    for model in models:
        assert sum(p.numel() for p in model.parameters()) <= parameters_allowed(ENGLISH, vocabulary)


@pytest.mark.parametrize(
    ("seconds", "width", "rate", "width_of_rivals"),
    [
        (600.0, 128, 7e-3, 128),
        (1200.0, 192, 5e-3, 192),
        (2400.0, 192, 5e-3, 256),
        (None, 192, 5e-3, 256),
        (60.0, 128, 7e-3, 128),
    ],
)
def test_each_target_has_a_start(seconds, width, rate, width_of_rivals):
    settings = our_start(ENGLISH, seconds)
    assert settings["shape.hidden_size"] == width
    assert settings["optimizer.learning_rate"] == rate
    assert start("modernbert", ENGLISH, seconds)["shape.hidden_size"] == width_of_rivals
    for side in SIDES:
        assert shape_of(start(side, ENGLISH, seconds)) in shapes("mini")
        assert shape_of(start(side, replace(ENGLISH, model="tiny"), seconds)) == PRESET
