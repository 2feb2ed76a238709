"""The speedrun: fixed masks, nothing held out in training, what is searched, what counts as a record."""

import json
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from bench.speedrun import rival
from bench.speedrun.records import FORMAT, compared, digest, misses, read_record, shown
from bench.speedrun.runs import OURS, RIVAL, Runs, ended
from bench.speedrun.search import TRIALS, search, shapes_of, start
from bench.speedrun.text import ENGLISH, REPEATED, TOY, grams, make_text, occurs, score, tokenizer_of
from bench.speedrun.training import Points, config
from brimful.base.errors import BrimfulError
from brimful.base.types import IGNORED
from brimful.corpus.shards import Corpus
from brimful.corpus.text.special_ids import SpecialIds, mask_id
from brimful.data.batch import pack
from brimful.hf.folders import load_pretrained
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead
from brimful.model.shape import preset
from builders.bench import ROOT

SIDES = (OURS, RIVAL)


@pytest.fixture(scope="module")
def track(tmp_path_factory):
    """The held-out part and the folder of the toy track's text."""
    folder = tmp_path_factory.mktemp("speedrun") / "text"
    return make_text(TOY, folder, folder), folder


def test_nothing_held_out_is_trained_on(track):
    held_out, folder = track
    assert make_text(TOY, folder, folder).hash == held_out.hash
    shards = Corpus.open(folder / "prepared").shards
    tokens = np.concatenate([shard.tokens for shard in shards if shard.split == "train"])
    trained = {tuple(run) for run in np.lib.stride_tricks.sliding_window_view(tokens, REPEATED)}
    text = np.where(held_out.labels == IGNORED, held_out.shown, held_out.labels)
    for begin, end in zip(held_out.offsets[:-1] + 1, held_out.offsets[1:] - 1, strict=True):
        runs = np.lib.stride_tricks.sliding_window_view(text[begin:end], REPEATED)
        assert len(runs)
        assert not trained & {tuple(run) for run in runs}


def test_a_repeated_run_is_found_wherever_it_is(seed):
    draw = np.random.default_rng(seed)
    training = draw.integers(0, 50, 2000).astype(np.uint16)
    seen = grams(training, REPEATED)
    other = draw.integers(0, 50, 100)
    assert not occurs(other, seen)
    begin, at = draw.integers(0, 2000 - REPEATED), draw.integers(0, 100 - REPEATED)
    other[at : at + REPEATED] = training[begin : begin + REPEATED]
    assert occurs(other, seen)
    assert not occurs(other[: REPEATED - 1], seen)


def test_the_rival_reads_all_tokens_and_masks_words(track, seed):
    tokenizer, special = tokenizer_of(track[1])
    corpus = Corpus.open(track[1] / "prepared")
    data = rival.chunks(corpus, TOY.max_length, special)
    ordinary = ~np.isin(data[0], [special.cls, special.sep])
    tokens = np.concatenate([shard.tokens for shard in corpus.shards if shard.split == "train"])
    assert (data[0][ordinary] == tokens[: ordinary.sum()]).all()
    assert len(tokens) - ordinary.sum() < TOY.max_length
    documents = sum(len(shard.offsets) - 1 for shard in corpus.shards if shard.split == "train")
    assert abs((data[0] == special.cls).sum() - documents) <= 1
    settings = {"batch": 16, "mask_rate": 0.3}
    seen = predicted = 0
    stream = rival.batches(data, settings, seed, special, mask_id(tokenizer), tokenizer.get_vocab_size())
    for batch in (next(stream) for _ in range(len(data[0]) // 16)):
        original = torch.where(batch["labels"] == IGNORED, batch["input_ids"], batch["labels"])
        never = (original == special.cls) | (original == special.sep)
        assert (batch["labels"][never] == IGNORED).all()
        seen, predicted = seen + int((~never).sum()), predicted + int((batch["labels"] != IGNORED).sum())
    assert abs(predicted / seen - 0.3) < 0.02


def test_the_rate_of_the_rival_is_that_of_transformers():
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 6, 100)
    for update in range(100):
        assert rival.rate(update / 100, 0.06) == pytest.approx(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()


def test_scores_are_those_of_brimful(track, tmp_path):
    held_out, folder = track
    tokenizer, special = tokenizer_of(folder)
    torch.manual_seed(0)
    model = rival.new_model(TOY, tokenizer.get_vocab_size(), special, start(RIVAL, TOY, 10.0)).eval()
    model.save_pretrained(tmp_path)
    found = score(tmp_path, held_out, special.pad)
    encoder, head = load_pretrained(tmp_path)
    total = count = 0.0
    for begin, end in zip(held_out.offsets[:-1], held_out.offsets[1:], strict=True):
        batch = pack([held_out.shown[begin:end].astype(np.int64)], max_length=TOY.max_length, pad=0)
        labels = torch.from_numpy(held_out.labels[begin:end].astype(np.int64))
        with torch.inference_mode():
            logits = head(encoder(batch)).double()
        total += float(torch.nn.functional.cross_entropy(logits, labels, reduction="sum"))
        count += int((labels != IGNORED).sum())
    assert found["loss"] == pytest.approx(total / count, rel=1e-5)


def test_the_clock_starts_with_the_process_and_rates_follow_it(tmp_path):
    points = Points(tmp_path, time.monotonic() - 100, seconds=200.0)
    assert points.done(1) == 0.0
    points.after(lambda path: None, 1, 10, 20, last=False)
    points.started -= 50
    assert points.done(2) == pytest.approx(0.5, abs=0.01)
    points.after(lambda path: time.sleep(0.3), 5, 10, 20, last=True)
    first, last = points.reached
    assert first["seconds"] == pytest.approx(100, abs=0.5)
    assert last["seconds"] == pytest.approx(150, abs=0.25)  # without the writing of weights
    assert ended([first, last | {"loss": 1.0}])["update_seconds"] == pytest.approx(12.5, abs=0.1)
    late = Points(tmp_path, time.monotonic() - 100, seconds=90.0)
    with pytest.raises(BrimfulError, match="it needs 100 s to start, of 90"):
        late.after(lambda path: None, 1, 10, 20, last=False)


def test_brimful_is_tuned_in_a_quarter_of_the_rivals_time(monkeypatch):
    tried = []

    def run(self, side, settings, seconds, seed):
        tried.append(settings)
        if len(tried) == 2:
            raise BrimfulError("it diverged")
        return {"loss": len(tried), "seconds": seconds, "tokens": 1, "updates": 1}

    monkeypatch.setattr(Runs, "run", run)
    runs = Runs(ENGLISH, None, None, None, 1)
    theirs, ours = (search(runs, side, 4, 600.0) for side in (RIVAL, OURS))
    assert (theirs["spent_seconds"], ours["spent_seconds"]) == (1200.0, 300.0)
    assert theirs["settings"] == tried[0] == start(RIVAL, ENGLISH, 600.0)
    assert "error" in theirs["rungs"][0]["trials"][-1]
    assert len({json.dumps(each) for each in tried}) == 8
    for drawn in (tried[:4], tried[4:]):  # each shape once
        assert {each["shape.hidden_size"] for each in drawn} == {128, 192, 256, None}


@pytest.mark.parametrize("target", ENGLISH.seconds)
def test_each_target_has_a_valid_start(target, tmp_path):
    settings = start(OURS, ENGLISH, target)
    asked = config(settings, Path("corpus"), Path("out"), Points(tmp_path, 0.0, seconds=60.0), 0)
    assert asked.masking.rate == 0.3
    assert asked.trainer.hours == pytest.approx(1 / 60)


@pytest.mark.slow
@pytest.mark.parametrize("shape", shapes_of(ENGLISH), ids=str)
def test_no_shape_has_more_parameters_than_bert_mini(shape):
    special, pieces = SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4), ENGLISH.vocabulary
    changes = {name.removeprefix("shape."): value for name, value in shape.items() if value is not None}
    encoders = [Encoder(preset("mini", "bert", vocabulary_size=pieces, max_length=128))]
    encoders.append(Encoder(preset("mini", "modern", vocabulary_size=pieces, **changes)))
    models = [torch.nn.ModuleList([encoder, MaskedLMHead(encoder)]) for encoder in encoders]
    models.append(rival.new_model(ENGLISH, pieces, special, shape))
    allowed, *sizes = (sum(p.numel() for p in model.parameters()) for model in models)
    assert max(sizes) <= allowed


def search_of(side, seconds):
    trials = [{"settings": {}, "loss": 4.0, "seconds": seconds}] * TRIALS
    facts = {"side": side, "track": "english-mini", "target_seconds": 2400.0, "trials": TRIALS}
    return {**facts, "settings": {}, "spent_seconds": TRIALS * seconds, "rungs": [{"trials": trials}]}


def record_of(losses=(3.9, 3.85, 3.95)):
    runs, clock = [], datetime(2026, 1, 1, tzinfo=UTC)
    facts = {"commit": "0123456789", "code": "abc", "changed_files": [], "processor": "a", "versions": {}}
    for seed, loss in zip(range(10, 10 + len(losses)), losses, strict=True):
        pair = [(RIVAL, 2400.0, 12_000, 4.02), (OURS, 300.0, 3000, loss)]
        for side, seconds, tokens, reached in pair[:: 1 if seed % 2 == 0 else -1]:
            point = {"seconds": seconds, "updates": 10, "tokens": tokens, "flops": tokens, "loss": reached}
            points = [{**point, "seconds": seconds / 2, "updates": 5}, point]
            run = {"side": side, "seed": seed, "settings": {}, "asked_seconds": seconds, "points": points}
            run |= {"cores_of_others": 0.01, "began": clock.isoformat(), **facts, **ended(points)}
            clock += timedelta(seconds=seconds + 60)
            runs.append(run)
    rivals = [run for run in runs if run["side"] == RIVAL]
    target = {"name": "late", "seconds": 2400.0, "rival": RIVAL, "loss": 4.02, "runs": rivals}
    target["loss"] = statistics.fmean(run["loss"] for run in rivals)
    searches = [search_of(OURS, 300.0), search_of(RIVAL, 1200.0)]
    record = {"format": FORMAT, "track": "english-mini", "full": True, "threads": 2, "searches": searches}
    return record | {"target": target, "runs": runs, "result": compared(runs, target["loss"])}


def test_a_record_counts_and_a_tampered_one_is_refused(tmp_path):
    path, record = tmp_path / "record.json", record_of()
    path.write_text(json.dumps(record | {"digest": digest(record)}))
    assert misses(read_record(path)) == []
    assert "late (4.020): 8.00 times as soon as modernbert, 4.00 ± 0.00 times fewer" in shown(path)
    for change, message in [
        (lambda record: record["runs"][1].update(seconds=100.0), "does not end with its last point"),
        (lambda record: record["runs"][1]["settings"].update(a=1), "not have the settings of its search"),
        (lambda record: record["result"]["seconds_ratio"].update(mean=80.0), "do not follow from its runs"),
        (lambda record: record["target"].update(loss=4.5), "do not follow from its runs"),
    ]:
        changed = json.loads(json.dumps(record))
        change(changed)
        path.write_text(json.dumps(changed | {"digest": digest(record)}))
        assert "was changed after it was measured" in shown(path)
        path.write_text(json.dumps(changed | {"digest": digest(changed)}))
        with pytest.raises(BrimfulError, match=message):
            read_record(path)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda record: record.update(full=False), "full size"),
        (lambda record: record["runs"][3].update(code="another"), "its code changed"),
        (lambda record: record["runs"][3].update(changed_files=["a.py"]), "its code changed"),
        (lambda record: record["runs"][3].update(cores_of_others=0.3), "seed 11: others had 0.3 cores"),
        (lambda record: record["runs"][3].update(cores_of_others=float("nan")), "others had nan cores"),
        (lambda record: record["runs"][3].update(seconds=2640.0), "+10% of time"),
        (lambda record: record["runs"][3].update(update_seconds=300.0), "1.25 times as long"),
        (lambda record: record["runs"][3].update(processor="another"), "on several processors"),
        (lambda record: record["searches"][1].update(target_seconds=600.0), "not tuned for this target"),
        (lambda record: record["searches"][0].update(spent_seconds=1400.0), "budgets in proportion"),
        (lambda record: record["searches"][0].update(track="english-tiny"), "tuned on another track"),
        (lambda record: record["runs"][3].update(began="2026-01-01T00:00:00+00:00"), "do not alternate"),
        (lambda record: record["runs"][5].update(began="2026-01-02T00:00:00+00:00"), "15 minutes lie"),
        (lambda record: [run.update(seed=2) for run in record["runs"][:2]], "it needs 3 seeds"),
    ],
)
def test_what_breaks_a_rule_is_no_record(change, rule):
    record = record_of()
    change(record)
    assert any(rule in each for each in misses(record))


def test_every_seed_must_reach_the_target():
    assert misses(record_of((3.9, 3.8, 4.03))) == ["a seed does not reach the target"]


def test_the_committed_record_counts():
    assert "7.99 times as soon" in shown(ROOT / "bench/results/speedrun_english_mini_early.json")


@pytest.mark.slow
def test_bench_speedrun_runs_all_of_it_and_repeats_nothing(tmp_path):
    command = [sys.executable, "-m", "bench.speedrun", "--quick", "--threads", "1", "--work", str(tmp_path)]
    for _ in range(2):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        runs = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/runs/*.json")}
        assert len(runs) == 6
    record = read_record(tmp_path / "english-tiny-quick/speedrun_english_tiny_quick_late.json")
    assert "the track was not run at its full size" in misses(record)
    assert {run["side"] for run in record["runs"]} == set(SIDES)
    assert str(tmp_path) not in json.dumps(record)
    wrong = subprocess.run([*command, "none"], cwd=ROOT, capture_output=True, text=True)
    assert "there is no step none" in wrong.stderr
