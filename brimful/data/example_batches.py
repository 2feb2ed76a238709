"""Examples as batches: sequences one after the other, with their targets."""

from dataclasses import replace

import numpy as np
import torch

from brimful.data.batch import PackedBatch, pack
from brimful.data.examples import Examples, none_of
from brimful.data.ragged import Ragged

GRAIN = 128
"""T is a multiple of this where shapes are not fixed, since every new shape makes new kernels."""
FINE_GRAIN, FINE = 32, 1024
"""The same of inference on a CPU, for batches of at most `FINE` tokens: there filler would cost more."""


def batch_of(
    examples: Examples, index: np.ndarray, slots: int | None = None, sequence_slots: int | None = None
) -> PackedBatch:
    """The examples `index` (int64) as one micro-batch of T = `slots` and S = `sequence_slots`, by default as
    many as are needed."""
    batch = pack(
        [examples.tokens[i] for i in index],
        segments=[examples.segments[i] for i in index],
        max_length=examples.max_length,
        pad=examples.pad,
        slots=slots,
        sequence_slots=sequence_slots,
        sequence_index=np.asarray(index),
    )
    targets = {}
    for name, values in examples.targets.items():
        by_token = isinstance(values, Ragged)
        array = values.values if isinstance(values, Ragged) else values
        size = batch.tokens.numel() if by_token else len(batch.offsets) - 1
        padded = np.full((size, *array.shape[1:]), none_of(array.dtype), dtype=array.dtype)
        if by_token:
            np.concatenate([values[i] for i in index], out=padded[: batch.real_tokens])
        else:
            padded[: len(index)] = array[index]
        targets[name] = torch.from_numpy(padded)
    return replace(batch, targets=targets)


def rounded_batch(examples: Examples, index: np.ndarray, *, fine: bool = False) -> PackedBatch:
    """The examples `index` as one micro-batch of the next multiple of `GRAIN` tokens.

    Args:
        fine: a small batch has the next multiple of `FINE_GRAIN`.
    """
    tokens = int(examples.lengths[index].sum())
    grain = FINE_GRAIN if fine and tokens <= FINE else GRAIN
    return batch_of(examples, index, -(-tokens // grain) * grain)
