"""TinyBERT's losses as its published code computes them: on padded batches, whose padding counts.

Padding has hidden states and queries there, which depend on what it attends to: real tokens, since -10000 is
added to the scores of keys that are padding. Packed rows have none, so both models read a padded batch. This
is slow, and takes memory for all pairs of slots. It is there to reproduce that code.
"""

from dataclasses import replace

import torch
from torch import Tensor

from brimful.data.batch import PackedBatch
from brimful.nn.attention import DenseLayout
from brimful.objectives.pairwise import Projections
from brimful.precision.policy import widen

HIDDEN_KEY = -10_000.0
"""What is added to the scores of a key that is padding."""
LEAST = -100.0
"""Scores up to this become 0 in the loss; so do those of keys that are padding."""


class PaddedLayout(DenseLayout):
    """A padded batch whose mask is added to scores, as in BERT's published code: padding sees real tokens."""

    def mask(self, q: Tensor, window: int | None) -> Tensor:
        hidden = ~self.real[:, None, None, :]
        if window is not None:
            place = torch.arange(self.real.shape[1], device=q.device)
            hidden = hidden | ((place[:, None] - place).abs() > window // 2)
        return hidden.to(q.dtype) * HIDDEN_KEY


def padded(batch: PackedBatch, pad: int) -> tuple[PackedBatch, PaddedLayout]:
    """The real sequences, each padded to `max_length` by tokens `pad` of type 0; filler and targets are not
    kept. All B * max_length slots of the result are real sequences to those who read it."""
    B, L, used = batch.real_sequences, batch.max_length, slice(0, batch.real_tokens)
    places = batch.sequence_of_token[used] * L + batch.positions[used]
    device = batch.tokens.device
    real = torch.zeros(B * L, dtype=torch.bool, device=device)
    real[places] = True
    wide = replace(
        batch,
        tokens=torch.full((B * L,), pad, dtype=batch.tokens.dtype, device=device),
        positions=torch.arange(L, dtype=batch.positions.dtype, device=device).repeat(B),
        segments=torch.zeros(B * L, dtype=batch.segments.dtype, device=device),
        offsets=torch.arange(B + 1, dtype=batch.offsets.dtype, device=device) * L,
        lengths=(L,) * B,
        mlm_positions=None,
        mlm_labels=None,
        targets={},
    )
    wide.tokens[places] = batch.tokens[used]
    wide.segments[places] = batch.segments[used]
    return wide, PaddedLayout(real.view(B, L))


def padded_score_sum(student: Projections, teacher: Projections, layout: PaddedLayout) -> Tensor:
    """Sum of squared differences of attention scores before the softmax over all pairs of slots, ().

    A score of at most -100 counts as 0 on either side, whether a mask or the model made it so small.

    Args:
        student, teacher: queries and keys, (B * L, heads, head size), of as many heads.
    """
    B, L = layout.real.shape

    def scores(q: Tensor, k: Tensor) -> Tensor:
        q, k = (widen(x).view(B, L, *x.shape[1:]).transpose(1, 2) for x in (q, k))
        found = q @ k.mT * q.shape[-1] ** -0.5 + layout.mask(q, None)
        return found.masked_fill(found <= LEAST, 0)

    with torch.autocast(student[0].device.type, enabled=False):
        return (scores(*student) - scores(*teacher)).square().sum()
