"""A server under load loses no request that it accepted, refuses what it must, answers as `predict`, and
keeps its memory. The server and the client are processes, as in bench/serve."""

import statistics
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.common.record import Record
from bench.common.turns import Worker
from bench.serve.overload import BROKEN_SHARE, TIMES, undeserved, watched
from bench.serve.requests import BROKEN, GOOD
from bench.serve.server import Server
from bench.serve.sides import Side
from brimful import TaskModel
from brimful.model.heads import SequenceHead
from brimful.tasks.classification import Classification
from builders.encoders import small, word_tokenizer

pytestmark = pytest.mark.slow
LABELS = ["bad", "good", "unsure"]
BATCH = 16
"""Texts a request: so the client can send ten times what the server can answer."""


def save(folder: Path, seed: int) -> None:
    """A classifier with random weights."""
    torch.manual_seed(seed)
    encoder = small("bert", vocabulary_size=95, hidden_size=192)
    encoder.tokenizer = word_tokenizer()
    TaskModel(Classification(LABELS), encoder, SequenceHead(encoder, 3), 128, pairs=False).save(folder)


@pytest.fixture
def side(tmp_path):
    save(tmp_path / "model", 1)
    random = np.random.default_rng(5)
    texts = [" ".join(f"w{i}" for i in random.integers(0, 90, n)) for n in random.integers(1, 100, 300)]
    test = tmp_path / "test.tsv"
    test.write_text("text\tlabel\n" + "".join(f"{text}\tbad\n" for text in texts))
    return Side(tmp_path / "model", "fp32", Namespace(test=test, seed=1), tmp_path, Record({}, None))


@pytest.fixture
def server(side):
    with side.serve() as server:
        yield server


@pytest.fixture
def client(side, server):
    with side.client(server, BATCH) as client:
        yield client


def requests_per_second(side: Side, server: Server, client: Worker) -> float:
    """The requests that the server can answer."""
    row = side.load(server, client, "closed", connections=4, duration=3.0)
    return row["texts_per_second"] / BATCH


def assert_right(side: Side, client: Worker, *files: Path) -> None:
    """All answers are as `predict` has them, and there are some."""
    found = side.check(client, *files)
    assert found["compared"] >= BATCH
    assert found["wrong"] == 0, found


def test_ten_times_the_capacity_gets_right_answers_and_deserved_refusals(side, server, client):
    rate = TIMES * requests_per_second(side, server, client)
    row, _ = watched(side, server, client, 20.0, rate=rate, broken=BROKEN_SHARE)
    assert undeserved(row) == {}
    assert row["outcomes"].keys() == {GOOD, *BROKEN}
    assert row["outcomes"][GOOD]["429"] > row["outcomes"][GOOD]["200"] > rate / TIMES
    assert_right(side, client)
    row = side.load(server, client, "opened", rate=rate / TIMES / 2, duration=3.0)
    assert set(row["outcomes"][GOOD]) == {"200"}  # it has recovered


@pytest.mark.timeout(1200)
def test_memory_stays_flat_for_ten_minutes(side, server, client):
    rate = TIMES * requests_per_second(side, server, client)
    row, memory = watched(side, server, client, 600.0, rate=rate, broken=BROKEN_SHARE)
    assert undeserved(row) == {}
    early, late = statistics.median(memory[120:180]), statistics.median(memory[-60:])
    assert late < early + 0.02 * early, memory[::30]
    assert_right(side, client)
