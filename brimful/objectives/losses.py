"""Losses as sums, what each is divided by, and counts of right answers: functions of scores and targets.

A sum's weight follows from the batch alone. So the mean over an update is exact however it is split, and
what is packed beside a sequence changes nothing: filler, empty sequences and unused slots carry no targets.
"""

import torch
from torch import Tensor

from brimful.data.batch import IGNORED, PackedBatch
from brimful.precision.policy import widen


def count(labels: Tensor) -> float:
    """How many labels there are."""
    return float((labels != IGNORED).sum())


def correct_and_count(logits: Tensor, labels: Tensor) -> tuple[float, float]:
    """How many labels have the highest score, and how many there are: logits (N, classes), labels (N,)."""
    hits = (logits.argmax(-1) == labels) & (labels != IGNORED)
    return float(hits.sum()), count(labels)


def prediction_weights(batch: PackedBatch, dtype: torch.dtype) -> Tensor:
    """1 / (predictions of its sequence) of each masked token, (M,) in `dtype`; 0 in unused slots.

    With these the sum over a row is that of the means over its sequences, as if each stood alone: a long one
    counts no more than a short one (Krell et al. 2021, section 3.2.3).
    """
    sequence, used = _sequence_of_prediction(batch)
    predictions = used.new_zeros(batch.offsets.numel() - 1, dtype=dtype).index_add(
        0, sequence, used.to(dtype)
    )
    return used / predictions.clamp(min=1).index_select(0, sequence)


def predicted_sequences(batch: PackedBatch) -> float:
    """How many sequences have predictions: the weight of a sum with `prediction_weights`."""
    sequence, used = _sequence_of_prediction(batch)
    return float(sequence[used].unique().numel())


def _sequence_of_prediction(batch: PackedBatch) -> tuple[Tensor, Tensor]:
    """Which sequence each prediction slot is in, int64 (M,), and whether the slot is used, bool (M,)."""
    assert batch.mlm_positions is not None
    assert batch.mlm_labels is not None
    return batch.sequence_of_token.index_select(0, batch.mlm_positions), batch.mlm_labels != IGNORED


def span_sum(logits: Tensor, targets: Tensor, batch: PackedBatch) -> Tensor:
    """Sum over sequences of the mean of start's and end's cross-entropy, () in float32 at least.

    The softmax goes over the tokens of each sequence. (Theirs in `transformers` goes over its padding too,
    unless it stands alone.) The weight is `span_weight`.

    Args:
        logits: (T, 2), the scores of each token as start and as end.
        targets: int64 (S, 2), positions within the sequence. One outside of it, as -100 is, is no target.
    """
    scores = widen(logits)
    sequence = batch.sequence_of_token
    shape = len(targets), 2
    index = sequence[:, None].expand(-1, 2)
    highest = scores.new_zeros(shape).scatter_reduce(0, index, scores.detach(), "amax", include_self=False)
    parts = (scores - highest.index_select(0, sequence)).exp()
    total = scores.new_zeros(shape).index_add(0, sequence, parts).clamp(min=1)  # below 1 in empty ones only
    inside = _inside(targets, batch)
    places = torch.where(inside, batch.offsets[:-1, None] + targets, 0)
    losses = highest + total.log() - scores.gather(0, places)
    return torch.where(inside, losses, 0).sum() / 2


def span_weight(targets: Tensor, batch: PackedBatch) -> float:
    """How many spans there are; one whose start or end alone is a target counts half."""
    return float(_inside(targets, batch).sum()) / 2


def _inside(targets: Tensor, batch: PackedBatch) -> Tensor:
    """Which targets are positions of their sequence, bool (S, 2)."""
    sizes = (batch.offsets[1:] - batch.offsets[:-1])[:, None]
    return (targets >= 0) & (targets < sizes)
