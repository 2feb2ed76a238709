"""A training of the speedrun: its clock, its points, and their score."""

import json
import math
import time

import numpy as np
import pytest
import torch
import transformers

from bench.speedrun import ours, rival
from bench.speedrun.points import NUMBER, EnoughError, Length, Points
from bench.speedrun.rival import new_model
from bench.speedrun.runs import parameters_allowed
from bench.speedrun.scoring import score
from bench.speedrun.side import OURS
from bench.speedrun.sides import (
    SIDES,
    start,
)
from bench.speedrun.text import (
    load_held_out,
    tokenizer_of,
)
from brimful.data.batch import IGNORED, pack
from brimful.errors import BrimfulError
from brimful.hf.folders import load_pretrained
from builders.speedrun import TRACK


def train(side, text, points):
    settings = start(side, TRACK) | {"shape.layers": 1, "shape.heads": 4}
    if side == OURS:
        ours.train(settings, text, points.folder.parent / "run", points, seed=1)
    else:
        rival.train(side, TRACK, settings, text, points, seed=1)


@pytest.mark.cases(1)
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


@pytest.mark.slow
@pytest.mark.cases(1)
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
