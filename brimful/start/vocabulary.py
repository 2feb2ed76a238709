"""A smaller vocabulary for a trained encoder."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch

from brimful.model.drawing import undrawn
from brimful.model.encoder import Encoder
from brimful.model.heads import ClassifierHead, MaskedLMHead

K = TypeVar("K", bound=MaskedLMHead | ClassifierHead | None)


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
