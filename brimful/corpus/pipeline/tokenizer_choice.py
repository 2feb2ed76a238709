"""Choose the tokenizer of a corpus folder: load it, or train it on a sample of the clean text; freeze it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from brimful.base.console import say
from brimful.base.errors import BrimfulError
from brimful.base.types import Values
from brimful.corpus.pipeline.config import PrepareConfig
from brimful.corpus.pipeline.duplicate_decisions import read_decisions
from brimful.corpus.pipeline.inventory import Inventory
from brimful.corpus.pipeline.text_parts import TextPart
from brimful.corpus.text.special_ids import mask_id, name_like
from brimful.corpus.text.tokenizer import load, save, tokenizer_hash
from brimful.corpus.text.tokenizer_pipelines import with_nfkc
from brimful.corpus.tokenize.vocabulary_training import smallest_vocabulary, train

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SAMPLE_CHARACTERS = 50_000_000
LARGEST_VOCABULARY = 1_000_000
CALIBRATION_PARTS, CALIBRATION_DOCUMENTS = 8, 20
TRAIN = "train:"
CHARACTERS = "characters"
ACCENTS = {"Latin": ("é", "e"), "Greek": ("ά", "α"), "Cyrillic": ("ё", "е")}
"""A letter with an accent and without one, by script."""


def is_trained(config: PrepareConfig) -> bool:
    """Whether the tokenizer is trained on the text, rather than loaded."""
    return config.tokenizer == CHARACTERS or config.tokenizer.startswith(TRAIN)


def tokenizer_settings(config: PrepareConfig) -> Values:
    """Return the settings that a folder keeps with its tokenizer.

    If the tokenizer is loaded, the settings hold a hash of its content.

    Raises:
        BrimfulError: SIZE is not a number in range, or a tokenizer cannot be loaded.
    """
    if not is_trained(config):
        return {"content": tokenizer_hash(_load_tokenizer(config)), "nfkc": config.clean.nfkc}
    size = config.tokenizer.removeprefix(TRAIN)
    smallest = smallest_vocabulary(config.model)
    if size == CHARACTERS and (config.model, config.han) != ("wordpiece", "characters"):
        raise BrimfulError("--tokenizer characters has no pieces: leave out --model and --han")
    if size != CHARACTERS and not (size.isdecimal() and smallest <= int(size) <= LARGEST_VOCABULARY):
        raise BrimfulError(
            f"tokenizer={config.tokenizer}: write train:SIZE, as in train:8000, with a SIZE from {smallest}"
            f" to {LARGEST_VOCABULARY:,}"
        )
    return {
        "tokenizer": config.tokenizer,
        "model": config.model,
        "lowercase": config.lowercase,
        "han": config.han,
        "nfkc": config.clean.nfkc,
        "max_documents": config.max_documents,
    }


def _load_tokenizer(config: PrepareConfig) -> "Tokenizer":
    if not Path(config.tokenizer).exists():
        raise BrimfulError(
            f"no tokenizer at {config.tokenizer}: name one that there is, a folder or a file, or give"
            f" {TRAIN}SIZE, as in {TRAIN}8000"
        )
    tokenizer = load(config.tokenizer)
    mask_id(tokenizer)  # pretraining needs a mask token: this refuses a tokenizer without one
    if config.clean.nfkc:
        tokenizer = name_like(with_nfkc(tokenizer), tokenizer)
    return tokenizer


def require_unchanged(inventory: Inventory, settings: Values) -> None:
    """Refuse another tokenizer: every model trained from the folder depends on it.

    Raises:
        BrimfulError: the tokenizer was made with other settings, is missing, or was replaced.
    """
    if inventory.tokenizer is None:
        return
    frozen_settings = inventory.tokenizer["settings"]
    frozen = f"the tokenizer of {inventory.directory} is frozen"
    remedy = "add --retrain-tokenizer to make a new one, or prepare into a new folder"
    if frozen_settings.get("content") != settings.get("content"):
        raise BrimfulError(f"{frozen}, and this is another one; {remedy}")
    for key in sorted(frozen_settings.keys() | settings.keys()):
        before, now = frozen_settings.get(key), settings.get(key)
        if before != now:
            raise BrimfulError(
                f"{frozen}: it was made with {key}={before!r}, not {now!r}; give that again, {remedy}"
            )
    file = inventory.directory / "tokenizer.json"
    if not file.is_file():
        raise BrimfulError(f"{file} is missing; put it back (models made from it have it too), or {remedy}")
    if tokenizer_hash(load(file)) != inventory.tokenizer["hash"]:
        raise BrimfulError(
            f"{file} is not the tokenizer that made the shards; put that one back, or {remedy}"
        )


def freeze(inventory: Inventory, config: PrepareConfig, settings: Values, texts: Sequence[Values]) -> None:
    """Make the tokenizer, save it, and record it in the inventory.

    Args:
        settings: the result of `tokenizer_settings`, for the inventory.
        texts: the commit records of the text parts.
    """
    if is_trained(config):
        characters = sum(text["characters"] for text in texts)
        say(f"training a tokenizer on {min(characters, SAMPLE_CHARACTERS):,} of {characters:,} characters")
        by_character = config.tokenizer == CHARACTERS
        size = LARGEST_VOCABULARY if by_character else int(config.tokenizer.removeprefix(TRAIN))
        tokenizer = train(
            _sample(inventory.directory, texts),
            size,
            model="characters" if by_character else config.model,
            lowercase=config.lowercase,
            han=config.han,
            nfkc=config.clean.nfkc,
        )
        reached = tokenizer.get_vocab_size()
        if reached < size and not by_character:
            say(f"the text gave a vocabulary of {reached:,}, not {size:,}: nothing else occurs often enough")
    else:
        tokenizer = _load_tokenizer(config)
    save(tokenizer, inventory.directory)
    inventory.tokenizer = {"settings": settings, "hash": tokenizer_hash(tokenizer)}
    inventory.save()


def describe_tokenizer(directory: Path, config: PrepareConfig) -> Values:
    """Return what was decided about the tokenizer of a folder, as JSON.

    Returns:
        `model` (WordPiece, BPE ...) and `vocabulary_size`; whether it was `trained` on the text; `lowercase`:
        whether case is ignored; `accents`: the scripts that lose their accents; `han`: the tokens of Chinese
        in a trained tokenizer.
    """
    tokenizer = load(directory / "tokenizer.json")

    def are_same(first: str, second: str) -> bool:
        # No option tells this of a loaded tokenizer, so its normaliser is tried.
        normalizer = tokenizer.normalizer
        return normalizer is not None and normalizer.normalize_str(first) == normalizer.normalize_str(second)

    return {
        "model": type(tokenizer.model).__name__,
        "vocabulary_size": tokenizer.get_vocab_size(),
        "trained": is_trained(config),
        "lowercase": are_same("A", "a"),
        "accents": [script for script, letters in ACCENTS.items() if are_same(*letters)],
        "han": config.han if is_trained(config) else None,
    }


def _sample(directory: Path, texts: Sequence[Values]) -> Iterator[str]:
    """Yield texts with about SAMPLE_CHARACTERS in all, without duplicates.

    A text is chosen by its key, which is a hash, up to a bound. So the choice depends on the text only.

    Args:
        texts: the commit records of the text parts.
    """
    characters = sum(text["characters"] for text in texts)
    # Keys are uniform in 64 bits, so the bound admits the wanted share of them.
    bound = min(2**64 - 1, 2**64 * SAMPLE_CHARACTERS // max(characters, 1))
    for text in texts:
        part = TextPart(directory, text["name"])
        chosen = (part.documents["key"] <= np.uint64(bound)) & (read_decisions(directory, part.name) == 0)
        for _, content, _, _ in part.rows(0, chosen):
            yield content


def tokens_per_estimate(directory: Path, names: Sequence[str]) -> float:
    """Return real tokens per token that `compute_keys` estimated, over the first texts of a few parts."""
    tokenizer = load(directory / "tokenizer.json")
    tokens = estimated = 0
    # Parts are in the order of the inputs, so a few at equal distances represent the whole generation.
    for name in names[:: max(1, len(names) // CALIBRATION_PARTS)]:
        part = TextPart(directory, name)
        first_documents = part.documents[:CALIBRATION_DOCUMENTS]
        for _, text, _, _ in part.rows(0, np.ones(len(first_documents), bool)):
            tokens += len(tokenizer.encode(text, add_special_tokens=False).ids)
        estimated += int(first_documents["tokens"].sum())
    return tokens / estimated if estimated and tokens else 1.0
