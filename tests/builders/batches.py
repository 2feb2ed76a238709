"""What holds for every batch."""

import numpy as np
import torch

from brimful.data.batch import PackedBatch


def check_invariants(batch: PackedBatch) -> None:
    T, S = batch.tokens.numel(), batch.offsets.numel() - 1
    for tensor, dtype in ((batch.tokens, torch.int32), (batch.segments, torch.uint8)):
        assert (tensor.shape, tensor.dtype) == ((T,), dtype)
    assert (batch.positions.dtype, batch.offsets.dtype) == (torch.int32, torch.int32)
    assert batch.offsets[0] == 0
    sizes = (batch.offsets[1:] - batch.offsets[:-1]).tolist()
    assert tuple(sizes[: len(batch.lengths)]) == batch.lengths
    assert all(0 < length <= batch.max_length for length in batch.lengths)
    assert sizes[len(batch.lengths) :] == [0] * (S - len(batch.lengths))
    assert sum(batch.lengths) == T
    positions = [np.arange(length) for length in batch.lengths]
    assert batch.positions.tolist() == np.concatenate([*positions, np.empty(0)]).tolist()
    owners = np.repeat(np.arange(len(batch.lengths)), batch.lengths)
    assert batch.sequence_of_token.tolist() == owners.tolist()
    assert 0 <= batch.real_sequences <= len(batch.lengths)
    assert batch.real_tokens == sum(batch.lengths[: batch.real_sequences])
    assert batch.first_positions.shape == (S,)
    filled = len(batch.lengths)
    assert batch.first_positions[:filled].tolist() == batch.offsets[:filled].tolist()
    if batch.mlm_positions is not None:
        assert batch.mlm_labels is not None
        assert batch.mlm_positions.shape == batch.mlm_labels.shape
        used = batch.mlm_labels != -100
        assert (batch.mlm_positions[used] < batch.real_tokens).all()
        assert (batch.mlm_positions[~used] == 0).all()
    for target in batch.targets.values():
        assert target.shape[0] == S
        filler = target[batch.real_sequences :]
        assert (filler.isnan() if target.is_floating_point() else filler == -100).all()
