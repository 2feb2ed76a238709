"""What a training waits for, and the entropy that a loss is compared with."""

import math

import numpy as np
import pytest
import torch

from brimful.base.distributed import SINGLE_RANK
from brimful.corpus.frequencies import entropy, piece_counts
from brimful.train.journal import Journal
from brimful.train.metrics import Totals, Window
from builders.streams import toy_corpus


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
    corpus = toy_corpus(tmp_path, [5, 7, 11, 30], 1)
    counts = piece_counts(corpus)
    tokens = np.concatenate([shard.tokens for shard in corpus.shards])
    assert (counts == np.bincount(tokens, minlength=len(counts))).all()
    assert entropy(counts) == pytest.approx(math.log(53))  # all tokens differ
    assert entropy(np.array([1, 1, 2])) == pytest.approx(1.5 * math.log(2))


def test_a_large_corpus_is_sampled(tmp_path):
    corpus = toy_corpus(tmp_path, [5000, 5500], 1)
    assert 4096 <= piece_counts(corpus, most=5000).sum() < 10_500
