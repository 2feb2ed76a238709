"""Blocks: each document in one block of an epoch, each sequence in one row, plans that can be made again."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from brimful.corpus.shards import Corpus, map_file
from brimful.data import blocks as blocks_module
from brimful.data.blocks import Block, Blocks
from brimful.data.config import PackingConfig, SequencesConfig
from brimful.data.sequences import SEQUENCE_ARRAYS
from brimful.packing.cutting_stock import cutting_stock
from brimful.packing.histogram import count_lengths

PACKING = PackingConfig(max_length=48, capacity=192)
SENTENCES = SequencesConfig()
KINDS = ["sentences", "chunks", "nsp"]

pytestmark = pytest.mark.usefixtures("no_sync")


@pytest.fixture
def corpus(corpus_dir):
    return Corpus.open(corpus_dir)


@pytest.fixture
def small_blocks(monkeypatch):
    """The usual sixteen blocks also of a corpus with few rows."""
    monkeypatch.setattr(blocks_module, "BLOCK_ROWS", 1)


def same(one: Block, other: Block) -> bool:
    arrays = [(getattr(one.sequences, name), getattr(other.sequences, name)) for name in SEQUENCE_ARRAYS]
    arrays += [(one.row_offsets, other.row_offsets), (one.order, other.order)]
    equal = all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in arrays)
    return equal and one.digest == other.digest


@pytest.mark.parametrize("depth", [None, 3])
def test_rows_are_as_few_as_they_can_be(corpus, tmp_path, seed, depth):
    packing = PackingConfig(max_length=48, capacity=64, max_sequences=depth)
    blocks = Blocks(corpus, packing, SENTENCES, seed, tmp_path)
    assert blocks.count == 1
    block = blocks.open(0, 0)
    plan = cutting_stock(count_lengths(block.sequences.length), packing.capacity, packing.depth)
    assert plan.rows <= block.rows <= 1.003 * plan.rows
    sequences, preview = blocks.preview()
    assert (preview.rows, len(sequences)) == (block.rows, len(block.sequences))


def blocks_of(documents: int, tokens: int, tmp_path: Path, seed: int, **packing: int) -> Blocks:
    corpus = SimpleNamespace(documents=documents, tokens=tokens)
    return Blocks(corpus, PackingConfig(**packing), SENTENCES, seed, tmp_path)


@pytest.mark.parametrize("size", [1, 2, 17, 5000])
def test_blocks_share_out_all_documents(tmp_path, seed, size):
    blocks = blocks_of(size, 10**9, tmp_path, seed)
    assert blocks.count == min(size, 16)
    epochs = [[blocks.documents(epoch, number) for number in range(blocks.count)] for epoch in range(3)]
    for epoch in epochs:
        assert sorted(np.concatenate(epoch).tolist()) == list(range(size))
        assert all(len(part) in (size // blocks.count, -(-size // blocks.count)) for part in epoch)
        assert all((np.diff(part) > 0).all() for part in epoch)
    if size == 5000:
        # Two random sixteenths of 5000 documents share about 20.
        assert max(len(np.intersect1d(a, b)) for a in epochs[0] for b in epochs[1]) < 80
        other_seed = blocks_of(size, 10**9, tmp_path, seed + 1)
        assert not np.array_equal(other_seed.documents(0, 0), epochs[0][0])


def test_how_many_blocks(tmp_path):
    """64M tokens each, or sixteen, or as many as have a thousand rows."""
    assert blocks_of(10**9, 10**12, tmp_path, 0).count == 15_625
    assert blocks_of(10**9, 10**9, tmp_path, 0).count == 16
    assert blocks_of(10**6, 5 * 10**6, tmp_path, 0, capacity=1024).count == 5
    assert blocks_of(10**6, 5 * 10**6, tmp_path, 0, capacity=65_536).count == 1
    assert blocks_of(3, 10**12, tmp_path, 0).count == 3


def test_a_huge_corpus_needs_no_table(tmp_path, seed):
    """Of 10^11 documents, those of one block, at once: an array of all would be 0.8 TB."""
    blocks = blocks_of(10**11, 64 * 10**12, tmp_path, seed)
    assert blocks.count == 10**6
    documents = blocks.documents(1, 123_456)
    assert len(np.unique(documents)) == len(documents) == 10**5
    assert 0 <= documents[0] < documents[-1] < 10**11


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_is_a_pure_function(corpus, tmp_path, seed, kind):
    def blocks(name: str, seed: int = seed) -> Blocks:
        return Blocks(corpus, PACKING, SequencesConfig(kind=kind), seed, tmp_path / name)

    def files(name: str) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}

    def written() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in (tmp_path / "a").iterdir()}

    first = blocks("a").open(3, 1)
    assert same(first, blocks("b").open(3, 1))
    assert files("a") == files("b")
    again, before = blocks("a"), written()
    assert same(first, again.open(3, 1))  # from disk
    assert before == written()
    again.drop(3, 1)
    assert not list((tmp_path / "a").iterdir())
    assert same(first, again.open(3, 1))  # made again
    assert files("a") == files("b")
    for other_seed, epoch, number in ((seed, 4, 1), (seed, 3, 2), (seed + 1, 3, 1)):
        other = blocks("c", other_seed).open(epoch, number)
        assert not np.array_equal(other.order, first.order)
        assert not np.array_equal(other.sequences.begin, first.sequences.begin)
        assert other.digest != first.digest


def test_a_plan_of_something_else_on_disk_is_made_again(corpus, tmp_path):
    pairs, shorter = SequencesConfig(kind="nsp"), SequencesConfig(kind="nsp", short_share=0.1)
    given = [
        (corpus, PACKING, SENTENCES, 0),
        (corpus, PACKING, SENTENCES, 1),
        (corpus, PackingConfig(max_length=48, capacity=96), SENTENCES, 1),
        (corpus, PACKING, pairs, 1),
        (corpus, PACKING, shorter, 1),
        (corpus.part("train"), PACKING, SENTENCES, 1),
    ]
    for index, arguments in enumerate(given):
        shared = Blocks(*arguments, tmp_path / "shared").open(0, 0)
        assert same(shared, Blocks(*arguments, tmp_path / str(index)).open(0, 0))


@pytest.mark.parametrize("damage", ["flipped", "removed", "record foreign"])
def test_a_damaged_plan_is_made_again(corpus, tmp_path, damage):
    blocks = Blocks(corpus, PACKING, SENTENCES, 0, tmp_path / "plans")
    first = Blocks(corpus, PACKING, SENTENCES, 0, tmp_path / "whole").open(0, 0)
    blocks.open(0, 0)
    (record,), (array,) = ((tmp_path / "plans").glob(f"*.{suffix}") for suffix in ("json", "order"))
    data = array.read_bytes()
    if damage == "flipped":
        array.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    elif damage == "removed":
        array.unlink()
    else:
        record.write_text(json.dumps({**json.loads(record.read_text()), "files": {}}))
    assert same(blocks.open(0, 0), first)
    assert array.read_bytes() == data


def test_another_process_drops_the_plan_meanwhile(corpus, tmp_path, monkeypatch):
    blocks = Blocks(corpus, PACKING, SENTENCES, 0, tmp_path / "plans")
    first = Blocks(corpus, PACKING, SENTENCES, 0, tmp_path / "whole").open(0, 0)
    blocks.open(0, 0)
    calls = []

    def late(*arguments: object, **options: object) -> object:
        if not calls:
            blocks.drop(0, 0)
        calls.append(arguments)
        return map_file(*arguments, **options)

    monkeypatch.setattr(blocks_module, "map_file", late)
    assert same(blocks.open(0, 0), first)
    assert len(calls) > 1
