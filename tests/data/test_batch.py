"""PackedBatch: what holds for every micro-batch, whatever sequences it has."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brimful.data.batch import make_blank, pack
from builders.batches import check_invariants

PAD = 0


@given(
    st.integers(1, 20).flatmap(lambda m: st.tuples(st.just(m), st.lists(st.integers(1, m), max_size=8))),
    st.none() | st.integers(0, 50),
    st.none() | st.integers(0, 5),
    st.booleans(),
)
def test_pack(sizes, room, more_sequences, typed):
    max_length, lengths = sizes
    sequences = [np.arange(length) + 100 * i + 1 for i, length in enumerate(lengths)]
    segments = [np.arange(length) % 2 for length in lengths] if typed else None
    whole, rest = divmod(room or 0, max_length)
    filler = [max_length] * whole + [rest] * (rest > 0)
    layout = {"max_length": max_length, "pad": PAD}
    if room is not None:
        layout["slots"] = sum(lengths) + room
    if more_sequences is not None:
        layout["sequence_slots"] = len(lengths) + len(filler) + more_sequences
    batch = pack(sequences, segments=segments, **layout)
    check_invariants(batch)
    assert batch.offsets.numel() - 1 == len(lengths) + len(filler) + (more_sequences or 0)
    assert batch.real_sequences == len(lengths)
    assert batch.lengths == (*lengths, *filler)
    none, padding = np.empty(0, int), [PAD] * (room or 0)
    assert batch.tokens.tolist() == [*np.concatenate([*sequences, none]), *padding]
    types = np.concatenate([*segments, none]) if segments else [0] * sum(lengths)
    assert batch.segments.tolist() == [*types, *padding]


@pytest.mark.parametrize(
    ("lengths", "slots", "sequence_slots"),
    [([5, 5], 9, None), ([5], None, 0), ([5, 0], None, None), ([9], None, None), ([4], 13, 2)],
)
def test_what_does_not_fit_is_refused(lengths, slots, sequence_slots):
    room = {"max_length": 8, "pad": PAD, "slots": slots, "sequence_slots": sequence_slots}
    with pytest.raises(ValueError, match="do not fit"):
        pack([np.ones(length) for length in lengths], **room)
    with pytest.raises(ValueError, match="do not fit"):
        make_blank(lengths, **room)


@pytest.mark.parametrize("masked", [True, False])
def test_map_changes_every_tensor(masked):
    batch = pack([np.arange(1, 4), np.arange(1, 5)], max_length=8, pad=PAD, slots=10, sequence_slots=4)
    if masked:
        batch = dataclasses.replace(
            batch, mlm_positions=torch.tensor([2, 0]), mlm_labels=torch.tensor([9, -100])
        )
    batch.targets.update(label=torch.tensor([1, 0, -100, -100]), score=torch.rand(4))
    changed = batch.map(torch.neg)
    assert changed.targets.keys() == batch.targets.keys()
    for name, target in batch.targets.items():
        assert torch.equal(changed.targets[name], -target)
    for name, old in vars(batch).items():
        new = getattr(changed, name)
        if isinstance(old, torch.Tensor):
            assert torch.equal(new, -old)
        else:
            assert new is old or name == "targets"
