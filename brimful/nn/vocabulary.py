"""A larger vocabulary for a trained encoder.

The embedding of a new piece is the mean over the old pieces that spell it, and so is its bias in the decoder,
which is tied to the embeddings. So its logit is the mean of their logits, wherever it is read: by Jensen's
inequality it takes at most as much from the softmax as they have on average, and needs no tuning. A piece
that the old vocabulary cannot spell is the mean over all of it (Hewitt 2021, "Initializing New Word
Embeddings for Pretrained Language Models").
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from brimful.nn.encoder import Encoder
from brimful.nn.heads import MaskedLMHead

H = TypeVar("H", bound=MaskedLMHead | None)


def extend_vocabulary(
    encoder: Encoder, head: H, spelled: Mapping[int, Sequence[int]], known: Sequence[int]
) -> tuple[Encoder, H]:
    """Copies with rows for new pieces; what old ids score is unchanged.

    Args:
        encoder: its vocabulary may have spare rows already, which published ones often do; new pieces take
            those first.
        head: the encoder's own, or None.
        spelled: `spellings`: the id of each new piece, and the old ids that spell it.
        known: the old ids.
    """
    size = max(encoder.config.vocabulary_size, max(spelled) + 1)
    larger = Encoder(replace(encoder.config, vocabulary_size=size)).to(encoder.embedding.weight)
    larger.tokenizer = encoder.tokenizer
    weights = encoder.state_dict()
    rows = _with_means(encoder.word_embeddings.detach(), size, spelled, known)
    padding = larger.embedding.weight.detach()[size:]
    larger.load_state_dict(weights | {"embedding.weight": torch.cat((rows, padding))})
    if head is None:
        return larger.train(encoder.training), head
    grown = type(head)(larger).to(head.bias)
    bias = _with_means(head.bias.detach(), size, spelled, known)
    grown.load_state_dict(head.state_dict() | {"bias": bias})
    return larger.train(encoder.training), grown.train(head.training)


def _with_means(
    values: Tensor, size: int, spelled: Mapping[int, Sequence[int]], known: Sequence[int]
) -> Tensor:
    """values (vocabulary, ...) -> (size, ...)."""
    everything = values[torch.tensor(known, device=values.device)].mean(0)
    grown = everything.expand(size, *values.shape[1:]).clone()
    grown[: len(values)] = values
    for index, parts in spelled.items():
        grown[index] = values[list(parts)].mean(0) if parts else everything
    return grown
