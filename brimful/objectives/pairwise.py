"""What two models make of all pairs of tokens: attention scores (TinyBERT).

The loss compares matrices of L x L for each sequence of L tokens, with fixed matrices of a teacher. They are
not kept: the loss and the gradient of the student's inputs are computed together, sequence by sequence, and
backward only scales that gradient. So memory is O(T * width), and a sequence costs nothing beyond its own
pairs, since nothing is masked inside a packed sequence.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from brimful.data.batch import PackedBatch
from brimful.precision.policy import widen

Projections = tuple[Tensor, Tensor]
"""Queries and keys, (T, heads, head size) each, not yet divided by anything."""


def sequences(batch: PackedBatch) -> Iterator[slice]:
    """The slots of each real sequence."""
    start = 0
    for length in batch.lengths[: batch.real_sequences]:
        yield slice(start, start + length)
        start += length


def attention_score_sum(student: Projections, teacher: Projections, batch: PackedBatch) -> Tensor:
    """Sum of squared differences of attention scores before the softmax, () in float32 at least.

    The scores are QK' / sqrt(head size), for all pairs of tokens of each real sequence, for all heads (Jiao
    et al. 2020, "TinyBERT", equation 7). If the numbers of heads differ, the means of the scores over each
    model's heads are compared instead, as one head.

    A sequence takes one of two exact forms, whichever has fewer operations. With A = QsKs' - QtKt' (scales
    left out), the first forms A; the second uses |A|^2 = <Qs'Qs, Ks'Ks> - 2 <Qt'Qs, Kt'Ks> + <Qt'Qt, Kt'Kt>,
    AKs = Qs(Ks'Ks) - Qt(Kt'Ks) and A'Qs = Ks(Qs'Qs) - Kt(Qt'Qs), which is O(L d^2). Its value loses digits
    where A is much smaller than QK'; its gradient does not.

    Args:
        student, teacher: the head sizes may differ. The teacher has no gradient.
    """
    if student[0].shape[1] != teacher[0].shape[1]:
        student, teacher = _as_one_head(student), _as_one_head(teacher)
    with torch.autocast(student[0].device.type, enabled=False):  # products of what is widened stay wide
        return _AttentionScores.apply(*student, *teacher, batch)


def score_maps(heads: tuple[int, int]) -> int:
    """How many score maps of a layer `attention_score_sum` compares, by the heads of the two models."""
    return heads[0] if heads[0] == heads[1] else 1


def _as_one_head(projections: Projections) -> Projections:
    """Queries and keys whose scores, over sqrt(head size), are the means over the heads."""
    q, k = projections
    heads = q.shape[1]
    return (q * heads**-0.5).flatten(1)[:, None], k.flatten(1)[:, None]


def uses_gram(length: int, student: int, teacher: int) -> bool:
    """Whether the second form of `attention_score_sum` has fewer operations, for these head sizes."""
    return length * (student + teacher) > 2 * (student**2 + student * teacher + teacher**2)


class _AttentionScores(torch.autograd.Function):
    """`attention_score_sum` of as many heads."""

    @staticmethod
    def forward(ctx: Any, q_s: Tensor, k_s: Tensor, q_t: Tensor, k_t: Tensor, batch: PackedBatch) -> Tensor:
        total = widen(q_s.new_zeros(()))
        wanted = any(ctx.needs_input_grad)
        d_q, d_k = (torch.zeros_like(x) if wanted else None for x in (q_s, k_s))
        scales = q_s.shape[-1] ** -0.5, q_t.shape[-1] ** -0.5
        for part in sequences(batch):
            # (heads, L, head size), wide: a difference of large scores would have few digits in bf16.
            qs, ks, qt, kt = (widen(x[part]).transpose(0, 1) for x in (q_s, k_s, q_t, k_t))
            qs, qt = qs * scales[0], qt * scales[1]
            if uses_gram(qs.shape[1], qs.shape[-1], qt.shape[-1]):
                qq, kk = qs.mT @ qs, ks.mT @ ks
                tq, tk = qt.mT @ qs, kt.mT @ ks
                value = (qq * kk).sum() - 2 * (tq * tk).sum() + ((qt.mT @ qt) * (kt.mT @ kt)).sum()
                if wanted:
                    by_key, by_query = qs @ kk - qt @ tk, ks @ qq - kt @ tq
            else:
                apart = qs @ ks.mT - qt @ kt.mT
                value = apart.square().sum()
                if wanted:
                    by_key, by_query = apart @ ks, apart.mT @ qs
            total = total + value
            if d_q is not None and d_k is not None:
                d_q[part] = (2 * scales[0] * by_key).transpose(0, 1)
                d_k[part] = (2 * by_query).transpose(0, 1)
        if wanted:
            ctx.save_for_backward(d_q, d_k)
        return total

    @staticmethod
    def backward(ctx: Any, d_total: Tensor) -> tuple[Tensor | None, ...]:
        d_q, d_k = ctx.saved_tensors
        return d_q * d_total.to(d_q.dtype), d_k * d_total.to(d_k.dtype), None, None, None
