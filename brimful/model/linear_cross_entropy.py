"""Cross-entropy of a linear layer's scores, such as those of a vocabulary."""

import torch.nn.functional as F
from torch import Tensor

from brimful.model.cross_entropy import count_hits, cross_entropy_sum
from brimful.model.fast_forms import find_fast_form


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the sum of weights * cross-entropy(hidden @ weight.T + bias, labels).

    Matrix products have the dtype of `hidden`, or autocast's. Softmax and sums are in float32 or wider.
    Gradients are too until they are multiplied by the incoming gradient, so that loss scaling does not change
    their rounding.

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
