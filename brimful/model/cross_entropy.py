"""Cross-entropy of scores that are in memory, and how many of them are right."""

import torch
import torch.nn.functional as F
from torch import Tensor

from brimful.data.batch import IGNORED


def cross_entropy_sum(scores: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Sum of weights * cross-entropy, () in float32 or wider.

    Args:
        scores: (N, classes); N is M, S or T.
        labels: int64 (N,), -100 where there is no label.
        weights: (N,), the factor of each label's loss; 1 by default. They get no gradient.
    """
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if weights is None:
        return F.cross_entropy(scores, labels, ignore_index=IGNORED, reduction="sum")
    losses = F.cross_entropy(scores, labels, ignore_index=IGNORED, reduction="none")
    return (losses * weights.detach()).sum()


def hits(scores: Tensor, labels: Tensor) -> Tensor:
    """How many labels have the highest score of their row, alone or with others: int64 ().

    In bfloat16 two scores are often equal: where the label shares the highest score, it counts, though
    `argmax` might return the other.

    Args:
        scores, labels: as in `cross_entropy_sum`.
    """
    scores = scores.detach()
    own = scores.gather(1, labels.clamp(min=0)[:, None])[:, 0]
    return ((own >= scores.amax(1)) & (labels != IGNORED)).sum()
