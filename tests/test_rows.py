"""Pretraining's stream: every sequence once an epoch, pure in its cursor, the same for any world."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from test_batch import check_invariants
from tokenizers import Tokenizer

from brimful.corpus.shards import Corpus
from brimful.corpus.tokenization.tokenizer import SpecialIds, special_ids
from brimful.data import blocks as blocks_module
from brimful.data.batch import PackedBatch
from brimful.data.blocks import Blocks, PackingConfig, split_documents
from brimful.data.masking import MaskingConfig
from brimful.data.rows import Cursor, RowStream, SequenceReader, ordinary_ids
from brimful.data.sequences import SPECIAL_TOKENS, cut_documents
from brimful.errors import BrimfulError

PACKING = PackingConfig(max_length=48, capacity=192)


@pytest.fixture
def corpus(corpus_dir: Path) -> Corpus:
    return Corpus.open(corpus_dir)


@pytest.fixture
def special(corpus: Corpus) -> SpecialIds:
    return special_ids(Tokenizer.from_file(str(corpus.tokenizer_path)))


class Streams:
    """Makes streams over one corpus."""

    def __init__(self, corpus: Corpus, special: SpecialIds, directory: Path, seed: int) -> None:
        self.corpus, self.special, self.directory, self.seed = corpus, special, directory, seed

    def __call__(
        self,
        *,
        rows: int = 4,
        micro: int = 2,
        rate: float = 0.3,
        documents: np.ndarray | None = None,
        packing: PackingConfig = PACKING,
        seed: int | None = None,
        **settings: int | bool,
    ) -> RowStream:
        seed = self.seed if seed is None else seed
        if documents is None:
            documents = np.arange(self.corpus.documents)
        reader = SequenceReader(self.corpus, self.special, MaskingConfig(rate=rate), packing.max_length, seed)
        directory = self.directory / f"{packing.capacity}-{len(documents)}-{seed}"
        blocks = Blocks(self.corpus, documents, packing, seed, directory)
        return RowStream(reader, blocks, rows_per_update=rows, rows_per_micro_batch=micro, **settings)


@pytest.fixture
def streams(corpus: Corpus, special: SpecialIds, tmp_path: Path, seed: int) -> Streams:
    return Streams(corpus, special, tmp_path, seed)


def spans(batch: PackedBatch) -> list[tuple[int, int]]:
    """Where the real sequences begin and end."""
    return list(pairwise(batch.offsets[: batch.real_sequences + 1].tolist()))


def unmasked(batch: PackedBatch) -> list[tuple[int, ...]]:
    """The real sequences as they were before masking."""
    tokens = batch.tokens.clone()
    assert batch.mlm_positions is not None
    assert batch.mlm_labels is not None
    used = batch.mlm_labels != -100
    tokens[batch.mlm_positions[used]] = batch.mlm_labels[used].int()
    return [tuple(tokens[a:b].tolist()) for a, b in spans(batch)]


def same(one: PackedBatch, other: PackedBatch) -> bool:
    tensors = ("tokens", "positions", "segments", "offsets", "mlm_positions", "mlm_labels")
    return one.lengths == other.lengths and all(
        torch.equal(getattr(one, name), getattr(other, name)) for name in tensors
    )


def epoch_of(stream: RowStream) -> tuple[list[list[PackedBatch]], list[Cursor]]:
    """The updates that begin in the first epoch, and where each begins."""
    updates, cursors = [], []
    cursor = stream.start()
    while cursor["epoch"] == 0:
        cursors.append(cursor)
        batches, cursor = stream.take(json.loads(json.dumps(cursor)))
        updates.append(batches)
    return updates, cursors


def rows_of_an_epoch(stream: RowStream) -> int:
    return sum(stream.blocks.open(0, number).rows for number in range(stream.blocks.count))


def expected_sequences(corpus: Corpus, documents: np.ndarray, special: SpecialIds) -> Counter:
    sequences = cut_documents(corpus, documents, PACKING.max_length)
    ranges = zip(sequences.shard.tolist(), sequences.begin.tolist(), sequences.length.tolist(), strict=True)
    return Counter(
        (special.cls, *corpus.shards[s].tokens[b : b + n - SPECIAL_TOKENS].tolist(), special.sep)
        for s, b, n in ranges
    )


@pytest.mark.parametrize("parts", [1, 4])
def test_an_epoch_visits_every_sequence_once(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    monkeypatch.setattr(blocks_module, "BLOCK_TOKENS", streams.corpus.tokens // parts)
    whole = rows_of_an_epoch(streams())
    divisor = next(n for n in (7, 5, 3, 2, 1) if whole % n == 0)
    stream = streams(rows=divisor, micro=2)
    updates, _ = epoch_of(stream)
    assert len(updates) * divisor == whole
    seen = Counter(sequence for batches in updates for batch in batches for sequence in unmasked(batch))
    assert seen == expected_sequences(streams.corpus, np.arange(streams.corpus.documents), streams.special)


@pytest.mark.parametrize("rows", [12, 24, 32])
def test_ranks_have_the_same_attention_cost(streams: Streams, rows: int) -> None:
    def costs(batches: list[PackedBatch], every: int) -> np.ndarray:
        squares = [sum(n * n for n in batch.lengths[: batch.real_sequences]) for batch in batches]
        return np.array([sum(squares[rank::every]) for rank in range(every)])

    stream = streams(rows=rows, micro=1, packing=PackingConfig(max_length=64, capacity=64))
    dealt, taken, at_random = [], [], []
    draw = np.random.default_rng(streams.seed)
    for batches in epoch_of(stream)[0]:
        taken.append(Counter(s for batch in batches for s in unmasked(batch)))
        for ranks in [ranks for ranks in (2, 4, 8) if rows % ranks == 0 and rows >= 4 * ranks]:
            loads = costs(batches, ranks)
            dealt.append(loads.max() / loads.mean())
            loads = costs([batches[i] for i in draw.permutation(len(batches))], ranks)
            at_random.append(loads.max() / loads.mean())
    assert len(dealt) > 20
    assert np.mean(dealt) - 1 < (np.mean(at_random) - 1) / 2
    # Which rows an update takes is not for the dealing to say.
    order = stream.blocks.row_order(0, 0, (block := stream.blocks.open(0, 0)).rows)
    first = [i for row in order[:rows] for i in block.row(row)]
    lengths = Counter(len(s) for s in taken[0].elements())
    assert lengths == Counter(block.sequences.length[first].tolist())


def test_an_update_may_cross_into_the_next_epoch(streams: Streams) -> None:
    whole = rows_of_an_epoch(streams())
    stream = streams(rows=whole + 3, micro=whole + 3)
    (batch,), cursor = stream.take(stream.start())
    assert (cursor["epoch"], cursor["row"]) == (1, 3)
    assert batch.tokens.numel() == (whole + 3) * PACKING.capacity
    counts = Counter(unmasked(batch))
    expected = expected_sequences(streams.corpus, np.arange(streams.corpus.documents), streams.special)
    assert not expected - counts
    assert sum((counts - expected).values()) > 0
    _, cursor = stream.take(cursor)
    assert (cursor["epoch"], cursor["row"]) == (2, 6)


@pytest.mark.parametrize("parts", [1, 3])
def test_any_cursor_gives_its_update_again(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, parts: int, seed: int
) -> None:
    monkeypatch.setattr(blocks_module, "BLOCK_TOKENS", streams.corpus.tokens // parts)
    updates, cursors = epoch_of(streams())
    for index in np.random.default_rng(seed).permutation(len(cursors))[:12]:
        again, _ = streams().take(cursors[index])
        assert len(again) == len(updates[index])
        assert all(same(one, other) for one, other in zip(again, updates[index], strict=True))


@pytest.mark.parametrize(("rows", "micro"), [(4, 1), (5, 2), (3, 3)])
def test_ranks_together_give_the_update_of_one(streams: Streams, rows: int, micro: int) -> None:
    alone = streams(rows=rows, micro=micro)
    ranks = [streams(rows=rows, micro=micro, rank=rank, world=2) for rank in range(2)]
    cursor = alone.start()
    for _ in range(6):
        batches, following = alone.take(cursor)
        shares = [rank.take(cursor) for rank in ranks]
        assert all(own == following for _, own in shares)
        for index, batch in enumerate(batches):
            assert same(batch, shares[index % 2][0][index // 2])
        assert sum(len(own) for own, _ in shares) == len(batches)
        cursor = following


def test_masks_hang_on_the_sequence_not_on_its_row(streams: Streams, special: SpecialIds) -> None:
    def masks(stream: RowStream) -> Counter:
        found: Counter = Counter()
        for batches in epoch_of(stream)[0]:
            for batch in batches:
                for sequence, (a, b) in zip(unmasked(batch), spans(batch), strict=True):
                    found[sequence, tuple(batch.tokens[a:b].tolist())] += 1
        return found

    whole = rows_of_an_epoch(streams())
    one = masks(streams(rows=1, micro=1))
    long = PackingConfig(max_length=48, capacity=96)
    assert rows_of_an_epoch(streams(packing=long)) > whole
    assert masks(streams(rows=1, micro=1, packing=long)) == one
    assert masks(streams(rows=1, micro=1, seed=streams.seed + 1)) != one


def test_masks_change_with_the_epoch(streams: Streams) -> None:
    whole = rows_of_an_epoch(streams())
    stream = streams(rows=whole, micro=whole)
    (first,), cursor = stream.take(stream.start())
    (second,), _ = stream.take(cursor)
    assert Counter(unmasked(first)) == Counter(unmasked(second))
    for batch in (first, second):
        assert batch.mlm_labels is not None
        share = float((batch.mlm_labels != -100).sum()) / batch.real_tokens
        assert abs(share - 0.28) < 0.03  # 0.3 of what is no [CLS] or [SEP]

    def shown(batch: PackedBatch) -> Counter:
        return Counter(tuple(batch.tokens[a:b].tolist()) for a, b in spans(batch))

    assert sum((shown(first) & shown(second)).values()) < 0.2 * first.real_sequences


def test_batches_are_sound(streams: Streams, special: SpecialIds) -> None:
    for fixed_shapes in (False, True):
        for batches in epoch_of(streams(rows=5, micro=2, fixed_shapes=fixed_shapes))[0]:
            for batch in batches:
                check_invariants(batch)
                assert (batch.tokens[batch.real_tokens :] == special.pad).all()
                assert batch.mlm_labels is not None
                assert not np.isin(batch.mlm_labels.numpy(), [special.cls, special.sep, special.pad]).any()
                offsets = batch.offsets[: batch.real_sequences].long()
                assert (batch.tokens[offsets] == special.cls).all()
                ends = batch.offsets[1 : batch.real_sequences + 1].long() - 1
                assert (batch.tokens[ends] == special.sep).all()


def test_fixed_shapes_are_fixed(streams: Streams) -> None:
    """T, S and M never change, and next to nothing is dropped for it."""
    for rate in (0.15, 0.6):
        stream = streams(rows=5, micro=2, fixed_shapes=True, rate=rate)
        shapes, predictions = set(), 0
        cursor = stream.start()
        for _ in range(60):
            batches, cursor = stream.take(cursor)
            for batch in batches:
                assert batch.mlm_labels is not None
                predictions += int((batch.mlm_labels != -100).sum())
                shapes.add((batch.tokens.numel(), batch.offsets.numel() - 1, batch.mlm_labels.numel()))
        assert len(shapes) == 1
        assert next(iter(shapes))[0] == 2 * PACKING.capacity
        assert stream.dropped_predictions < 1e-3 * predictions


@pytest.mark.parametrize("change", ["seed", "packing", "documents"])
def test_a_cursor_of_other_data_is_refused(streams: Streams, change: str) -> None:
    stream = streams()
    _, cursor = stream.take(stream.start())
    other = {
        "seed": streams(seed=streams.seed + 1),
        "packing": streams(packing=PackingConfig(max_length=48, capacity=96)),
        "documents": streams(documents=np.arange(streams.corpus.documents - 3)),
    }[change]
    with pytest.raises(BrimfulError, match="other data or packing"):
        other.take(cursor)
    stream.take(cursor)


def test_held_out_documents_are_in_no_row(streams: Streams) -> None:
    split = split_documents(streams.corpus)
    expected = expected_sequences(streams.corpus, split.training, streams.special)
    for seed in (streams.seed, streams.seed + 1):
        stream = streams(documents=split.training, seed=seed)
        blocks = [stream.blocks.open(0, number) for number in range(stream.blocks.count)]
        held_out = cut_documents(streams.corpus, split.validation, PACKING.max_length)
        hidden = held_out.identity(np.arange(len(held_out)))
        for block in blocks:
            own = block.sequences.identity(np.arange(len(block.sequences)))
            assert not np.isin(own, hidden).any()
        whole = sum(block.rows for block in blocks)
        at_once = streams(documents=split.training, seed=seed, rows=whole, micro=whole)
        (batch,), _ = at_once.take(at_once.start())
        assert Counter(unmasked(batch)) == expected


def test_ordinary_ids() -> None:
    special = SpecialIds(pad=0, unk=None, cls=7, sep=3, mask=9)
    assert ordinary_ids(10, special).tolist() == [1, 2, 4, 5, 6, 8]
