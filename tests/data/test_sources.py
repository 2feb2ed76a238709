"""Sources: rows of a corpus block after block, planned ahead; and how several are mixed."""

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brimful.base.console import record_warnings
from brimful.base.errors import BrimfulError
from brimful.corpus.shards import Corpus
from brimful.data import blocks as blocks_module
from brimful.data.blocks import Block, Blocks
from brimful.data.config import PackingConfig, SequencesConfig
from brimful.data.sources import BlockRows, Place, Source, mix
from brimful.data.streams import make_validation_batches
from builders.streams import finish_planning, toy_corpus, toy_source

SHORT = PackingConfig(max_length=24, capacity=96)


pytestmark = pytest.mark.usefixtures("six_row_blocks")


class WatchedBlocks(Blocks):
    """Tells which blocks were opened; one of them may fail."""

    opened: list[tuple[int, int]]
    fails: tuple[int, int] | None = None

    def open(self, epoch: int, block: int) -> Block:
        self.opened.append((epoch, block))
        if (epoch, block) == self.fails:
            raise BrimfulError("the disk is full")
        return super().open(epoch, block)


def watched(corpus: Corpus, directory: Path, seed: int) -> tuple[Source, WatchedBlocks]:
    blocks = WatchedBlocks(corpus, SHORT, SequencesConfig(), seed, directory)
    blocks.opened = []
    return Source(0, "toy", 1.0, {SHORT.max_length: blocks}), blocks


def take(source: Source, place: Place) -> tuple[BlockRows, Place]:
    row = source.read_rows(place, 1, 24)
    return row, source.advance(place, row)


@pytest.mark.parametrize("epoch", [0, 5000])
def test_resuming_late_opens_as_few_blocks_as_early(tmp_path, seed, monkeypatch, epoch):
    # Of blocks of about six rows, a few in 10,000 have no more than three.
    monkeypatch.setattr(blocks_module, "BLOCK_ROWS", 12)
    lengths = np.random.default_rng(seed).integers(1, 120, 120)
    corpus = toy_corpus(tmp_path / "data", lengths.tolist(), seed)
    source, blocks = watched(corpus, tmp_path / "plans", seed)
    place = source.start() | {"max_length": 24, "epoch": epoch, "block": 1, "row": 2, "tokens": 10**12}
    row, after = take(source, place)
    finish_planning(source)
    assert blocks.count > 2
    assert blocks.opened == [(epoch, 1), (epoch, 2)]
    assert row.epoch == epoch
    assert after["tokens"] == place["tokens"] + row.tokens.sum()


def test_the_next_block_is_planned_ahead(corpus, tmp_path, seed):
    """It is planned before its first row is asked for, and a plan that was read leaves the disk."""
    source, blocks = watched(corpus, tmp_path, seed)
    place = source.start()
    for _ in range(60):
        if place["row"] == 0 and place["block"] + place["epoch"]:
            finish_planning(source)
            opened = len(blocks.opened)
            assert (place["epoch"], place["block"]) in blocks.opened
            assert len(list(tmp_path.glob(f"*-{place['epoch']:04d}-*-{place['block']:05d}-*.json"))) == 1
            _, place = take(source, place)
            assert blocks.opened[:opened].count((place["epoch"], place["block"])) == 1
        else:
            _, place = take(source, place)
    finish_planning(source)
    assert place["epoch"] > 0
    assert len(blocks.opened) == len(set(blocks.opened))
    assert len(list(tmp_path.glob("*.json"))) <= 2


def test_an_error_of_planning_ahead_comes_when_its_block_does(corpus, tmp_path, seed):
    source, blocks = watched(corpus, tmp_path, seed)
    blocks.fails = (0, 1)
    place = source.start()
    while place["block"] == 0:
        _, place = take(source, place)
    with pytest.raises(BrimfulError, match="the disk is full"):
        take(source, place)
    blocks.fails = None
    take(source, place)


@settings(max_examples=8)
@given(
    seed=st.integers(0, 2**31),
    weights=st.lists(st.sampled_from([0.1, 1.0, 1.0, 2.0, 30.0]), min_size=1, max_size=4),
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=6),
)
def test_a_mixture_takes_row_by_row_from_who_is_furthest_behind(seed, weights, counts):
    """However many rows are asked for at once, they are those of a loop that asks for one at a time."""
    draw = np.random.default_rng(seed)
    with TemporaryDirectory() as folder, ExitStack() as opened:
        sources = []
        for number, weight in enumerate(weights):
            corpus = toy_corpus(Path(folder, f"data-{number}"), draw.integers(1, 90, 12).tolist(), seed)
            source = toy_source(
                corpus, [SHORT], Path(folder, str(number)), seed, number=number, weight=weight
            )
            opened.callback(source.close)
            sources.append(source)
        places = naive = [source.start() for source in sources]
        for count in counts:
            expected = []
            naive = list(naive)
            for _ in range(count):
                behind = min(range(len(sources)), key=lambda i: naive[i]["tokens"] / weights[i])
                row, naive[behind] = take(sources[behind], naive[behind])
                expected.append(
                    (behind, row.epoch, row.block.digest, int(row.numbers[0]), int(row.tokens[0]))
                )
            parts, order, places = mix(sources, places, count, 24)
            rows = [
                (part.source, part.epoch, part.block.digest, number, tokens)
                for part in parts
                for number, tokens in zip(part.numbers.tolist(), part.tokens.tolist(), strict=True)
            ]
            assert sorted(order.tolist()) == list(range(len(rows)))
            assert [rows[i] for i in order] == expected
            assert places == naive


def test_without_held_out_documents_the_option_is_named(tmp_path):
    reader: Any = None  # nothing is read
    with record_warnings() as lines:
        assert make_validation_batches("data", None, reader, SHORT, SequencesConfig(), 100, tmp_path) == []
    (line,) = lines
    assert line.startswith("data holds no validation documents (prepare's --validation-share)")
