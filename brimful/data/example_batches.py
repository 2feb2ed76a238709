"""Examples as batches: sequences one after the other, with their targets."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from brimful.data.batch import PackedBatch, pack
from brimful.data.examples import Examples, none_of
from brimful.data.ragged import Ragged

TOKEN_GRAIN = 128
"""T is a multiple of this where shapes are not fixed, since every new shape makes new kernels; of few tokens
see `rounded` and `rounded_batch`."""


MAX_UNFILLED_TOKENS = 512
"""The most tokens of a batch that need not be filled up."""


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
        none, dtype = none_of(values.dtype), values.dtype
        if isinstance(values, Ragged):
            padded = np.full((batch.tokens.numel(), *values.width), none, dtype)
            np.concatenate([values[i] for i in index], out=padded[: batch.real_tokens])
        else:
            padded = np.full((len(batch.offsets) - 1, *values.shape[1:]), none, dtype)
            padded[: len(index)] = values[index]
        targets[name] = torch.from_numpy(padded)
    return replace(batch, targets=targets)


def rounded(tokens: int) -> int:
    """The next of the numbers of tokens that batches have: multiples of 32 up to 256, where 127 tokens of
    filler would cost more than a text, of 64 up to 512, then of `TOKEN_GRAIN`."""
    grain = TOKEN_GRAIN if tokens > MAX_UNFILLED_TOKENS else 64 if tokens > 256 else 32
    return -(-tokens // grain) * grain


def rounded_batch(
    examples: Examples, index: np.ndarray, fills: Callable[[int], bool] = lambda tokens: True
) -> PackedBatch:
    """The examples `index` as one micro-batch of as many tokens as `rounded` says.

    Args:
        fills: whether a batch of this many tokens is filled up; those of more than `MAX_UNFILLED_TOKENS`
            always are.
    """
    tokens = int(examples.lengths[index].sum())
    is_filled = tokens > MAX_UNFILLED_TOKENS or fills(tokens)
    return batch_of(examples, index, rounded(tokens) if is_filled else None)
