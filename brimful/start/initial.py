"""What pretraining starts from: new weights, random or from the data, or a trained model."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

import brimful.kernels.training_forms  # noqa: F401  (fast forms register themselves)
from brimful.base.errors import BrimfulError
from brimful.corpus.frequencies import piece_frequencies
from brimful.corpus.shards import Corpus
from brimful.corpus.text.tokenizer import load
from brimful.data.config import SequencesConfig
from brimful.hf.folders import load_pretrained
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead, PretrainingHead
from brimful.model.shape import EncoderConfig
from brimful.start.config import InitialConfig
from brimful.start.initial_weights import know_the_vocabulary, look_at_neighbours
from brimful.start.neighbourhoods import piece_vectors


@dataclass(frozen=True)
class Initial:
    """The modules that a run trains.

    Attributes:
        encoder: with the tokenizer of the data.
        head: a PretrainingHead where the run learns pairs.
        warnings: what a person should know about the model.
    """

    encoder: Encoder
    head: MaskedLMHead
    warnings: tuple[str, ...] = ()


def new_model(shape: EncoderConfig, tokenizer: Tokenizer, sequences: SequencesConfig, seed: int) -> Initial:
    """New weights, which follow from the seed."""
    torch.manual_seed(seed)
    encoder = Encoder(shape)
    encoder.tokenizer = tokenizer
    return Initial(encoder, head_kind(sequences)(encoder))


Pieces = tuple[np.ndarray, np.ndarray]
"""The vectors and frequencies of the vocabulary; see `know_the_vocabulary`."""


def count_pieces(corpora: Mapping[Corpus, float], width: int, seed: int) -> Pieces:
    """What the training documents say of the vocabulary.

    Args:
        corpora: the training documents, and the proportion of each corpus.
        width: of the embeddings.
        seed: see `piece_vectors`.
    """
    return piece_vectors(corpora, width, seed), piece_frequencies(corpora)


def start_from_data(initial: Initial, config: InitialConfig, pieces: Pieces | None) -> None:
    """Give a new model the weights that a resolved `config` asks for.

    Args:
        pieces: given where the vocabulary starts from the data.
    """
    if pieces is not None:
        know_the_vocabulary(initial.encoder, initial.head, *pieces)
    if config.attention == "neighbours":
        look_at_neighbours(initial.encoder)


def trained_model(
    folder: Path, tokenizer: Tokenizer, sequences: SequencesConfig, max_length: int, seed: int
) -> Initial:
    """The model of a folder, with the tokenizer of the data. A head that the folder lacks is drawn anew.

    Args:
        folder: a Hugging Face folder with its tokenizer.
        tokenizer: has the folder's vocabulary.
        max_length: the longest sequence of the run, in tokens.

    Raises:
        BrimfulError: the folder has no model or no tokenizer, another vocabulary than the data, fewer
            positions than `max_length`, or no token types where `sequences` needs them.
    """
    encoder, head = load_pretrained(folder)
    if max_length > encoder.config.max_length:
        raise BrimfulError(
            f"sequences of {max_length} tokens do not fit the model of {folder}, which has"
            f" {encoder.config.max_length} positions: lower packing.max_length, or the max_length of a phase"
        )
    if sequences.paired and not encoder.config.reads_segments:
        raise BrimfulError(
            f"sequences.kind={sequences.kind} needs token types, and the model of {folder} has none:"
            " leave sequences.kind out"
        )
    old = _tokenizer_of(folder)
    _require_same_vocabulary(old, tokenizer, folder)
    warnings = []
    if parts := other_parts(old, tokenizer):
        warnings.append(
            f"the tokenizer of the data has another {' and '.join(parts)} than the tokenizer of {folder}:"
            " the model was trained on text that was cut differently"
        )
    encoder.tokenizer = tokenizer
    torch.manual_seed(seed)
    started = head_kind(sequences)(encoder)
    found = {} if head is None else head.state_dict()
    missing = {name.partition(".")[0] for name in started.load_state_dict(found, strict=False).missing_keys}
    if head is None:
        warnings.append(f"{folder} has no masked-LM head: a new one is drawn")
    elif missing:
        warnings.append(f"{folder} has no head for pairs: a new one is drawn")
    return Initial(encoder, started, tuple(warnings))


def head_kind(sequences: SequencesConfig) -> type[MaskedLMHead]:
    """The head of a run that learns from such sequences."""
    return PretrainingHead if sequences.paired else MaskedLMHead


def other_parts(old: Tokenizer, new: Tokenizer) -> list[str]:
    """Which parts of two tokenizers differ, vocabularies and special tokens aside."""
    one, other = (json.loads(tokenizer.to_str()) for tokenizer in (old, new))
    for state in (one, other):
        state["model"] = {k: v for k, v in state["model"].items() if k not in ("vocab", "merges")}
    return [part for part in ("normalizer", "pre_tokenizer", "model") if one[part] != other[part]]


def _require_same_vocabulary(old: Tokenizer, new: Tokenizer, folder: Path) -> None:
    ids, ids_of_data = old.get_vocab(), new.get_vocab()
    others = sum(ids_of_data.get(piece) != index for piece, index in ids.items())
    others += len(ids_of_data.keys() - ids.keys())
    if others:
        raise BrimfulError(
            f"the data was tokenised with another vocabulary than that of {folder} ({others:,} of"
            f" {len(ids_of_data):,} pieces are others, or have another id): prepare it with --tokenizer"
            f" {folder}"
        )


def _tokenizer_of(folder: Path) -> Tokenizer:
    try:
        return load(folder)
    except BrimfulError as error:
        raise BrimfulError(f"the model of {folder} needs its tokenizer beside it: {error}") from error
