"""Cross-entropy of scores or of a linear layer's scores, and how many labels are predicted right."""

import torch.nn.functional as F
from torch import Tensor

from brimful.base.types import IGNORED
from brimful.model.fast_forms import find_fast_form
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


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the sum of weights * cross-entropy(hidden @ weight.T + bias, labels).

    Matrix products have the dtype of `hidden`, or autocast's. Softmax and sums are in float32 or wider, as
    are gradients until they are multiplied by the incoming gradient, so loss scaling does not change their
    rounding.

    Args:
        hidden: (M, d).
        weight: (V, d).
        bias: (V,), or None.
        labels: int64 (M,), -100 where there is no prediction; on the CPU at most 63 such rows are computed.
        weights: float (M,), the factor of each prediction's loss; 1 by default. With 1 / (predictions of its
            sequence) the result is the sum of the sequences' means (Krell et al. 2021, section 3.2.3). They
            get no gradient.

    Returns:
        The sum, differentiable once with respect to the first three arguments, and `count_hits`, which
        ignores `weights`: both () in float32, or float64 if `hidden` is.

    Raises:
        BrimfulError: a label outside the vocabulary (on the CPU; elsewhere the sum is infinite). In the plain
            form F.cross_entropy raises IndexError.
    """
    fast = find_fast_form("linear_cross_entropy", hidden, weight, labels)
    if fast is not None:
        return fast(hidden, weight, bias, labels, weights)
    scores = F.linear(hidden, weight, bias)  # (M, V)
    total = cross_entropy_sum(scores, labels, weights)
    return total, count_hits(scores, labels).to(total.dtype)
