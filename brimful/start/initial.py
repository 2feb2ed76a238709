"""The model that pretraining starts from: new random weights, or a trained model."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer

from brimful.base.errors import BrimfulError
from brimful.corpus.text.tokenizer import load
from brimful.data.config import SequencesConfig
from brimful.hf.folders import load_pretrained
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead, PretrainingHead
from brimful.model.shape import EncoderConfig


@dataclass(frozen=True)
class Initial:
    """The modules that a run trains.

    Attributes:
        encoder: an encoder with the tokenizer of the data.
        head: a PretrainingHead where the run learns pairs.
        warnings: lines for the user about the model.
    """

    encoder: Encoder
    head: MaskedLMHead
    warnings: tuple[str, ...] = ()


def new_model(shape: EncoderConfig, tokenizer: Tokenizer, sequences: SequencesConfig, seed: int) -> Initial:
    """Make a model of new weights, which follow from the seed."""
    torch.manual_seed(seed)
    encoder = Encoder(shape)
    encoder.tokenizer = tokenizer
    return Initial(encoder, choose_head(sequences)(encoder))


def trained_model(
    folder: Path, tokenizer: Tokenizer, sequences: SequencesConfig, max_length: int, seed: int
) -> Initial:
    """Load the model of a folder, with the tokenizer of the data. A head that the folder lacks is drawn anew.

    Args:
        folder: a Hugging Face folder with its tokenizer.
        tokenizer: the tokenizer of the data, which has the folder's vocabulary.
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
    # The ids must be the same. A tokenizer that cuts text differently only gets a warning.
    try:
        old = load(folder)
    except BrimfulError as error:
        raise BrimfulError(f"the model of {folder} needs its tokenizer beside it: {error}") from error
    _require_same_vocabulary(old, tokenizer, folder)
    warnings = []
    parts = find_other_parts(old, tokenizer)
    if parts:
        warnings.append(
            f"the tokenizer of the data has another {' and '.join(parts)} than the tokenizer of {folder}:"
            " the model was trained on text that was cut differently"
        )
    encoder.tokenizer = tokenizer
    torch.manual_seed(seed)  # for the parts of the head that the folder lacks
    new_head = choose_head(sequences)(encoder)
    if head is None:
        warnings.append(f"{folder} has no masked-LM head: a new one is drawn")
    elif new_head.load_state_dict(head.state_dict(), strict=False).missing_keys:
        warnings.append(f"{folder} has no head for pairs: a new one is drawn")
    return Initial(encoder, new_head, tuple(warnings))


def choose_head(sequences: SequencesConfig) -> type[MaskedLMHead]:
    """Choose the class of the head of a run that learns from such sequences."""
    return PretrainingHead if sequences.paired else MaskedLMHead


def find_other_parts(old: Tokenizer, new: Tokenizer) -> list[str]:
    """Return the parts in which two tokenizers differ, vocabularies and special tokens aside."""
    first, second = json.loads(old.to_str()), json.loads(new.to_str())
    for key in ("vocab", "merges"):
        first["model"].pop(key, None)
        second["model"].pop(key, None)
    return [part for part in ("normalizer", "pre_tokenizer", "model") if first[part] != second[part]]


def _require_same_vocabulary(old: Tokenizer, new: Tokenizer, folder: Path) -> None:
    ids, data_ids = old.get_vocab(), new.get_vocab()
    # Pieces of only one vocabulary, and pieces with two ids.
    different = len({piece for piece, _ in ids.items() ^ data_ids.items()})
    if different:
        raise BrimfulError(
            f"the data was tokenised with another vocabulary than the model of {folder} ({different:,} of"
            f" {len(data_ids):,} pieces are others, or have another id): prepare it with --tokenizer"
            f" {folder}"
        )
