"""Pretraining's stream: every token once an epoch, pure in its cursor, the same for any world."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brimful.base import storage
from brimful.base.errors import BrimfulError
from brimful.base.types import IGNORED, Cursor
from brimful.corpus.shards import Corpus
from brimful.data import blocks as blocks_module
from brimful.data import rows as rows_module
from brimful.data.batch import STEP
from brimful.data.config import MaskingConfig, PackingConfig, Phase, SequencesConfig
from brimful.data.rows import Row, RowStream
from builders.batches import check_invariants
from builders.streams import (
    SPECIAL,
    contents,
    finish_planning,
    of_rank,
    same,
    spans,
    tokens_of,
    toy_corpus,
    toy_stream,
    unmasked,
)

SHORT = PackingConfig(max_length=24, capacity=96)
LONG = PackingConfig(max_length=64, capacity=96)
KINDS = ("sentences", "chunks", "nsp")


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of about six rows, so that even a toy corpus has several; no test pulls the plug after writing them."""
    monkeypatch.setattr(blocks_module, "BLOCK_ROWS", 6)
    monkeypatch.setattr(storage, "_sync", lambda path: None)


@pytest.fixture
def corpus(tmp_path: Path, seed: int) -> Corpus:
    lengths = np.random.default_rng(seed).integers(1, 120, 60)
    return toy_corpus(tmp_path / "data", lengths.tolist(), seed)


def all_tokens(corpus: Corpus) -> Counter[int]:
    """What an epoch should give."""
    return Counter(token for shard in corpus.shards for token in shard.tokens.tolist())


def rows_of(stream: RowStream, epochs: int) -> Iterator[tuple[int, Row]]:
    """The update and the rows of whole epochs of every source, and perhaps some that follow."""
    cursor = stream.start()
    while any(place["epoch"] < epochs for place in cursor["sources"].values()):
        groups, following = stream.micro_batches(cursor)
        yield from ((cursor["update"], row) for group in groups for row in group)
        cursor = following


def check_epochs(stream: RowStream, epochs: int) -> None:
    """Every token of every source comes once in each epoch."""
    seen: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    for _, row in rows_of(stream, epochs):
        seen[row.source, row.epoch] += tokens_of(stream, row)
    for source in stream.sources:
        for epoch in range(epochs):
            assert seen[source.number, epoch] == all_tokens(source.corpus)


def some_cursors(stream: RowStream, updates: int) -> list[Cursor]:
    cursors = [stream.start()]
    for _ in range(updates):
        cursors.append(stream.micro_batches(cursors[-1])[1])
    return cursors


toy_lengths = st.lists(st.integers(1, 150), min_size=1, max_size=25)


@settings(max_examples=15)
@given(
    lengths=toy_lengths,
    seed=st.integers(0, 2**31),
    kind=st.sampled_from(KINDS),
    rows=st.integers(1, 9),
    micro=st.integers(1, 4),
    short_share=st.sampled_from([0.0, 0.5]),
    counted=st.sampled_from(["rows", "sequences"]),
    world=st.sampled_from([2, 3, 7]),
)
def test_every_token_comes_once_an_epoch(
    lengths: list[int],
    seed: int,
    kind: Any,
    rows: int,
    micro: int,
    short_share: float,
    counted: str,
    world: int,
) -> None:
    """Whatever the size of updates and micro-batches, and however many ranks share them."""
    with TemporaryDirectory() as folder, ExitStack() as opened:
        corpus = toy_corpus(Path(folder, "data"), lengths, seed)
        phase = Phase(5, SHORT, rows if counted == "rows" else 3 * rows, counted)
        stream = toy_stream(
            {"toy": (corpus, 1.0)},
            [phase],
            Path(folder, "blocks"),
            seed,
            micro=micro,
            sequences=SequencesConfig(kind=kind, short_share=short_share),
        )
        opened.callback(stream.close)
        check_epochs(stream, 2)
        cursor = stream.start()
        for _ in range(2):
            groups, following = stream.micro_batches(cursor)
            expected = sum((tokens_of(stream, row) for group in groups for row in group), Counter())
            alone, _ = stream.take(cursor)
            assert contents(alone) == expected
            ranks = [of_rank(stream, rank, world).take(cursor) for rank in range(world)]
            assert all(after == following for _, after in ranks)
            assert sum(len(batches) for batches, _ in ranks) == len(alone)
            for index, batch in enumerate(alone):
                assert same(batch, ranks[index % world][0][index // world])
            cursor = following


def test_a_rank_without_micro_batches_goes_on(corpus: Corpus, tmp_path: Path, seed: int) -> None:
    stream = toy_stream({"toy": (corpus, 1.0)}, [Phase(9, SHORT, 3)], tmp_path / "blocks", seed)
    last = of_rank(stream, 63, 64)
    cursor = last.start()
    for _ in range(50):
        batches, cursor = last.take(cursor)
        assert batches == []
    assert cursor == some_cursors(stream, 50)[-1]


@settings(max_examples=10)
@given(seed=st.integers(0, 2**31), mixed=st.booleans(), counted=st.sampled_from(["rows", "sequences"]))
def test_any_cursor_gives_its_update_again(seed: int, mixed: bool, counted: str) -> None:
    """After JSON, in any order, in a new process: across blocks, epochs and phases."""
    draw = np.random.default_rng(seed)
    with TemporaryDirectory() as folder, ExitStack() as opened:
        corpora = {"z": (toy_corpus(Path(folder, "z"), draw.integers(1, 120, 30).tolist(), seed), 3.0)}
        if mixed:  # the names are not in the order of the alphabet
            lengths = draw.integers(1, 120, 12).tolist()
            corpora["a"] = (toy_corpus(Path(folder, "a"), lengths, seed, first=4000), 1.0)
        one, two = ((3, counted), (5, counted)) if counted == "rows" else ((12, counted), (12, counted))
        phases = [Phase(7, SHORT, *one), Phase(6, LONG, *two), Phase(4, SHORT, *one)]

        def make(where: str) -> RowStream:
            stream = toy_stream(corpora, phases, Path(folder, where), seed, micro=2)
            opened.callback(stream.close)
            return stream

        stream = make("blocks")
        updates, cursor, cursors = [], stream.start(), []
        for _ in range(30):
            cursors.append(json.dumps(cursor, sort_keys=True))
            batches, cursor = stream.take(cursor)
            updates.append((batches, cursor))
        again = make("elsewhere")
        for index in draw.permutation(30)[:12]:
            batches, following = again.take(json.loads(cursors[index]))
            assert following == updates[index][1]
            assert len(batches) == len(updates[index][0])
            assert all(same(a, b) for a, b in zip(batches, updates[index][0], strict=True))


@pytest.mark.parametrize("counted", ["rows", "sequences"])
def test_a_phase_begins_with_a_block(corpus: Corpus, tmp_path: Path, seed: int, counted: str) -> None:
    """The open block is read to its end as it was cut: nothing is lost, nothing comes twice."""
    sizes = [(2, counted), (3, counted)] if counted == "rows" else [(9, counted), (14, counted)]
    alone = toy_stream({"toy": (corpus, 1.0)}, [Phase(100, SHORT, *sizes[0])], tmp_path / "alone", seed)
    first, cursor = 0, alone.start()
    while first < 4 or not cursor["sources"]["toy"]["row"]:  # so that the first phase ends within a block
        first, cursor = first + 1, alone.micro_batches(cursor)[1]
    phases = [Phase(first, SHORT, *sizes[0]), Phase(5, LONG, *sizes[1]), Phase(3, SHORT, *sizes[0])]
    stream = toy_stream({"toy": (corpus, 1.0)}, phases, tmp_path / "blocks", seed)
    check_epochs(stream, 3)
    lengths: dict[tuple[int, int], set[int]] = defaultdict(set)
    sizes_seen, switched = [], False
    cursor = stream.start()
    for update in range(first + 12):
        before = cursor["sources"]["toy"]
        groups, cursor = stream.micro_batches(cursor)
        rows = [row for group in groups for row in group]
        sizes_seen.append(len(rows) if counted == "rows" else sum(len(row.chosen) for row in rows))
        wanted = stream.phase(update).packing.max_length
        if before["row"] and before["max_length"] != wanted:
            switched = True  # in the middle of a block
            (length,) = {row.block.max_length for row in rows if row.block.digest == before["plan"]}
            assert length == before["max_length"]
        after = cursor["sources"]["toy"]
        for place in (before, after):
            if place["row"]:
                lengths[place["epoch"], place["block"]].add(place["max_length"])
    a, b = (phase.size for phase in phases[:2])
    assert sizes_seen == [a] * first + [b] * 5 + [a] * 7
    assert switched
    assert all(len(found) == 1 for found in lengths.values())
    assert {length for found in lengths.values() for length in found} == {24, 64}


@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**31),
    sequences=st.integers(1, 40),
    micro=st.integers(1, 3),
    max_sequences=st.sampled_from([None, 4]),
)
def test_updates_of_so_many_sequences(
    seed: int, sequences: int, micro: int, max_sequences: int | None
) -> None:
    draw = np.random.default_rng(seed)
    packing = PackingConfig(max_length=40, capacity=128, max_sequences=max_sequences)
    with TemporaryDirectory() as folder, ExitStack() as opened:
        corpus = toy_corpus(Path(folder, "data"), draw.integers(1, 120, 40).tolist(), seed)
        phase = Phase(9, packing, sequences, "sequences")
        stream = toy_stream({"toy": (corpus, 1.0)}, [phase], Path(folder, "blocks"), seed, micro=micro)
        opened.callback(stream.close)
        cursor = stream.start()
        for _ in range(8):
            groups, _ = stream.micro_batches(cursor)
            batches, cursor = stream.take(cursor)
            assert sum(batch.real_sequences for batch in batches) == sequences
            assert {batch.tokens.numel() for batch in batches} == {micro * 128}
            # Best-fit leaves no two rows half empty; with at most four sequences a row, four of 40 tokens.
            tokens = sum(batch.real_tokens for batch in batches)
            rows = max(2 * tokens / 128 + 1, 0 if max_sequences is None else sequences / 4 + 2 * tokens / 128)
            assert len(batches) <= -(-rows // micro)
            assert len(groups) == len(batches)


def masks(stream: RowStream, updates: int) -> dict[tuple[int, ...], tuple[int, ...]]:
    """What is shown of each sequence of the first epoch."""
    shown: dict[tuple[int, ...], tuple[int, ...]] = {}
    cursor = stream.start()
    for _ in range(updates):
        if cursor["sources"]["toy"]["epoch"]:
            break
        groups, following = stream.micro_batches(cursor)
        for rows in groups:
            if any(row.epoch for row in rows):  # an update that ends in the next epoch
                continue
            batch = stream.batch(rows, cursor["update"])
            assert batch.dropped_predictions == 0
            for sequence, (a, b) in zip(unmasked(batch), spans(batch), strict=True):
                shown.setdefault(sequence, tuple(batch.tokens[a:b].tolist()))
        cursor = following
    return shown


@pytest.mark.parametrize("unit", ["words", "tokens"])
def test_masks_do_not_hang_on_packing(
    corpus: Corpus, tmp_path: Path, seed: int, unit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Slots for all: what doesn't fit is the one thing that depends on neighbours.
    monkeypatch.setattr(rows_module, "count_prediction_slots", lambda tokens, *_: tokens)

    def stream(name: str, phase: Phase, key: int = seed, micro: int = 1) -> RowStream:
        masking = MaskingConfig(rate=0.4, unit=unit)
        return toy_stream({"toy": (corpus, 1.0)}, [phase], tmp_path / name, key, masking=masking, micro=micro)

    wide = PackingConfig(max_length=24, capacity=192)
    expected = masks(stream("one", Phase(5, SHORT, 1)), 1000)
    assert sum(map(len, expected)) - 2 * len(expected) >= corpus.tokens
    assert any(sequence != shown for sequence, shown in expected.items())
    others = {
        "wider rows": masks(stream("two", Phase(5, wide, 3), micro=3), 1000),
        "counted in sequences": masks(stream("three", Phase(5, wide, 17, "sequences"), micro=2), 1000),
    }
    for found in others.values():
        common = expected.keys() & found.keys()  # micro-batches with some of the next epoch are left out
        assert len(common) >= len(expected) * 0.75
        assert all(found[sequence] == expected[sequence] for sequence in common)
    assert masks(stream("four", Phase(5, SHORT, 1), key=seed + 1), 1000) != expected


def test_masks_change_with_the_epoch(tmp_path: Path, seed: int) -> None:
    corpus = toy_corpus(tmp_path / "data", [20] * 50, seed)  # which no epoch cuts
    stream = toy_stream({"toy": (corpus, 1.0)}, [Phase(5, SHORT, 1)], tmp_path / "blocks", seed)
    shown: dict[int, dict[tuple[int, ...], tuple[int, ...]]] = defaultdict(dict)
    for update, row in rows_of(stream, 2):
        batch = stream.batch([row], update)
        for sequence, (a, b) in zip(unmasked(batch), spans(batch), strict=True):
            shown[row.epoch][sequence] = tuple(batch.tokens[a:b].tolist())
    assert shown[0].keys() == shown[1].keys()
    assert sum(shown[0][s] == shown[1][s] for s in shown[0]) < 10  # about 50 * (0.7 ** 20 words)


def test_ranks_have_the_same_attention_cost(tmp_path: Path, seed: int) -> None:
    def costs(batches: list, every: int) -> np.ndarray:
        squares = [sum(n * n for n in batch.lengths[: batch.real_sequences]) for batch in batches]
        return np.array([sum(squares[rank::every]) for rank in range(every)])

    draw = np.random.default_rng(seed)
    corpus = toy_corpus(tmp_path / "data", draw.integers(1, 200, 55).tolist(), seed)
    packing = PackingConfig(max_length=64, capacity=64)
    dealt, at_random = [], []
    for rows in (12, 24, 32):
        stream = toy_stream({"toy": (corpus, 1.0)}, [Phase(5, packing, rows)], tmp_path / "blocks", seed)
        cursor = stream.start()
        for _ in range(12):
            batches, cursor = stream.take(cursor)
            for ranks in [ranks for ranks in (2, 4, 8) if rows % ranks == 0 and rows >= 4 * ranks]:
                loads = costs(batches, ranks)
                dealt.append(loads.max() / loads.mean())
                loads = costs([batches[i] for i in draw.permutation(len(batches))], ranks)
                at_random.append(loads.max() / loads.mean())
    assert np.mean(dealt) - 1 < (np.mean(at_random) - 1) / 2


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_sound(
    corpus: Corpus, tmp_path: Path, seed: int, kind: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for fixed_shapes in (False, True):
        stream = toy_stream(
            {"toy": (corpus, 1.0)},
            [Phase(9, SHORT, 5), Phase(9, LONG, 5), Phase(9, SHORT, 5)],
            tmp_path / f"{fixed_shapes}",
            seed,
            micro=2,
            sequences=SequencesConfig(kind=kind),
            fixed_shapes=fixed_shapes,
        )
        pad, _, cls, sep, _ = range(len(SPECIAL))
        shapes: dict[int, set[tuple[int, ...]]] = defaultdict(set)
        predictions = dropped = 0
        cursor = stream.start()
        for update in range(27):
            batches, cursor = stream.take(cursor)
            for batch in batches:
                predictions += batch.predictions
                dropped += batch.dropped_predictions
                check_invariants(batch)
                assert (batch.tokens[batch.real_tokens :] == pad).all()
                assert batch.mlm_labels is not None
                assert not np.isin(batch.mlm_labels.numpy(), [cls, sep, pad]).any()
                assert (batch.mlm_labels[batch.predictions :] == IGNORED).all()
                assert fixed_shapes or len(batch.mlm_labels) < max(1, batch.predictions) + STEP
                offsets = batch.offsets[: batch.real_sequences].long()
                assert (batch.tokens[offsets] == cls).all()
                ends = batch.offsets[1 : batch.real_sequences + 1].long() - 1
                assert (batch.tokens[ends] == sep).all()
                shapes[update // 9].add(
                    (batch.tokens.numel(), batch.offsets.numel(), batch.mlm_labels.numel())
                )
        if fixed_shapes:  # one in a phase, one while it still reads a block of the one before; each may grow
            grown = capsys.readouterr().err.count("sequence slots")
            assert sum(map(len, shapes.values())) <= len(shapes) + 2 + grown
        assert dropped <= 1e-3 * predictions


def test_the_rate_approaches_its_end(corpus: Corpus, tmp_path: Path, seed: int) -> None:
    masking = MaskingConfig(rate=0.8, final_rate=0.1, unit="tokens")
    phases = [Phase(30, SHORT, 4), Phase(30, LONG, 4)]
    stream = toy_stream({"toy": (corpus, 1.0)}, phases, tmp_path / "blocks", seed, micro=4, masking=masking)
    cursor, shares = stream.start(), []
    for _ in range(90):
        (batch,), cursor = stream.take(cursor)
        assert batch.mlm_labels is not None
        ordinary = batch.real_tokens - 2 * batch.real_sequences
        shares.append(float((batch.mlm_labels != -100).sum()) / ordinary)
    # About 3000 draws each; 0.04 are more than five standard deviations of their mean.
    assert abs(np.mean(shares[:10]) - (0.8 - 0.7 * 4.5 / 60)) < 0.04
    assert abs(np.mean(shares[25:35]) - (0.8 - 0.7 * 29.5 / 60)) < 0.04
    assert abs(np.mean(shares[65:]) - 0.1) < 0.04


def test_plans_of_a_phase_that_ended_leave_the_disk(corpus: Corpus, tmp_path: Path, seed: int) -> None:
    phases = [Phase(3, SHORT, 2), Phase(3, LONG, 2), Phase(3, SHORT, 2), Phase(3, LONG, 2)]
    stream = toy_stream({"toy": (corpus, 1.0)}, phases, tmp_path / "blocks", seed)
    some_cursors(stream, 40)
    finish_planning(stream.sources[0])
    assert 1 <= len(list((tmp_path / "blocks" / "toy").glob("*.json"))) <= 2


@pytest.mark.parametrize("change", ["seed", "packing", "corpus"])
def test_a_cursor_of_other_data_is_refused(corpus: Corpus, tmp_path: Path, seed: int, change: str) -> None:
    def stream(
        name: str, corpus: Corpus = corpus, packing: PackingConfig = SHORT, key: int = seed
    ) -> RowStream:
        return toy_stream({"toy": (corpus, 1.0)}, [Phase(5, packing, 1)], tmp_path / name, key)

    mine = stream("mine")
    _, cursor = mine.take(mine.start())
    assert cursor["sources"]["toy"]["row"] == 1
    other = {
        "seed": lambda: stream("other", key=seed + 1),
        "packing": lambda: stream("other", packing=PackingConfig(max_length=24, capacity=72)),
        "corpus": lambda: stream("other", toy_corpus(tmp_path / "other-data", [50] * 30, seed)),
    }[change]()
    for place in (cursor, mine.start()):
        with pytest.raises(BrimfulError, match="other data or packing"):
            other.take(place)
    mine.take(cursor)
