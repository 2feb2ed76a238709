"""The rules of the speedrun: fixed masks, nothing held out in training, equal budgets."""

import json
import math
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers

from bench.common.processes import time_of_others
from bench.speedrun import curves, ours, rival
from bench.speedrun.__main__ import Speedrun, main, options_of
from bench.speedrun.contest import leave_out, our_seconds
from bench.speedrun.halving import halve, outclassed, plan, rungs, search
from bench.speedrun.points import NUMBER, EnoughError, Length, Points
from bench.speedrun.records import misses, read_record_file
from bench.speedrun.rival import RIVALS, Sequences, batches, new_model
from bench.speedrun.runs import Runs, parameters_allowed
from bench.speedrun.scoring import score
from bench.speedrun.side import OURS
from bench.speedrun.sides import (
    IDEAS,
    PRESET,
    RIVAL_START,
    SIDES,
    adapted,
    our_start,
    shape_of,
    shapes,
    start,
    without,
)
from bench.speedrun.sides import space as space_of
from bench.speedrun.text import (
    REPEATED,
    grams,
    load_held_out,
    load_plain,
    make_text,
    occurs,
    tokenizer_of,
)
from bench.speedrun.track import CHINESE, ENGLISH, quick
from brimful.corpus.shards import Corpus
from brimful.data.batch import IGNORED, pack
from brimful.errors import BrimfulError
from brimful.nn.encoder import Encoder, preset
from brimful.nn.heads import MaskedLMHead
from brimful.nn.interop import load_pretrained
from brimful.text.tokenizer import SpecialIds, mask_id
from builders.speedrun import run_of

ROOT = Path(__file__).parents[2]
TRACK = quick(ENGLISH)


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    """The folder of the toy track's text."""
    folder = tmp_path_factory.mktemp("speedrun") / "text"
    make_text(TRACK, folder, folder)
    return folder


def test_held_out_masks_are_fixed(text, tmp_path):
    again = make_text(TRACK, tmp_path, tmp_path / "text")
    held_out = load_held_out(text)
    assert again["held_out"] == held_out.hash == load_held_out(tmp_path / "text").hash
    special = tokenizer_of(text)[1]
    predicted = held_out.labels != IGNORED
    inner = ~np.isin(held_out.tokens, [special.cls, special.sep])
    assert not predicted[~inner].any()
    # 290 predictions of about 200 words, each drawn alone: three deviations are 0.15 * 3 / sqrt(200).
    assert abs(predicted[inner].mean() - 0.15) < 0.035


def test_other_masks_are_refused(text, tmp_path):
    shutil.copytree(text, tmp_path / "text")
    held_out = load_held_out(tmp_path / "text")
    moved = np.roll(held_out.labels, 1)
    np.savez(tmp_path / "text" / "held_out.npz", **(vars(held_out) | {"labels": moved}))
    with pytest.raises(BrimfulError, match="texts or masks were changed"):
        load_held_out(tmp_path / "text")


def test_nothing_held_out_is_trained_on(text):
    corpus, held_out = Corpus.open(text / "training", verify=True), load_held_out(text)
    assert corpus.part("validation") is None
    plain = load_plain(text)
    assert (plain["tokens"] == np.concatenate([shard.tokens for shard in corpus.shards])).all()
    trained = {tuple(run) for run in np.lib.stride_tricks.sliding_window_view(plain["tokens"], REPEATED)}
    for begin, end in zip(held_out.offsets[:-1] + 1, held_out.offsets[1:] - 1, strict=True):
        runs = np.lib.stride_tricks.sliding_window_view(held_out.tokens[begin:end], REPEATED)
        assert len(runs)
        assert not trained & {tuple(run) for run in runs}


def test_a_repeated_run_is_found_wherever_it_is(seed):
    draw = np.random.default_rng(seed)
    training = draw.integers(0, 50, 2000).astype(np.uint16)
    seen = grams(training, REPEATED)
    other = draw.integers(0, 50, 100)
    assert not occurs(other, seen)
    begin = draw.integers(0, 2000 - REPEATED)
    at = draw.integers(0, 100 - REPEATED)
    other[at : at + REPEATED] = training[begin : begin + REPEATED]
    assert occurs(other, seen)
    assert not occurs(other[: REPEATED - 1], seen)


@pytest.mark.parametrize("name", RIVALS)
def test_rivals_read_all_tokens_and_mask_words(text, name, seed):
    tokenizer, special = tokenizer_of(text)
    plain, mask = load_plain(text), mask_id(tokenizer)
    data = Sequences(name, TRACK, plain, special)
    lengths = np.diff(data.offsets)
    assert lengths.max() <= TRACK.max_length
    ordinary = ~np.isin(data.tokens, [special.cls, special.sep])
    if name == "lines":
        assert len(data) == plain["line_starts"].sum()
    else:
        assert (lengths == TRACK.max_length).all()
        assert (data.tokens[ordinary] == plain["tokens"]).all()
    settings = RIVAL_START | {"batch": 16, "mask_rate": 0.3}
    seen = predicted = 0
    stream = batches(data, settings, seed, special, mask, tokenizer.get_vocab_size())
    for batch, real in (next(stream) for _ in range(len(data) // 16)):
        ids, labels = batch["input_ids"], batch["labels"]
        original = torch.where(labels == IGNORED, ids, labels)
        never = (original == special.pad) | (original == special.cls) | (original == special.sep)
        assert (labels[never] == IGNORED).all()
        inside = batch.get("attention_mask", torch.ones_like(ids))
        assert int(inside.sum()) == real
        assert ((original == special.pad) == (inside == 0)).all()
        seen += int((~never).sum())
        predicted += int((labels != IGNORED).sum())
    assert seen > 0.8 * len(plain["tokens"]) or name == "lines"
    assert abs(predicted / seen - 0.3) < 0.02


def train(side, text, points):
    settings = start(side, TRACK) | {"shape.layers": 1, "shape.heads": 4}
    if side == OURS:
        ours.train(settings, text, points.folder.parent / "run", points, seed=1)
    else:
        rival.train(side, TRACK, settings, text, points, seed=1)


@pytest.mark.parametrize("side", SIDES)
def test_a_side_trains_to_points_that_are_scored(text, tmp_path, side, monkeypatch):
    monkeypatch.setattr("bench.speedrun.points.NUMBER", 2)
    points = Points(tmp_path / "points", time.monotonic(), Length(updates=3))
    train(side, text, points)
    assert [point["updates"] for point in points.reached] == [2, 3]
    assert points.training_since is not None
    held_out, special = load_held_out(text), tokenizer_of(text)[1]
    folders = [tmp_path / "points" / f"{point['updates']:07d}" for point in points.reached]
    first, last = (score(folder, held_out, special.pad) for folder in folders)
    assert first["loss"] != last["loss"]
    trained = json.loads((folders[-1] / "config.json").read_text())
    assert (trained["num_hidden_layers"], trained["num_attention_heads"]) == (1, 4)
    allowed = parameters_allowed(TRACK, tokenizer_of(text)[0].get_vocab_size())
    assert last["parameters"] <= allowed
    seconds, tokens, flops = (
        [point[name] for point in points.reached] for name in ("seconds", "tokens", "flops")
    )
    assert 0 < seconds[0] < seconds[1]
    assert 0 < tokens[0] < tokens[1]
    # At most three passes over all parameters, also for padding, which is most of what `lines` computes.
    assert 1e5 < flops[1] / tokens[1] < 6 * allowed * 8


@pytest.mark.parametrize("side", SIDES)
def test_a_side_trains_until_its_seconds_are_over(text, tmp_path, side):
    """The start-up counts, and what writing weights takes does not."""
    points = Points(tmp_path / "points", time.monotonic() - 100, Length(seconds=112.0))
    train(side, text, points)
    assert points.reached[-1]["seconds"] == pytest.approx(112, abs=1)
    assert len(points.reached) == NUMBER
    assert points.reached[-1]["updates"] > NUMBER
    late = Points(tmp_path / "late" / "points", time.monotonic() - 100, Length(seconds=90.0))
    with pytest.raises(BrimfulError, match=r"it needs 10\d s to start, and 90 s leave no time to train"):
        train(side, text, late)
    assert not late.reached


def test_the_rate_of_a_rival_is_that_of_transformers():
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 6, 100)
    for update in range(100):
        assert rival.rate(update / 100, 0.06) == pytest.approx(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    assert rival.rate(1.0, 0.06) == 0


def test_scores_are_those_of_brimful(text, tmp_path):
    tokenizer, special = tokenizer_of(text)
    torch.manual_seed(0)
    model = new_model("grouped", TRACK, tokenizer.get_vocab_size(), special).eval()
    model.save_pretrained(tmp_path)
    held_out = load_held_out(text)
    found = score(tmp_path, held_out, special.pad)
    encoder, head = load_pretrained(tmp_path)
    total = count = 0.0
    for begin, end in zip(held_out.offsets[:-1], held_out.offsets[1:], strict=True):
        batch = pack([held_out.shown[begin:end].astype(np.int64)], max_length=TRACK.max_length, pad=0)
        labels = torch.from_numpy(held_out.labels[begin:end].astype(np.int64))
        with torch.inference_mode():
            logits = head(encoder(batch)).double()
        total += float(torch.nn.functional.cross_entropy(logits, labels, reduction="sum"))
        count += int((labels != IGNORED).sum())
    assert found["loss"] == pytest.approx(total / count, rel=1e-5)
    assert 0 <= found["accuracy"] <= 1
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight.fill_(math.nan)
    model.save_pretrained(tmp_path)
    with pytest.raises(BrimfulError, match="diverged"):
        score(tmp_path, held_out, special.pad)


def test_the_clock_starts_with_the_process_and_stops_for_weights(tmp_path):
    points = Points(tmp_path, time.monotonic() - 100, Length(updates=1))
    points.after(lambda path: time.sleep(0.3), 1, 10, 20, last=True)
    assert 100 <= points.reached[0]["seconds"] < 100.2
    assert points.seconds < points.reached[0]["seconds"] + 0.2


def test_a_pilots_first_update_belongs_to_the_start_up(tmp_path, monkeypatch):
    """It compiles; so may another one, where shapes change."""
    now = 50.0
    monkeypatch.setattr("bench.speedrun.points.time.monotonic", lambda: now)
    pilot = Points(tmp_path, 40.0, Length(pilot=3.0))
    ends = [30, 31, 36, 37, 38, 39]  # updates 1 and 3 compile; after five there are 8 seconds
    for update, end in enumerate(ends[:5], 1):
        now = 50.0 + end
        pilot.after(lambda path: None, update, 10, 20, last=False)
    assert pilot.training_since == 40.0
    now = 50.0 + ends[5]
    with pytest.raises(EnoughError):
        pilot.after(lambda path: None, 6, 10, 20, last=False)
    assert pilot.pace == pytest.approx(3 / 3)  # from update 3, after a third of the points


def test_points_lie_evenly_between_start_up_and_end(tmp_path, monkeypatch):
    now = 0.0
    monkeypatch.setattr("bench.speedrun.points.time.monotonic", lambda: now)
    points = Points(tmp_path, 0.0, Length(seconds=100.0))
    for update in range(1, 1000):
        now = 20.0 + 0.3 * (update - 1)
        last = points.done(update) >= 1
        points.after(lambda path: None, update, 10, 20, last=last)
        if last:
            break
    seconds = [point["seconds"] for point in points.reached]
    assert seconds == pytest.approx([30, 40, 50, 60, 70, 80, 90, 100], abs=0.3)
    assert seconds[-1] >= 100


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


def test_a_gpu_that_is_not_there_is_one_line(text, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(BrimfulError, match="there is no GPU that torch can use"):
        Runs(TRACK, text, tmp_path, 1, 1.0).run(OURS, our_start(TRACK), 9.0, 0, updates=4, device="cuda")


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


def test_the_figure_of_the_docs_is_drawn_from_committed_results(tmp_path):
    curves.main(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


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
