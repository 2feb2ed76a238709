"""S is enough for every micro-batch and little above what is needed, and it changes nothing but shapes."""

from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brimful.data.batch import PackedBatch
from brimful.data.config import PackingConfig, Phase
from brimful.data.rows import RowStream
from brimful.data.slots import SequenceSlots
from brimful.model.heads import MaskedLMHead
from brimful.objectives.masked_lm import MaskedLM
from builders.batches import check_invariants
from builders.compiled import encoder_of, row_stream
from builders.streams import of_rank, toy_corpus, toy_stream

SHORT = PackingConfig(max_length=24, capacity=96)
LONG = PackingConfig(max_length=64, capacity=96)


pytestmark = pytest.mark.usefixtures("six_row_blocks")


def slots_of(batch: PackedBatch) -> int:
    return len(batch.offsets) - 1


def same_but_for_slots(one: PackedBatch, other: PackedBatch) -> bool:
    names = ("tokens", "positions", "segments", "mlm_positions", "mlm_labels")
    one, other = one.with_fewer_predictions(), other.with_fewer_predictions()
    return one.lengths == other.lengths and all(
        torch.equal(getattr(one, name), getattr(other, name)) for name in names
    )


def test_growth(capsys):
    for shown in (True, False):
        slots = SequenceSlots(prints=shown)
        assert slots.find("a") is None
        assert slots.choose("a", 25) == 40  # 25 and two deviations of 5, in steps of 8
        assert slots.choose("b", 100) == 120
        assert slots.choose("a", 40) == slots.find("a") == 40
        assert capsys.readouterr().err == ""
        assert slots.choose("a", 49) == 64
        assert slots.choose("b", 1) == 120
        assert capsys.readouterr().err.count("\n") == shown


@settings(max_examples=3)
@given(seed=st.integers(0, 2**31), micro=st.integers(1, 3), counted=st.sampled_from(["rows", "sequences"]))
def test_slots_change_nothing_but_shapes(seed, micro, counted):
    """Across phases, sources and ranks; every sequence is there."""
    draw = np.random.default_rng(seed)
    with TemporaryDirectory() as folder, ExitStack() as opened, pytest.MonkeyPatch.context() as patch:
        lines: list[str] = []
        patch.setattr("brimful.data.slots.say", lines.append)
        corpora = {
            "long": (toy_corpus(Path(folder, "long"), draw.integers(60, 120, 20).tolist(), seed), 2.0),
            "short": (toy_corpus(Path(folder, "s"), draw.integers(1, 9, 60).tolist(), seed, first=4000), 1.0),
        }
        size = 4 if counted == "rows" else 20
        phases = [Phase(updates, packing, size, counted) for updates, packing in ((4, SHORT), (6, LONG))]

        def stream(name: str, **settings: Any) -> RowStream:
            made = toy_stream(corpora, phases, Path(folder, name), seed, micro=micro, **settings)
            opened.callback(made.close)
            return made

        plain, fixed = stream("plain"), stream("fixed", fixed_shapes=True)
        ranks = [of_rank(fixed, rank, 2) for rank in range(2)]
        late = of_rank(fixed, 1, 2)  # a resumed one
        cursor, seen = plain.start(), []
        for update in range(16):
            batches, following = plain.take(cursor)
            alone, after = fixed.take(cursor)
            shares = [rank.take(cursor) for rank in ranks]
            assert after == following == shares[0][1] == shares[1][1]
            assert all(map(same_but_for_slots, batches, alone))
            assert update < 8 or all(map(same_but_for_slots, batches[1::2], late.take(cursor)[0]))
            for index, batch in enumerate(alone):
                check_invariants(batch)
                assert slots_of(shares[index % 2][0][index // 2]) == slots_of(batch)
            (of_update,) = {slots_of(batch) for batch in alone}
            if not update:
                needed = max(len(batch.lengths) for batch in alone)
                assert of_update == SequenceSlots(prints=False).choose("first", needed)
            seen.append(of_update)
            cursor = following
        changes = sum(a != b for a, b in pairwise(seen))
        kinds = 3  # each phase, and the second while it reads old blocks
        assert len(lines) >= (changes - kinds) * 2  # of the stream, and of the first of its ranks
        assert len(lines) % 2 == 0


def test_a_phase_after_one_of_short_sequences_has_fewer_slots(tmp_path, seed):
    corpora = {"toy": (toy_corpus(tmp_path / "data", [120] * 60, seed), 1.0)}
    short, long = (PackingConfig(max_length=length, capacity=128) for length in (8, 128))
    phases = [Phase(3, short, 2), Phase(30, long, 2)]
    with closing(toy_stream(corpora, phases, tmp_path, seed, fixed_shapes=True)) as stream:
        cursor, seen = stream.start(), []
        for _ in range(33):
            (batch, *_), cursor = stream.take(cursor)
            seen.append(slots_of(batch))
    assert seen[0] >= 16  # sequences of 8 tokens in a row of 128
    assert seen[-1] == 8


def test_a_smaller_micro_batch_has_fewer_slots(tmp_path, seed):
    """The search for the rows of a micro-batch gives a smaller one the same S as training does."""
    corpora = {"toy": (toy_corpus(tmp_path / "data", [9] * 200, seed), 1.0)}
    phases = [Phase(9, SHORT, 8)]
    with closing(toy_stream(corpora, phases, tmp_path, seed, micro=4, fixed_shapes=True)) as stream:
        (large, _), _ = stream.take(stream.start())
        stream.rows_per_micro_batch = 2
        (small, *_), _ = stream.take(stream.start())
        first, *_ = stream.micro_batches(stream.start(), slice(1))
        assert slots_of(stream.batch(first, 0)) == slots_of(small) < slots_of(large)


def test_the_loss_does_not_depend_on_the_slots(corpus_dir, tmp_path, seed):
    """Loss and gradients are the same to the last bit."""
    torch.manual_seed(seed)
    encoder = encoder_of("modern").double()
    objective = MaskedLM(MaskedLMHead(encoder).double(), {})
    weights = [*encoder.parameters(), *objective.head.parameters()]
    with closing(row_stream(corpus_dir, tmp_path, seed)) as stream:
        rows, *_ = stream.micro_batches(stream.start())
        results = []
        for slots in (None, 8, 64):
            batch = stream.batch(rows, 0, slots)
            loss = sum(objective.loss(encoder, batch, encoder.prepare(batch)).values())
            gradients = torch.autograd.grad(loss, weights, allow_unused=True)
            results.append([loss.detach(), *(each for each in gradients if each is not None)])
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))
