"""PackedBatch: what holds for every micro-batch, whatever was packed into it."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brimful.data.batch import PackedBatch, make_blank, pack, split_filler
from builders.batches import check_invariants

PAD = 0


@given(
    st.integers(1, 20).flatmap(lambda m: st.tuples(st.just(m), st.lists(st.integers(1, m), max_size=8))),
    st.none() | st.integers(0, 50),
    st.none() | st.integers(0, 5),
    st.booleans(),
)
def test_pack(
    sizes: tuple[int, list[int]], room: int | None, more_sequences: int | None, typed: bool
) -> None:
    max_length, lengths = sizes
    used = sum(lengths)
    sequences = [np.arange(length) + 100 * i + 1 for i, length in enumerate(lengths)]
    segments = [np.arange(length) % 2 for length in lengths] if typed else None
    filler = split_filler(room or 0, max_length)
    slots = None if room is None else used + room
    sequence_slots = None if more_sequences is None else len(lengths) + len(filler) + more_sequences
    batch = pack(
        sequences,
        max_length=max_length,
        pad=PAD,
        slots=slots,
        sequence_slots=sequence_slots,
        segments=segments,
    )
    check_invariants(batch)
    assert batch.tokens.numel() == used + (room or 0)
    assert batch.offsets.numel() - 1 == len(lengths) + len(filler) + (more_sequences or 0)
    assert batch.real_sequences == len(lengths)
    assert batch.lengths == (*lengths, *filler)
    assert batch.tokens.tolist() == [
        *np.concatenate([*sequences, np.empty(0)]).astype(int),
        *[PAD] * (room or 0),
    ]
    types = np.concatenate([*segments, np.empty(0)]).astype(int).tolist() if segments else [0] * used
    assert batch.segments.tolist() == [*types, *[0] * (room or 0)]


@given(
    st.lists(st.integers(1, 9), max_size=8),
    st.none() | st.integers(0, 50),
    st.none() | st.integers(0, 5),
    st.integers(0, 100),
)
def test_blank(lengths: list[int], room: int | None, more_sequences: int | None, pad: int) -> None:
    filler = split_filler(room or 0, 9)
    needed = len(lengths) + len(filler)
    index = np.arange(len(lengths)) * 7
    batch = make_blank(
        lengths,
        max_length=9,
        pad=pad,
        slots=None if room is None else sum(lengths) + room,
        sequence_slots=None if more_sequences is None else needed + more_sequences,
        sequence_index=index,
    )
    check_invariants(batch)
    assert batch.tokens.tolist() == [pad] * (sum(lengths) + (room or 0))
    assert batch.offsets.numel() - 1 == needed + (more_sequences or 0)
    assert batch.lengths == (*lengths, *filler)
    assert batch.real_sequences == len(lengths)
    assert not batch.segments.any()
    assert batch.sequence_index is index
    batch.tokens.numpy()[:] = 1  # what is laid into it is seen
    assert (batch.tokens == 1).all()


@pytest.mark.parametrize(
    ("lengths", "slots", "sequence_slots"),
    [([5, 5], 9, None), ([5], None, 0), ([5, 0], None, None), ([9], None, None), ([4], 13, 2)],
)
def test_what_does_not_fit_is_refused(
    lengths: list[int], slots: int | None, sequence_slots: int | None
) -> None:
    room = {"max_length": 8, "pad": PAD, "slots": slots, "sequence_slots": sequence_slots}
    with pytest.raises(ValueError, match="do not fit"):
        pack([np.ones(length) for length in lengths], **room)
    with pytest.raises(ValueError, match="do not fit"):
        make_blank(lengths, **room)


def test_a_moved_batch_is_the_same() -> None:
    batch = pack([np.arange(3), np.arange(4)], max_length=8, pad=PAD, slots=10, sequence_slots=4)
    batch.targets["label"] = torch.tensor([1, 0, -100, -100])
    moved = batch.to("cpu")
    check_invariants(moved)
    assert torch.equal(moved.tokens, batch.tokens)
    assert moved.lengths == batch.lengths
    assert torch.equal(moved.targets["label"], batch.targets["label"])


@pytest.mark.parametrize("masked", [True, False])
def test_map_changes_every_tensor(masked: bool) -> None:
    batch = pack(
        [np.arange(1, 4), np.arange(1, 5)],
        max_length=8,
        pad=PAD,
        slots=10,
        sequence_slots=4,
        sequence_index=np.arange(2),
    )
    if masked:
        batch = dataclasses.replace(
            batch, mlm_positions=torch.tensor([2, 0]), mlm_labels=torch.tensor([9, -100])
        )
    batch.targets.update(label=torch.tensor([1, 0, -100, -100]), score=torch.rand(4))
    before = dataclasses.replace(batch, targets=dict(batch.targets))
    seen: list[torch.Tensor] = []

    def negated(tensor: torch.Tensor) -> torch.Tensor:
        seen.append(tensor)
        return -tensor

    changed = batch.map(negated)
    assert len(seen) == (8 if masked else 6)
    for field in dataclasses.fields(PackedBatch):
        old, new, still = (getattr(one, field.name) for one in (before, changed, batch))
        assert still is old or field.name == "targets"
        if isinstance(old, torch.Tensor):
            assert torch.equal(new, -old)
        elif field.name == "targets":
            assert {name: tensor.tolist() for name, tensor in new.items()} == {
                name: (-tensor).tolist() for name, tensor in old.items()
            }
        else:
            assert new is old


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_batch_moves_to_a_gpu() -> None:
    batch = pack([np.arange(3)], max_length=8, pad=PAD, slots=10, sequence_slots=4).to("cuda")
    assert {batch.tokens.device.type, batch.offsets.device.type} == {"cuda"}
    assert batch.sequence_of_token.tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 1, 1]
