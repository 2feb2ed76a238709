"""Sampled softmax: a micro-batch's predictions are scored against a part of the vocabulary.

The sampled vocabulary has all labels of the micro-batch, the pieces with the highest biases, and pieces drawn
from the rest, without replacement and each as likely as another. A drawn piece stands for rest / drawn
pieces, and the logarithm of this ratio is added to its score. So the mean over draws of the sum of
exponentials is the sum over the vocabulary: importance sampling (Bengio & Senécal 2008; Jean et al. 2015, "On
Using Very Large Target Vocabulary for Neural Machine Translation", section 3.1, where one sampled vocabulary
serves many predictions too). The logarithm of the sum, which is in the loss, is a little too low on average,
since it is concave. The highest biases belong to the most frequent pieces, whose exponentials are the
largest: scored always, they add no variance.

The products of the head take sampled / all pieces of their flops. Sampling, copying the embeddings of the
sampled pieces, and adding their gradients are linear in the vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brimful.base.types import IGNORED

FREQUENT = 1 / 4
"""The fraction of the sampled vocabulary that has the highest biases."""


@dataclass(frozen=True)
class SampledVocabulary:
    """The pieces that a micro-batch's predictions are scored against.

    Attributes:
        pieces: int64 (C,), each at most once.
        shift: float32 (C,), added to their scores.
        labels: int64 (M,), as columns of the scores; -100 where there is no prediction.
    """

    pieces: Tensor
    shift: Tensor
    labels: Tensor

    def of(self, matrix: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Matrix (V, d) and bias (V,) of all scores -> (C, d) and (C,) of the scores of these pieces."""
        wide = torch.promote_types(bias.dtype, self.shift.dtype)
        return matrix.index_select(0, self.pieces), bias.index_select(0, self.pieces).to(wide) + self.shift


@torch.no_grad()
def sample_vocabulary(labels: Tensor, bias: Tensor, count: int) -> SampledVocabulary:
    """Sample, with random numbers of torch's generator, and without waiting for a device.

    The pieces with the highest biases are drawn like others where labels leave them no room.

    Args:
        labels: int64 (M,), -100 where there is no prediction.
        bias: (V,), of the scores.
        count: C, at least M and less than V.
    """
    used, vocabulary = labels != IGNORED, len(bias)
    keys = torch.rand(vocabulary + 1, device=labels.device)  # the last one is for what is no prediction
    with_frequent = keys.index_fill(0, bias.topk(int(count * FREQUENT)).indices, 1)
    for each in (keys, with_frequent):
        each.index_fill_(0, torch.where(used, labels, vocabulary), 2)
    keys = torch.where((with_frequent[:vocabulary] >= 1).sum() < count, with_frequent, keys)
    highest, pieces = keys[:vocabulary].topk(count, sorted=False)
    given = highest >= 1
    fixed = given.sum()
    ratio = (vocabulary - fixed) / (count - fixed)
    places = torch.full_like(keys, count, dtype=torch.int64)  # a label outside the vocabulary stays outside
    places[pieces] = torch.arange(count, device=labels.device)
    own = places[torch.where(used, labels, vocabulary)]
    return SampledVocabulary(pieces, torch.where(given, 0, ratio.log()), torch.where(used, own, IGNORED))
