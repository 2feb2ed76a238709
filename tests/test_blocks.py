"""Blocks: each sequence in one row of one block, plans that can be made again, documents held out."""

import json
from pathlib import Path

import numpy as np
import pytest

from brimful.corpus.shards import Corpus
from brimful.data import blocks as blocks_module
from brimful.data.blocks import Block, Blocks, PackingConfig, split_documents
from brimful.data.sequences import cut_documents
from brimful.errors import BrimfulError
from brimful.packing.histogram import count_lengths
from brimful.packing.rounding import cutting_stock

PACKING = PackingConfig(max_length=48, capacity=192)


@pytest.fixture
def corpus(corpus_dir: Path) -> Corpus:
    return Corpus.open(corpus_dir)


def many_blocks(corpus: Corpus, directory: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> Blocks:
    monkeypatch.setattr(blocks_module, "BLOCK_TOKENS", corpus.tokens // 5)
    made = Blocks(corpus, np.arange(corpus.documents), PACKING, seed, directory)
    assert made.count >= 5
    return made


def identities(block: Block) -> list[int]:
    return block.sequences.identity(np.arange(len(block.sequences))).tolist()


def same(one: Block, other: Block) -> bool:
    return (
        identities(one) == identities(other)
        and np.array_equal(one.row_offsets, other.row_offsets)
        and np.array_equal(one.order, other.order)
        and (one.digest, one.efficiency) == (other.digest, other.efficiency)
    )


@pytest.mark.parametrize("depth", [None, 3])
def test_rows_are_as_few_as_they_can_be(corpus: Corpus, tmp_path: Path, seed: int, depth: int | None) -> None:
    packing = PackingConfig(max_length=48, capacity=64, max_sequences=depth)
    blocks = Blocks(corpus, np.arange(corpus.documents), packing, seed, tmp_path)
    block = blocks.open(0, 0)
    plan = cutting_stock(count_lengths(block.sequences.length), packing.capacity, packing.depth)
    assert plan.rows <= block.rows <= 1.001 * plan.rows
    assert blocks.packing_factor() == len(block.sequences) / block.rows


def test_blocks_share_out_every_sequence(
    corpus: Corpus, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = many_blocks(corpus, tmp_path, seed, monkeypatch)
    all_sequences = cut_documents(corpus, np.arange(corpus.documents), PACKING.max_length)
    whole = sorted(all_sequences.identity(np.arange(len(all_sequences))).tolist())
    for epoch in range(2):
        found = []
        assert sorted(blocks.order(epoch).tolist()) == list(range(blocks.count))
        for number in blocks.order(epoch).tolist():
            block = blocks.open(epoch, number)
            assert sorted(block.order.tolist()) == list(range(len(block.sequences)))
            lengths = [block.sequences.length[block.row(r)] for r in range(block.rows)]
            assert all(0 < row.sum() <= PACKING.capacity for row in lengths)
            assert all(len(row) <= PACKING.depth for row in lengths)
            found += identities(block)
        assert sorted(found) == whole


def test_a_block_without_documents(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_module, "BLOCK_TOKENS", corpus.tokens // 20)
    blocks = Blocks(corpus, np.arange(3), PACKING, 0, tmp_path)
    opened = [blocks.open(0, number) for number in range(blocks.count)]
    assert 0 in [block.rows for block in opened]
    expected = cut_documents(corpus, np.arange(3), PACKING.max_length)
    assert sum(len(block.sequences) for block in opened) == len(expected)


def test_a_plan_is_a_pure_function(corpus: Corpus, tmp_path: Path, seed: int) -> None:
    documents = np.arange(corpus.documents)
    first = Blocks(corpus, documents, PACKING, seed, tmp_path / "a").open(3, 0)
    assert same(first, Blocks(corpus, documents, PACKING, seed, tmp_path / "b").open(3, 0))
    again = Blocks(corpus, documents, PACKING, seed, tmp_path / "a")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "a").iterdir()}
    assert same(first, again.open(3, 0))  # from disk
    assert before == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "a").iterdir()}
    again.drop(3, 0)
    assert not list((tmp_path / "a").iterdir())
    assert same(first, again.open(3, 0))  # made again

    for other_seed, epoch in ((seed, 4), (seed + 1, 3)):
        other = Blocks(corpus, documents, PACKING, other_seed, tmp_path / "c").open(epoch, 0)
        assert not np.array_equal(other.order, first.order)
        assert other.digest != first.digest
        assert other.efficiency == first.efficiency
    assert not np.array_equal(again.row_order(3, 0, first.rows), again.row_order(4, 0, first.rows))


def test_a_plan_of_something_else_on_disk_is_made_again(corpus: Corpus, tmp_path: Path) -> None:
    documents = np.arange(corpus.documents)
    for index, (chosen, config, seed) in enumerate(
        [
            (documents, PACKING, 0),
            (documents, PACKING, 1),
            (documents, PackingConfig(max_length=48, capacity=96), 1),
            (documents[:-5], PACKING, 1),
        ]
    ):
        shared = Blocks(corpus, chosen, config, seed, tmp_path / "shared").open(0, 0)
        assert same(shared, Blocks(corpus, chosen, config, seed, tmp_path / str(index)).open(0, 0))


@pytest.mark.parametrize("damage", ["cut", "removed", "record cut", "record foreign"])
def test_a_damaged_plan_is_made_again(corpus: Corpus, tmp_path: Path, damage: str) -> None:
    blocks = Blocks(corpus, np.arange(corpus.documents), PACKING, 0, tmp_path)
    first = blocks.open(0, 0)
    expected = identities(first)
    order = np.array(first.order)
    del first
    record = next(tmp_path.glob("*.json"))
    array = next(tmp_path.glob("*order*"))
    if damage == "cut":
        array.write_bytes(array.read_bytes()[:-1])
    elif damage == "removed":
        array.unlink()
    elif damage == "record cut":
        record.write_bytes(record.read_bytes()[:20])
    else:
        record.write_text(json.dumps({"files": {}}))
    second = blocks.open(0, 0)
    assert identities(second) == expected
    assert np.array_equal(second.order, order)


def test_the_split_is_that_of_the_shards(corpus: Corpus) -> None:
    split = split_documents(corpus)
    assert {shard.split for shard in corpus.shards} == {"train", "validation"}
    begin = 0
    for shard in corpus.shards:
        side = split.validation if shard.split == "validation" else split.training
        assert np.isin(np.arange(begin, begin + shard.documents), side).all()
        begin += shard.documents
    assert len(split.training) + len(split.validation) == corpus.documents
    assert 0 < len(split.validation) < 0.2 * corpus.documents


def test_without_training_documents(corpus: Corpus) -> None:
    held_out = [shard for shard in corpus.shards if shard.split == "validation"]
    with pytest.raises(BrimfulError, match="no training documents"):
        split_documents(Corpus(corpus.directory, held_out))


@pytest.mark.parametrize("values", [{"max_length": 2}, {"max_length": 65, "capacity": 64}])
def test_a_packing_that_cannot_be(values: dict[str, int]) -> None:
    with pytest.raises(BrimfulError, match=r"packing\.max_length"):
        PackingConfig(**values)


def test_depth() -> None:
    assert PackingConfig(capacity=1024).depth == 128
    assert PackingConfig(capacity=4, max_length=4).depth == 1
    assert PackingConfig(max_sequences=3).depth == 3
