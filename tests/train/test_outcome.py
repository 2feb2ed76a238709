"""What trainings say: their loss, the entropy it is compared with, whether they overfit or wait for data."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from brimful.base.distributed import SINGLE_RANK
from brimful.corpus.frequencies import entropy, piece_counts
from brimful.stages.pretrain import summarise_pretraining
from brimful.train.journal import Journal
from brimful.train.metrics import Totals, Window
from builders.streams import toy_corpus

FACTS: dict[str, Any] = {
    "tokens": 500_000,
    "tokens_per_second": 5000.0,
    "seconds": 100.0,
    "parameters": 5_243_392,
    "training_loss": 4.4,
    "validation": {"loss": 4.487, "accuracy": 0.309, "perplexity": 88.9},
    "packing": {"efficiency": 0.9963, "padded_efficiency": 0.4127},
    "verdict": {"unigram_entropy": 6.9, "loss_is_normal": True},
}


def rows(facts: dict[str, Any]) -> dict[str, str]:
    (table,) = summarise_pretraining(facts).tables
    return {row[0]: row[1] for row in table.rows}


def test_a_pretraining_shows_its_loss_and_how_full_its_rows_were() -> None:
    verdict = summarise_pretraining(FACTS).verdict
    assert all(part in verdict for part in ("4.49", "normal", "6.90"))
    assert rows(FACTS)["Real tokens in a row, if padded"].startswith("41.3")
    abnormal = FACTS | {"verdict": FACTS["verdict"] | {"loss_is_normal": False}}
    assert "optimizer.learning_rate" in summarise_pretraining(abnormal).verdict


@pytest.mark.parametrize(("training", "overfits"), [(4.4, False), (3.5, True), (None, False)])
def test_a_model_that_knows_its_own_rows_better_overfits(training: float | None, overfits: bool) -> None:
    assert ("Overfits" in rows(FACTS | {"training_loss": training})) is overfits


@pytest.mark.parametrize(
    ("data", "expected"), [(0.08, None), (0.2, "train: 20% of its time it waited for data")]
)
def test_a_long_wait_is_one_warning(tmp_path, capfd, data, expected):
    journal = Journal(tmp_path, SINGLE_RANK)
    journal.begin(0)
    totals = Totals(slots=10, tokens=9, seconds=90.0)
    window = Window(norms=[torch.ones(())], waited=data * 90.0, totals=totals)
    journal.write_training(1, {"mlm": 1.0}, {}, window, totals, 0.1, {}, {})
    journal.warn_of_waits("train")
    journal.close()
    warnings = capfd.readouterr().err
    assert warnings.count("\n") == (expected is not None)
    assert (expected or "") in warnings


def test_the_unigram_entropy_is_that_of_the_counts(tmp_path):
    """Of a sample, where a corpus is large."""
    corpus = toy_corpus(tmp_path / "small", [5, 7, 11, 30], 1)
    counts = piece_counts(corpus)
    tokens = np.concatenate([shard.tokens for shard in corpus.shards])
    assert (counts == np.bincount(tokens, minlength=len(counts))).all()
    assert entropy(counts) == pytest.approx(math.log(53))  # all tokens differ
    assert entropy(np.array([1, 1, 2])) == pytest.approx(1.5 * math.log(2))
    assert 4096 <= piece_counts(toy_corpus(tmp_path / "large", [5000, 5500], 1), most=5000).sum() < 10_500
