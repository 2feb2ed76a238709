"""Encoders so thin that a test can train them, with a tokenizer that `prepare` made."""

from pathlib import Path
from typing import Any

import torch

from brimful.corpus.text.tokenizer import load
from brimful.model.encoder import Encoder
from brimful.model.shape import EncoderConfig


def thin_encoder(tokenizer_folder: Path, seed: int = 0, **changes: Any) -> Encoder:
    """Two thin layers with random weights, of at most 64 tokens."""
    tokenizer = load(tokenizer_folder)
    torch.manual_seed(seed)
    shape = {"hidden_size": 32, "layers": 2, "heads": 2, "intermediate_size": 64, "max_length": 64}
    shape |= {"dropout": 0.1, "vocabulary_size": tokenizer.get_vocab_size()}
    encoder = Encoder(EncoderConfig(**(shape | changes)))
    encoder.tokenizer = tokenizer
    return encoder
