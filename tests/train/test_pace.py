"""How ranks keep pace, and the entropy that a loss is compared with."""

import math
import time

import numpy as np
import pytest
import torch

from brimful.base.distributed import ALONE, World
from brimful.corpus.frequencies import entropy, piece_counts
from brimful.train.journal import Journal
from brimful.train.metrics import Totals, Window
from brimful.train.pace import Pace, compare
from builders.ranks import on_two_ranks
from builders.streams import toy_corpus


def test_the_slowest_rank_and_what_the_others_wait_for_it():
    # Of 10 s, rank 1 spends 9 on its own work; the others 6, and wait 3 s for it.
    found = compare([4.0, 1.0, 4.0], [10.0, 10.0, 10.0])
    assert found == {
        "slowest_rank": 1,
        "lag": pytest.approx((9 - 7) / 10),
        "communication": pytest.approx(0.1),
    }


def test_ranks_of_the_same_pace_have_no_lag():
    assert compare([2.0, 2.0], [10.0, 10.0])["lag"] == 0


def test_one_rank_measures_nothing():
    pace = Pace(ALONE)
    with pace.summing():
        pass
    assert pace.metrics(1.0).keys() == {"cores", "load", "stolen", "withheld"}


def test_only_the_time_in_sums_counts(monkeypatch: pytest.MonkeyPatch):
    pace = Pace(World(1, 2, torch.device("cpu")))
    with pace.summing():
        time.sleep(0.05)
    sent: list[float] = []

    def summed(self: World, values: list[float]) -> list[float]:
        sent.extend(values)
        return [0.5, values[1], 1.0, values[3]]

    monkeypatch.setattr(World, "sum", summed)
    found = pace.metrics(1.0)
    assert sent[0] == sent[2] == 0
    assert 0.05 <= sent[1] < 0.5
    assert sent[3] == 1.0
    assert found["slowest_rank"] == 1
    sent.clear()
    pace.metrics(1.0)
    assert sent[1] == 0, "each line has its own seconds"


RANK = """
import json, sys, time
from pathlib import Path
sys.path.insert(0, "tests")
from brimful.base.distributed import world
from brimful.train.objective import Runtime
from brimful.train.metrics import read_metrics
from builders.training import trainer_of
folder = Path(sys.argv[1])
with world() as ranks:
    settings = {"runtime": Runtime(ranks, "fp32"), "steps": 8, "log_every": 4}
    trainer = trainer_of(folder / str(ranks.rank), 1, **settings)
    def slow(batch, loss=trainer.loss):
        time.sleep(0.05 * ranks.rank)
        return loss(batch)
    trainer.loss = slow
    trainer.run("test")
"""


@pytest.mark.slow
@pytest.mark.distributed
def test_a_run_of_two_ranks_says_which_one_is_slow(tmp_path):
    from brimful.train.metrics import read_metrics

    on_two_ranks(RANK, tmp_path)
    last = read_metrics(tmp_path / "0" / "metrics.jsonl")[-1]
    assert last["slowest_rank"] == 1
    assert 0.15 < last["lag"] <= 0.5


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ({}, None),
        ({"slowest_rank": 1, "lag": 0.08}, None),
        (
            {"slowest_rank": 1, "lag": 0.2, "communication": 0.1},
            "train: 20% of its time ranks waited",
        ),
        ({"withheld": 0.3, "slowest_rank": 1, "lag": 0.4}, "train: 30% of its time it had no cores"),
    ],
)
def test_a_long_wait_is_one_warning(tmp_path, capfd, line, expected):
    journal = Journal(tmp_path, writes=True)
    journal.begin(0)
    window = Window(norms=[torch.ones(())], totals=Totals(slots=10, tokens=9, seconds=90.0))
    journal.training(1, {"mlm": 1.0}, {}, window, window.totals, 0.1, {}, {}, line)
    journal.warn_of_waits("train")
    warnings = capfd.readouterr().err
    assert warnings.count("\n") == (expected is not None)
    assert (expected or "") in warnings


def test_the_unigram_entropy_is_that_of_the_counts(tmp_path):
    corpus = toy_corpus(tmp_path, [5, 7, 11, 30], 1)
    counts = piece_counts(corpus)
    tokens = np.concatenate([shard.tokens for shard in corpus.shards])
    assert (counts == np.bincount(tokens, minlength=len(counts))).all()
    assert entropy(counts) == pytest.approx(math.log(53))  # all tokens differ
    assert entropy(np.array([1, 1, 2])) == pytest.approx(1.5 * math.log(2))


def test_a_large_corpus_is_sampled(tmp_path):
    corpus = toy_corpus(tmp_path, [5000, 5500], 1)
    assert 4096 <= piece_counts(corpus, most=5000).sum() < 10_500
