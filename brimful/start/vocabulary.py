"""A larger or a smaller vocabulary for a trained encoder.

`keep_rows` drops pieces, and changes nothing else. `extend_vocabulary` adds some:

The embedding of a new piece is the mean over the old pieces that spell it, or over all pieces if no old
pieces can spell it (Hewitt 2021, "Initializing New Word Embeddings for Pretrained Language Models"). The
decoder is tied to the embeddings. With the mean of the biases too, the logit of a new piece would be the mean
of the logits of its old pieces; by Jensen's inequality its probability would be at most their mean. But
hundreds of new pieces may share an old one. So the bias is lowered by the logarithm of how often the most
shared of its old pieces is used. Then all new pieces together never outweigh the old ones, and no old loss
rises by more than log 2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from brimful.model.drawing import undrawn
from brimful.model.encoder import Encoder
from brimful.model.heads import ClassifierHead, MaskedLMHead

H = TypeVar("H", bound=MaskedLMHead | None)
K = TypeVar("K", bound=MaskedLMHead | ClassifierHead | None)


def extend_vocabulary(
    encoder: Encoder, head: H, spelled: Mapping[int, Sequence[int]], known: Sequence[int]
) -> tuple[Encoder, H]:
    """Copies with rows for new pieces. The scores of old ids do not change.

    Args:
        encoder: new pieces take spare rows of its vocabulary first, which published ones often have.
        head: the encoder's own, or None.
        spelled: from `spellings`: the id of each new piece, and the old ids that spell it.
        known: the old ids.
    """
    size = max(encoder.config.vocabulary_size, max(spelled) + 1)
    with undrawn():
        larger = Encoder(replace(encoder.config, vocabulary_size=size)).to(encoder.embedding.weight)
    larger.tokenizer, larger.pooling = encoder.tokenizer, encoder.pooling
    means = _Means(spelled, known)
    rows = torch.cat((means.extend(encoder.word_embeddings, size), larger.embedding.weight[size:])).detach()
    larger.load_state_dict(encoder.state_dict() | {"embedding.weight": rows})
    if head is None:
        return larger.train(encoder.training), head
    with undrawn():
        grown = type(head)(larger).to(head.bias)
    bias = means.extend(head.bias, size).detach()
    bias[list(spelled)] -= means.lent().to(bias).clamp(min=1).log()
    grown.load_state_dict(head.state_dict() | {"bias": bias})
    return larger.train(encoder.training), grown.train(head.training)


def keep_rows(encoder: Encoder, head: K, kept: Sequence[int] | np.ndarray) -> tuple[Encoder, K]:
    """Copies with the rows of some pieces alone. Hidden states and scores of these do not change.

    The copy has no tokenizer, since the encoder's has the old ids.

    Args:
        head: the encoder's own, or None.
        kept: the old id of each new one, int64; the padding token is among them, and no id comes twice.

    Raises:
        ValueError: `kept` lacks the padding token, or has an id twice, or one that is none.
    """
    config, ids = encoder.config, torch.as_tensor(np.asarray(kept, dtype=np.int64))
    if (ids < 0).any() or (ids >= config.vocabulary_size).any() or (torch.bincount(ids) > 1).any():
        raise ValueError(f"kept must be different ids of {config.vocabulary_size} pieces")
    pad = (ids == config.pad_id).nonzero().flatten().tolist()
    if not pad:
        raise ValueError(f"kept lacks the padding token, {config.pad_id}")
    with undrawn():
        smaller = Encoder(replace(config, vocabulary_size=len(ids), pad_id=pad[0]))
        smaller.to(encoder.embedding.weight)
    smaller.pooling = encoder.pooling
    ids = ids.to(encoder.device)
    with torch.no_grad():
        rows = torch.cat((encoder.word_embeddings[ids], smaller.embedding.weight[len(ids) :]))
        changed = {"embedding.weight": rows}
        if encoder.position is not None:  # in RoBERTa, the padding token says where positions begin
            begin = smaller.config.position_offset
            used = encoder.position.weight[config.position_offset :]
            changed["position.weight"] = torch.cat((used.new_zeros(begin, used.shape[1]), used))
        smaller.load_state_dict(encoder.state_dict() | changed)
    smaller.train(encoder.training)
    if not isinstance(head, MaskedLMHead):
        return smaller, head
    with undrawn():
        narrowed = type(head)(smaller).to(head.bias)
    narrowed.load_state_dict(head.state_dict() | {"bias": head.bias.detach()[ids]})
    return smaller, narrowed.train(head.training)


class _Means:
    """Means over the old pieces that spell new ones; over all known pieces where no old pieces do."""

    def __init__(self, spelled: Mapping[int, Sequence[int]], known: Sequence[int]) -> None:
        self.parts = {index: list(ids) for index, ids in spelled.items()}
        self.known = list(known)

    def extend(self, values: Tensor, size: int) -> Tensor:
        """values (vocabulary, ...) -> (size, ...)."""
        grown = values.new_zeros(size, *values.shape[1:])
        grown[: len(values)] = values
        everything = values[self.known].mean(0)
        for index, ids in self.parts.items():
            grown[index] = values[ids].mean(0) if ids else everything
        return grown

    def lent(self) -> Tensor:
        """float64 (new,): how often the most shared old piece of each is used. One of n old pieces counts
        1/n."""
        lent = torch.zeros(max(self.known) + 1, dtype=torch.float64)
        lent[self.known] = sum(not ids for ids in self.parts.values()) / len(self.known)
        for ids in self.parts.values():
            for part in ids:
                lent[part] += 1 / len(ids)
        most = lent.max()
        return torch.stack([lent[ids].max() if ids else most for ids in self.parts.values()])
