"""Texts -> vectors: tokenise, pack by length, run the encoder, answer in the order of the input."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from brimful.data.batch import PackedBatch, pack
from brimful.errors import BrimfulError

if TYPE_CHECKING:
    from brimful.nn.encoder import Encoder

TOKENS = 4096
"""Tokens in a packed batch: enough to keep the matrix products busy, little enough for the cache."""


def tokenize(encoder: "Encoder", texts: Sequence[str]) -> list[np.ndarray]:
    """Token ids of each text, int32, special tokens included, at most `config.max_length`."""
    tokenizer = encoder.tokenizer
    if tokenizer is None:
        raise BrimfulError("the encoder has no tokenizer: load it from a folder with tokenizer.json")
    if isinstance(texts, str):
        raise BrimfulError("texts must be a list of strings, not a string")
    before = tokenizer.truncation
    tokenizer.enable_truncation(encoder.config.max_length)
    try:
        encodings = tokenizer.encode_batch_fast(list(texts))
    finally:
        tokenizer.no_truncation()
        if before is not None:
            tokenizer.enable_truncation(**before)
    # A text of no tokens (an empty one, where the tokenizer adds no special ones) is a single pad token;
    # padding that the tokenizer adds is cut off.
    ids = (
        [token for token, real in zip(e.ids, e.attention_mask, strict=True) if real]
        or [encoder.config.pad_id]
        for e in encodings
    )
    return [np.array(sequence, dtype=np.int32) for sequence in ids]


def _batches(sequences: list[np.ndarray], max_length: int, pad: int) -> Iterator[PackedBatch]:
    order = sorted(range(len(sequences)), key=lambda index: (-len(sequences[index]), index))
    while order:
        room, count = TOKENS, 0
        while count < len(order) and (not count or len(sequences[order[count]]) <= room):
            room -= len(sequences[order[count]])
            count += 1
        chosen, order = order[:count], order[count:]
        yield pack(
            [sequences[index] for index in chosen],
            max_length=max_length,
            pad=pad,
            sequence_index=np.array(chosen),
        )


def _run(encoder: "Encoder", texts: Sequence[str]) -> Iterator[tuple[int, torch.Tensor]]:
    """The index of each text and its hidden states (tokens, hidden), longest text first."""
    was_training = encoder.training
    encoder.eval()
    sequences = tokenize(encoder, texts)
    try:
        with torch.inference_mode():
            for batch in _batches(sequences, encoder.config.max_length, encoder.config.pad_id):
                hidden = encoder(batch.to(encoder.device)).float()
                assert batch.sequence_index is not None
                yield from zip(batch.sequence_index.tolist(), hidden.split(batch.lengths), strict=True)
    finally:
        encoder.train(was_training)


def encode(encoder: "Encoder", texts: Sequence[str]) -> list[np.ndarray]:
    """See `Encoder.encode`."""
    found = {index: hidden.cpu().numpy().copy() for index, hidden in _run(encoder, texts)}
    return [found[index] for index in range(len(texts))]


def embed(encoder: "Encoder", texts: Sequence[str], pooling: str) -> np.ndarray:
    """See `Encoder.embed`."""
    if pooling not in ("mean", "first"):
        raise BrimfulError(f"unknown pooling {pooling!r}: known: first, mean")
    vectors = np.zeros((len(texts), encoder.config.hidden_size), dtype=np.float32)
    for index, hidden in _run(encoder, texts):
        vectors[index] = (hidden.mean(0) if pooling == "mean" else hidden[0]).cpu().numpy()
    return vectors
