"""Pretraining's stream: every token once an epoch, pure in its cursor, the same for any world, well dealt."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brimful.base.errors import BrimfulError
from brimful.corpus.shards import Corpus
from brimful.data import rows as rows_module
from brimful.data.batch import STEP
from brimful.data.config import MaskingConfig, PackingConfig, Phase, SequencesConfig
from brimful.data.rows import Row, RowStream, deal
from builders.batches import check_invariants
from builders.streams import (
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


pytestmark = pytest.mark.usefixtures("six_row_blocks")


def all_tokens(corpus: Corpus) -> Counter[int]:
    return Counter(token for shard in corpus.shards for token in shard.tokens.tolist())


def rows_of(stream: RowStream, epochs: int) -> Iterator[tuple[int, Row]]:
    """The update and the rows of whole epochs of every source, and perhaps some that follow."""
    cursor = stream.start()
    while any(place["epoch"] < epochs for place in cursor["sources"].values()):
        groups, following = stream.micro_batches(cursor), stream.following(cursor)
        yield from ((cursor["update"], row) for group in groups for row in group)
        cursor = following


def check_epochs(stream: RowStream, epochs: int) -> None:
    seen: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    for _, row in rows_of(stream, epochs):
        seen[row.source, row.epoch] += tokens_of(stream, row)
    for source in stream.sources:
        for epoch in range(epochs):
            assert seen[source.number, epoch] == all_tokens(source.corpus)


@settings(max_examples=8)
@given(
    lengths=st.lists(st.integers(1, 150), min_size=1, max_size=25),
    seed=st.integers(0, 2**31),
    kind=st.sampled_from(KINDS),
    rows=st.integers(1, 9),
    micro=st.integers(1, 4),
    short_share=st.sampled_from([0.0, 0.5]),
    counted=st.sampled_from(["rows", "sequences"]),
    depth=st.sampled_from([None, 4]),
    world=st.sampled_from([2, 3, 7]),
)
def test_every_token_comes_once_an_epoch(
    lengths, seed, kind, rows, micro, short_share, counted, depth, world
):
    """Whatever the size of updates and micro-batches, and however many ranks share them."""
    with TemporaryDirectory() as folder, ExitStack() as opened:
        corpus = toy_corpus(Path(folder, "data"), lengths, seed)
        size = rows if counted == "rows" else 3 * rows
        phase = Phase(5, replace(SHORT, max_sequences=depth), size, counted)
        settings = {"micro": micro, "sequences": SequencesConfig(kind=kind, short_share=short_share)}
        stream = toy_stream({"toy": (corpus, 1.0)}, [phase], Path(folder, "blocks"), seed, **settings)
        opened.callback(stream.close)
        check_epochs(stream, 2)
        cursor = stream.start()
        for _ in range(3):
            groups, following = stream.micro_batches(cursor), stream.following(cursor)
            rows_taken = [row for group in groups for row in group]
            lengths_of_rows = [row.block.sequences.length[row.chosen] for row in rows_taken]
            at_once = 1 if counted == "rows" else micro
            assert all(0 < len(each) <= at_once * (depth or 96 // 8) for each in lengths_of_rows)
            assert all(each.sum() <= at_once * 96 and each.max() <= 24 for each in lengths_of_rows)
            expected = sum((tokens_of(stream, row) for row in rows_taken), Counter())
            alone, _ = stream.take(cursor)
            assert contents(alone) == expected
            if counted == "sequences":
                assert sum(batch.real_sequences for batch in alone) == size
                # Best-fit leaves no two rows half empty, unless they have all the sequences that they may.
                most = 2 * sum(batch.real_tokens for batch in alone) / 96 + max(1, size / (depth or size))
                assert len(groups) == len(alone) <= -(-most // micro)
            ranks = [of_rank(stream, rank, world).take(cursor) for rank in range(world)]
            assert all(after == following for _, after in ranks)
            assert sum(len(batches) for batches, _ in ranks) == len(alone)
            for index, batch in enumerate(alone):
                check_invariants(batch)
                assert batch.tokens.numel() == micro * 96 or counted == "rows"
                assert len(batch.mlm_labels) < max(1, batch.predictions) + STEP
                assert same(batch, ranks[index % world][0][index // world])
            cursor = following


@settings(max_examples=5)
@given(seed=st.integers(0, 2**31), mixed=st.booleans(), counted=st.sampled_from(["rows", "sequences"]))
def test_any_cursor_gives_its_update_again(seed, mixed, counted):
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
        for _ in range(22):
            cursors.append(json.dumps(cursor, sort_keys=True))
            batches, cursor = stream.take(cursor)
            updates.append((batches, cursor))
        again = make("elsewhere")
        for index in draw.permutation(22)[:8]:
            batches, following = again.take(json.loads(cursors[index]))
            assert following == updates[index][1]
            assert len(batches) == len(updates[index][0])
            assert all(same(a, b) for a, b in zip(batches, updates[index][0], strict=True))


@pytest.mark.parametrize(("counted", "sizes"), [("rows", (2, 3)), ("sequences", (9, 14))])
def test_a_phase_begins_with_a_block(corpus, tmp_path, seed, counted, sizes):
    """The open block is read to its end as it was cut: nothing is lost, nothing comes twice."""
    short, long = (Phase(5, packing, n, counted) for packing, n in zip((SHORT, LONG), sizes, strict=True))
    alone = toy_stream({"toy": (corpus, 1.0)}, [replace(short, steps=100)], tmp_path / "alone", seed)
    first, cursor = 0, alone.start()
    while first < 4 or not cursor["sources"]["toy"]["row"]:  # so that the first phase ends within a block
        first, cursor = first + 1, alone.following(cursor)
    phases = [replace(short, steps=first), long, short]
    stream = toy_stream({"toy": (corpus, 1.0)}, phases, tmp_path / "blocks", seed)
    check_epochs(stream, 3)
    lengths: dict[tuple[int, int], set[int]] = defaultdict(set)
    drawn, switched, cursor = [], False, stream.start()
    for update in range(first + 12):
        before = cursor["sources"]["toy"]
        groups, cursor = stream.micro_batches(cursor), stream.following(cursor)
        rows = [row for group in groups for row in group]
        drawn.append(len(rows) if counted == "rows" else sum(len(row.chosen) for row in rows))
        if before["row"] and before["max_length"] != stream.phase(update).packing.max_length:
            switched = True  # in the middle of a block
            (length,) = {row.block.max_length for row in rows if row.block.digest == before["plan"]}
            assert length == before["max_length"]
        for place in (before, cursor["sources"]["toy"]):
            if place["row"]:
                lengths[place["epoch"], place["block"]].add(place["max_length"])
    assert drawn == [sizes[0]] * first + [sizes[1]] * 5 + [sizes[0]] * 7
    assert switched
    assert all(len(found) == 1 for found in lengths.values())
    assert set().union(*lengths.values()) == {24, 64}


Shown = dict[tuple[int, ...], tuple[int, ...]]
"""What is shown of each sequence."""


def masks(stream: RowStream) -> dict[int, Shown]:
    """By epoch, of two epochs, without micro-batches that have rows of both."""
    shown: dict[int, Shown] = defaultdict(dict)
    cursor = stream.start()
    while cursor["sources"]["toy"]["epoch"] < 2:
        groups, following = stream.micro_batches(cursor), stream.following(cursor)
        for rows in groups:
            epoch, *others = {row.epoch for row in rows}
            batch = stream.batch(rows, cursor["update"])
            assert batch.dropped_predictions == 0
            for sequence, (a, b) in zip(unmasked(batch), spans(batch), strict=True):
                if not others:
                    shown[epoch][sequence] = tuple(batch.tokens[a:b].tolist())
        cursor = following
    return shown


@pytest.mark.parametrize("unit", ["words", "tokens"])
def test_masks_do_not_hang_on_packing_and_change_with_the_epoch(tmp_path, seed, unit, monkeypatch):
    # Slots for all predictions: only which of them do not fit depends on neighbours.
    monkeypatch.setattr(rows_module, "count_prediction_slots", lambda tokens, *_: tokens)
    corpus = toy_corpus(tmp_path / "data", [20] * 100, seed)  # which no epoch cuts

    def shown(name: str, phase: Phase, key: int = seed, micro: int = 1) -> dict[int, Shown]:
        masking, folder = MaskingConfig(rate=0.4, unit=unit), tmp_path / name
        stream = toy_stream({"toy": (corpus, 1.0)}, [phase], folder, key, masking=masking, micro=micro)
        with closing(stream):
            return masks(stream)

    wide = PackingConfig(max_length=24, capacity=192)
    expected = shown("one", Phase(5, SHORT, 1))
    first, second = expected[0], expected[1]
    assert len(first) == 100
    assert first.keys() == second.keys()
    assert (
        sum(first[s] == second[s] for s in first) < 10
    )  # each word has the same mask twice with a chance of about 0.4
    for name, phase in (("wider", Phase(5, wide, 3)), ("sequences", Phase(5, wide, 17, "sequences"))):
        other = shown(name, phase, micro=3)
        for epoch in (0, 1):
            assert len(other[epoch]) >= 40
            assert all(expected[epoch][sequence] == seen for sequence, seen in other[epoch].items())
    assert shown("four", Phase(5, SHORT, 1), key=seed + 1)[0] != first


def test_the_rate_approaches_its_end(corpus, tmp_path, seed, monkeypatch):
    masking, phases = MaskingConfig(rate=0.8, final_rate=0.1), [Phase(3, SHORT, 4), Phase(3, LONG, 4)]
    stream = toy_stream({"toy": (corpus, 1.0)}, phases, tmp_path / "blocks", seed, micro=4, masking=masking)
    read = Mock(wraps=stream.reader.batch)
    monkeypatch.setattr(stream.reader, "batch", read)
    cursor = stream.start()
    for _ in range(8):
        _, cursor = stream.take(cursor)
    rates = [call.kwargs["rate"] for call in read.call_args_list]
    assert rates == pytest.approx([0.8 - 0.7 * min(update / 6, 1) for update in range(8)])


def test_plans_of_a_phase_that_ended_leave_the_disk(corpus, tmp_path, seed):
    phases = [Phase(3, SHORT, 2), Phase(3, LONG, 2), Phase(3, SHORT, 2), Phase(3, LONG, 2)]
    stream = toy_stream({"toy": (corpus, 1.0)}, phases, tmp_path / "blocks", seed)
    cursor = stream.start()
    for _ in range(40):
        cursor = stream.following(cursor)
    finish_planning(stream.sources[0])
    assert 1 <= len(list((tmp_path / "blocks" / "toy").glob("*.json"))) <= 2


@pytest.mark.parametrize("change", ["seed", "packing", "corpus"])
def test_a_cursor_of_other_data_is_refused(corpus, tmp_path, seed, change):
    def stream(name: str, corpus: Corpus, packing: PackingConfig, key: int) -> RowStream:
        return toy_stream({"toy": (corpus, 1.0)}, [Phase(5, packing, 1)], tmp_path / name, key)

    given = {"corpus": corpus, "packing": SHORT, "key": seed}
    mine = stream("mine", **given)
    _, cursor = mine.take(mine.start())
    assert cursor["sources"]["toy"]["row"] == 1
    changes = {
        "seed": {"key": seed + 1},
        "packing": {"packing": PackingConfig(max_length=24, capacity=72)},
        "corpus": {"corpus": toy_corpus(tmp_path / "other-data", [50] * 30, seed)},
    }
    other = stream("other", **given | changes[change])
    for place in (cursor, mine.start()):
        with pytest.raises(BrimfulError, match="other data or packing"):
            other.take(place)
    mine.take(cursor)


@st.composite
def updates(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """(costs of an update's rows, groups)."""
    groups, each = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    costs = draw(st.lists(st.integers(1, 1000), min_size=groups * each, max_size=groups * each))
    return np.array(costs, dtype=np.int64), groups


@given(updates(), st.integers(0, 2**64 - 1))
def test_every_row_comes_once_and_groups_cost_about_the_same(update, word):
    """Each row of a turn costs at least as much as each row of the next turn. The loads of groups differ
    by no more than the costs of the rows of one turn."""
    costs, groups = update
    dealt = deal(costs, groups, np.uint64(word))
    assert dealt.shape == (groups, len(costs) // groups)
    assert sorted(dealt.ravel().tolist()) == list(range(len(costs)))
    assert np.array_equal(deal(costs, groups, np.uint64(word)), dealt)
    dealt = costs[dealt]
    for dearer, cheaper in pairwise(dealt.T):
        assert dearer.min() >= cheaper.max()
    loads = dealt.sum(axis=1)
    assert loads.max() - loads.min() <= (dealt.max(axis=0) - dealt.min(axis=0)).max()
