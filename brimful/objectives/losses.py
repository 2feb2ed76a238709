"""Losses as sums, their normalizers, and counts of right answers: functions of scores and targets.

A normalizer follows from the batch alone. So the mean over an update is exact however the update is split.
Neighbours in a row change nothing: filler, empty sequences and unused slots have no targets.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from brimful.base.errors import BrimfulError
from brimful.data.batch import PackedBatch
from brimful.precision.policy import widen

Imitation = Callable[[Tensor, Tensor], Tensor]
"""Outputs of a student and of its teacher, (N, outputs) in float32 at least -> the sum of losses, ()."""


def make_class_imitation(temperature: float) -> Imitation:
    """Make the loss of a student's logits (N, classes) against its teacher's: the cross-entropies with the
    teacher's probabilities, summed to () (Hinton et al. 2015, section 2). The temperature divides both."""

    def imitate(student: Tensor, teacher: Tensor) -> Tensor:
        target = torch.softmax(teacher / temperature, -1)
        return F.cross_entropy(student / temperature, target, reduction="sum")

    return imitate


def require_no_temperature(temperature: float, reason: str) -> None:
    """Refuse any temperature but 1 where there is no softmax."""
    if temperature != 1:
        raise BrimfulError(f"temperature is {temperature}: {reason}; leave it at 1")


def squared_error_sum(values: Tensor, targets: Tensor) -> Tensor:
    """Sum squared differences, () in float32 at least.

    Args:
        values, targets: of one shape. NaN stands for a missing target.
    """
    values = widen(values)
    # A missing target becomes the value itself: difference and gradient are 0. NaN times 0 would be NaN.
    return (values - torch.where(targets.isnan(), values.detach(), targets)).square().sum()


def span_cross_entropy_sum(logits: Tensor, spans: Tensor, batch: PackedBatch) -> Tensor:
    """Sum the mean cross-entropy of a span's first and last token over sequences, () in float32 at least.

    The softmax is over the tokens of each sequence (Devlin et al. 2018, "BERT", section 4.2). (In
    `transformers` it includes the padding of a batch.)

    Args:
        logits: (T, 2), the score of each token as the first and as the last of the span.
        spans: int64 (S, 2), the places of the first and the last token in their sequence; -100: no span.
    """
    logits, owner = widen(logits), batch.sequence_of_token  # (T, 2), (T,)
    # The log of a sum of exponentials for each sequence, (S, 2). Its highest logit is subtracted first, so
    # that nothing overflows; it is a constant, since it cancels out of the gradient.
    highest = logits.detach().new_full((len(spans), 2), -torch.inf)
    highest = highest.scatter_reduce(0, owner[:, None].expand(-1, 2), logits.detach(), "amax")
    highest = torch.where(highest.isinf(), 0.0, highest)  # of empty sequences
    total = logits.new_zeros(len(spans), 2).index_add(0, owner, (logits - highest[owner]).exp())
    used = spans >= 0
    normalizer = torch.where(used, total, 1.0).log() + highest
    # The slot of each label, (S, 2). Unused ones are clamped to any slot, and left out of the sum.
    place = (batch.offsets[:-1, None] + spans.clamp(min=0)).clamp(max=len(logits) - 1)
    return torch.where(used, normalizer - logits.gather(0, place), 0.0).sum() / 2
