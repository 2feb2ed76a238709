"""Losses as sums, their normalizers, and counts of right answers: functions of scores and targets.

A normalizer follows from the batch alone. So the mean over an update is exact however the update is split.
Neighbours in a row change nothing: filler, empty sequences and unused slots have no targets.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from brimful.base.errors import BrimfulError
from brimful.base.types import IGNORED
from brimful.data.batch import PackedBatch
from brimful.precision.policy import widen


def count(labels: Tensor) -> float:
    """The number of labels."""
    return float((labels != IGNORED).sum())


def soft_cross_entropy_sum(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Sum of the cross-entropies with a teacher's probabilities, () (Hinton et al., 2015, section 2).

    Args:
        student, teacher: logits (N, classes).
        temperature: divides the logits of both.
    """
    target = torch.softmax(teacher / temperature, -1)
    return F.cross_entropy(student / temperature, target, reduction="sum")


def class_imitation(temperature: float) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss of a student's logits (N, classes) against its teacher's, summed to ()."""
    return partial(soft_cross_entropy_sum, temperature=temperature)


def require_no_temperature(temperature: float, reason: str) -> None:
    """Refuse another temperature than 1 where there is no softmax."""
    if temperature != 1:
        raise BrimfulError(f"temperature is {temperature}: {reason}; leave it at 1")


def squared_error_sum(values: Tensor, targets: Tensor) -> Tensor:
    """Sum of squared differences, () in float32 at least.

    Args:
        values, targets: of one shape. A target that is NaN is no target.
    """
    values = widen(values)
    return (values - torch.where(targets.isnan(), values.detach(), targets)).square().sum()


def span_cross_entropy_sum(logits: Tensor, spans: Tensor, batch: PackedBatch) -> Tensor:
    """Sum over sequences of the mean cross-entropy of a span's first and last token, () in float32 at least.

    The softmax is over the tokens of each sequence (Devlin et al., 2018, section 4.2). (In `transformers` it
    includes the padding of a batch.)

    Args:
        logits: (T, 2), of each token as the first and as the last.
        spans: int64 (S, 2), the place of both in their sequence; -100 = none.
    """
    logits, owner = widen(logits), batch.sequence_of_token
    sequences = len(spans)
    highest = logits.detach().new_full((sequences, 2), -torch.inf)
    highest = highest.scatter_reduce(0, owner[:, None].expand(-1, 2), logits.detach(), "amax")
    highest = torch.where(highest.isinf(), 0.0, highest)
    total = logits.new_zeros(sequences, 2).index_add(0, owner, (logits - highest[owner]).exp())
    used = spans >= 0
    normalizer = torch.where(used, total, 1.0).log() + highest
    place = (batch.offsets[:-1, None] + spans.clamp(min=0)).clamp(max=len(logits) - 1)
    return torch.where(used, normalizer - logits.gather(0, place), 0.0).sum() / 2
