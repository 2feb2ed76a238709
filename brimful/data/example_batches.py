"""Examples as batches: sequences one after the other, with their targets."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy import ndarray

from brimful.base.types import IGNORED
from brimful.data.batch import PackedBatch, pack
from brimful.data.examples import Examples
from brimful.data.ragged import Ragged

TOKEN_GRAIN = 128
"""T is a multiple of this where shapes are not fixed, since every new shape makes new kernels."""
MAX_UNFILLED_TOKENS = 512
"""The most tokens of a batch that need not be filled up, or only in finer steps."""


def make_batch(
    examples: Examples, index: ndarray, slots: int | None = None, sequence_slots: int | None = None
) -> PackedBatch:
    """Lay the examples `index` (int64) into one micro-batch of T = `slots` and S = `sequence_slots`; by
    default both are as few as the examples need."""
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
        dtype = values.dtype
        missing = {"i": IGNORED, "u": 0}.get(dtype.kind, np.nan)  # in missing bits, no bit is set
        if isinstance(values, Ragged):  # a target for each token: (T, ...)
            padded = np.full((batch.tokens.numel(), *values.width), missing, dtype)
            np.concatenate([values[i] for i in index], out=padded[: batch.real_tokens])
        else:  # a target for each sequence: (S, ...)
            padded = np.full((len(batch.offsets) - 1, *values.shape[1:]), missing, dtype)
            padded[: len(index)] = values[index]
        targets[name] = torch.from_numpy(padded)
    return replace(batch, targets=targets)


def round_up_tokens(tokens: int) -> int:
    """Round up to one of the numbers of tokens that batches have: multiples of 32 up to 256, where 127 tokens
    of filler would cost more than a text, of 64 up to 512, then of `TOKEN_GRAIN`."""
    grain = TOKEN_GRAIN
    if tokens <= 256:
        grain = 32
    elif tokens <= MAX_UNFILLED_TOKENS:
        grain = 64
    return -(-tokens // grain) * grain


def make_rounded_batch(
    examples: Examples, index: ndarray, fills: Callable[[int], bool] | None = None
) -> PackedBatch:
    """Lay the examples `index` into one micro-batch, filled up to a number of tokens by `round_up_tokens`.

    Args:
        fills: whether a batch of this many tokens is filled up; batches of more than `MAX_UNFILLED_TOKENS`
            always are. By default all are.
    """
    tokens = int(examples.lengths[index].sum())
    if fills is None or tokens > MAX_UNFILLED_TOKENS or fills(tokens):
        return make_batch(examples, index, round_up_tokens(tokens))
    return make_batch(examples, index)
