"""Cross-entropy of scores, and how many labels are predicted right."""

import torch.nn.functional as F
from torch import Tensor

from brimful.base.types import IGNORED
from brimful.precision.policy import widen


def cross_entropy_sum(scores: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the sum of weights * cross-entropy: (), float32 or wider.

    Args:
        scores: (N, classes); N is M, S or T.
        labels: int64 (N,), -100 where there is no label.
        weights: (N,), the factor of each label's loss; 1 by default. They get no gradient.
    """
    # In 16 bits the sum of a few hundred losses would lose their last digits.
    scores = widen(scores)
    if weights is None:
        return F.cross_entropy(scores, labels, ignore_index=IGNORED, reduction="sum")
    losses = F.cross_entropy(scores, labels, ignore_index=IGNORED, reduction="none")
    return (losses * weights.detach()).sum()


def count_labels(labels: Tensor) -> float:
    """Count the labels that are in a loss: all but -100."""
    return float((labels != IGNORED).sum())


def count_hits(scores: Tensor, labels: Tensor) -> Tensor:
    """Return how many labels have the highest score of their row: int64 ().

    Two scores are often equal in bfloat16. A label that shares the highest score counts, although `argmax`
    might return the other one.

    Args:
        scores, labels: as in `cross_entropy_sum`.
    """
    scores = scores.detach()
    # -100 cannot be an index; the score that is read in its place is left out of the sum.
    label_scores = scores.gather(1, labels.clamp(min=0)[:, None])[:, 0]  # (N,)
    return ((label_scores >= scores.amax(1)) & (labels != IGNORED)).sum()
