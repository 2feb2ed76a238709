"""Texts -> vectors: tokenise, pack, run the encoder, answer in the order of the input."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from brimful.data.examples import encode_texts
from brimful.errors import BrimfulError

if TYPE_CHECKING:
    from brimful.nn.encoder import Encoder


def _listed(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str):
        raise BrimfulError("texts must be a list of strings, not a string")
    return list(texts)


def _run(encoder: "Encoder", texts: Sequence[str]) -> Iterator[tuple[int, torch.Tensor]]:
    """The index of each text and its hidden states (tokens, hidden), in the order of packing."""
    if encoder.tokenizer is None:
        raise BrimfulError("the encoder has no tokenizer: load it from a folder with tokenizer.json")
    config = encoder.config
    examples = encode_texts(encoder.tokenizer, texts, max_length=config.max_length, pad=config.pad_id)
    was_training = encoder.training
    encoder.eval()
    try:
        with torch.inference_mode():
            for batch in examples.batches():
                hidden = encoder(batch.to(encoder.device))[: batch.real_tokens].float()
                parts = hidden.split(batch.lengths[: batch.real_sequences])
                assert batch.sequence_index is not None
                yield from zip(batch.sequence_index.tolist(), parts, strict=True)
    finally:
        encoder.train(was_training)


def encode(encoder: "Encoder", texts: Iterable[str]) -> list[np.ndarray]:
    """See `Encoder.encode`."""
    texts = _listed(texts)
    found = {index: hidden.cpu().numpy().copy() for index, hidden in _run(encoder, texts)}
    return [found[index] for index in range(len(texts))]


def embed(encoder: "Encoder", texts: Iterable[str], pooling: str) -> np.ndarray:
    """See `Encoder.embed`."""
    if pooling not in ("mean", "first"):
        raise BrimfulError(f"unknown pooling {pooling!r}: known: first, mean")
    texts = _listed(texts)
    vectors = np.zeros((len(texts), encoder.config.hidden_size), dtype=np.float32)
    for index, hidden in _run(encoder, texts):
        vectors[index] = (hidden.mean(0) if pooling == "mean" else hidden[0]).cpu().numpy()
    return vectors
