"""The tokenizer of a corpus folder: given, or trained on a sample of the clean text; then frozen."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from brimful.base.console import say
from brimful.base.errors import BrimfulError
from brimful.base.system import peak_memory
from brimful.corpus.pipeline.duplicate_decisions import read_decisions
from brimful.corpus.pipeline.inventory import Inventory
from brimful.corpus.pipeline.text import TextPart
from brimful.corpus.text.special_ids import mask_id, named_as
from brimful.corpus.text.tokenizer import load, save, tokenizer_hash
from brimful.corpus.tokenize.extension import MOST_CHARACTERS, extend, require_extensible
from brimful.corpus.tokenize.vocabulary_training import Han, Model, smallest_vocabulary, train, with_nfkc

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SAMPLE_CHARACTERS = 50_000_000
LARGEST_VOCABULARY = 1_000_000
CALIBRATION_PARTS, CALIBRATION_DOCUMENTS = 8, 20
TRAIN = "train:"
ACCENTS = {"Latin": ("é", "e"), "Greek": ("ά", "α"), "Cyrillic": ("ё", "е")}
"""A letter with an accent and without one, by script."""


@dataclass(frozen=True, kw_only=True)
class TokenizerChoice:
    """The settings that decide the tokenizer of a folder."""

    tokenizer: str
    model: Model
    lowercase: bool
    han: Han
    nfkc: bool
    max_documents: int | None
    extend: int

    @property
    def trained(self) -> bool:
        """Whether it is trained on the text, and not given."""
        return self.tokenizer.startswith(TRAIN)

    def check(self) -> dict[str, Any]:
        """The settings that a folder keeps with its tokenizer; of a given one, also a hash of its content.

        Raises:
            BrimfulError: SIZE is not a number in range, or a given tokenizer cannot be loaded or extended.
        """
        if not self.trained:
            given = self._given()
            settings = {"content": tokenizer_hash(given), "nfkc": self.nfkc}
            if not self.extend:
                return settings
            require_extensible(given)
            return settings | {"extend": self.extend, "max_documents": self.max_documents}
        if self.extend:
            raise BrimfulError(
                f"extend adds pieces to a given tokenizer, not to tokenizer={self.tokenizer}: leave it out"
            )
        size = self.tokenizer.removeprefix(TRAIN)
        smallest = smallest_vocabulary(self.model)
        if not size.isdecimal() or not smallest <= int(size) <= LARGEST_VOCABULARY:
            raise BrimfulError(
                f"tokenizer={self.tokenizer}: write train:SIZE, as in train:8000, "
                f"with a SIZE from {smallest} to {LARGEST_VOCABULARY:,}"
            )
        settings = asdict(self)
        del settings["extend"]
        return settings

    def _given(self) -> "Tokenizer":
        if not Path(self.tokenizer).exists():
            raise BrimfulError(
                f"no tokenizer at {self.tokenizer}: name one that there is, a folder or a file, or give"
                f" {TRAIN}SIZE, as in {TRAIN}8000"
            )
        given = load(self.tokenizer)
        mask_id(given)  # pretraining needs one
        return named_as(with_nfkc(given), given) if self.nfkc else given

    def make(self, texts: Iterator[str]) -> "Tokenizer":
        """Train the tokenizer on these texts; or load it, and extend it with pieces of these texts."""
        if self.trained:
            size = int(self.tokenizer.removeprefix(TRAIN))
            made = train(
                texts, size, model=self.model, lowercase=self.lowercase, han=self.han, nfkc=self.nfkc
            )
        elif self.extend:
            given = self._given()
            size = given.get_vocab_size() + self.extend
            made = extend(given, texts, self.extend)
        else:
            return self._given()
        if (reached := made.get_vocab_size()) < size:
            say(f"the text gave a vocabulary of {reached:,}, not {size:,}: nothing else occurs often enough")
        return made


def require_unchanged(inventory: Inventory, settings: dict[str, Any]) -> None:
    """Refuse another tokenizer: every model trained from the folder depends on it.

    Raises:
        BrimfulError: the tokenizer was made with other settings, is missing, or was replaced.
    """
    if inventory.tokenizer is None:
        return
    known = inventory.tokenizer["settings"]
    remedy = "add --retrain-tokenizer to make a new one, or prepare into a new folder"
    if ("content" in known) != ("content" in settings) or known.get("content") != settings.get("content"):
        raise BrimfulError(
            f"the tokenizer of {inventory.directory} is frozen, and this is another one; {remedy}"
        )
    for key in sorted(known.keys() | settings.keys()):
        if known.get(key) != settings.get(key):
            raise BrimfulError(
                f"the tokenizer of {inventory.directory} is frozen: it was made with "
                f"{key}={known.get(key)!r}, not {settings.get(key)!r}; give that again, {remedy}"
            )
    file = inventory.directory / "tokenizer.json"
    if not file.is_file():
        raise BrimfulError(f"{file} is missing; put it back (models made from it have it too), or {remedy}")
    if tokenizer_hash(load(file)) != inventory.tokenizer["hash"]:
        raise BrimfulError(
            f"{file} is not the tokenizer that made the shards; put that one back, or {remedy}"
        )


def freeze(
    inventory: Inventory,
    choice: TokenizerChoice,
    settings: dict[str, Any],
    texts: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Make the tokenizer, save it, and record it in the inventory.

    Args:
        texts: the commit records of the text parts.

    Returns:
        characters, seconds and memory that training or extending took; empty for a given tokenizer.
        `inventory.tokenizer` gets `settings` and `hash`.
    """
    started = time.monotonic()
    names = [text["name"] for text in texts]
    characters = sum(text["characters"] for text in texts)
    reads = choice.trained or choice.extend
    wanted = SAMPLE_CHARACTERS if choice.trained else MOST_CHARACTERS
    if reads:
        how = "training" if choice.trained else "extending"
        say(f"{how} a tokenizer on {min(characters, wanted):,} of {characters:,} characters")
    tokenizer = choice.make(_sample(inventory.directory, names, characters, wanted))
    save(tokenizer, inventory.directory)
    inventory.tokenizer = {"settings": settings, "hash": tokenizer_hash(tokenizer)}
    inventory.save()
    if not reads:
        return {}
    return {
        "characters": min(characters, wanted),
        "seconds": round(time.monotonic() - started, 2),
        "peak_memory_mb": peak_memory_mb("self"),
    }


def choices_of(directory: Path, choice: TokenizerChoice) -> dict[str, Any]:
    """What was decided about the tokenizer of a folder, as JSON.

    Returns:
        `model` (WordPiece, BPE ...) and `vocabulary_size`; whether it was `trained` on the text; `lowercase`:
        whether case is ignored; `accents`: the scripts that lose theirs; `han`: the tokens of Chinese, of a
        trained tokenizer.
    """
    tokenizer = load(directory / "tokenizer.json")

    def same(first: str, second: str) -> bool:
        normalizer = tokenizer.normalizer
        return normalizer is not None and normalizer.normalize_str(first) == normalizer.normalize_str(second)

    return {
        "model": type(tokenizer.model).__name__,
        "vocabulary_size": tokenizer.get_vocab_size(),
        "trained": choice.trained,
        "lowercase": same("A", "a"),
        "accents": [script for script, (accented, letter) in ACCENTS.items() if same(accented, letter)],
        "han": choice.han if choice.trained else None,
    }


def _sample(directory: Path, names: Sequence[str], characters: int, wanted: int) -> Iterator[str]:
    """Kept texts whose key is below a bound: the choice depends on each text alone."""
    bound = min(2**64 - 1, 2**64 * wanted // max(characters, 1))
    for name in names:
        part = TextPart(directory, name)
        chosen = (part.documents["key"] <= np.uint64(bound)) & (read_decisions(directory, name) == 0)
        for _, text, _, _ in part.rows(0, chosen):
            yield text


def tokens_a_guess(directory: Path, names: Sequence[str]) -> float:
    """Real tokens per token that `compute_keys` estimated, over the first texts of a few parts."""
    tokenizer = load(directory / "tokenizer.json")
    tokens = guessed = 0
    for name in names[:: max(1, len(names) // CALIBRATION_PARTS)]:
        part = TextPart(directory, name)
        few = np.ones(min(CALIBRATION_DOCUMENTS, len(part.documents)), bool)
        tokens += sum(
            len(tokenizer.encode(row[1], add_special_tokens=False).ids) for row in part.rows(0, few)
        )
        guessed += int(part.documents["tokens"][: len(few)].sum())
    return tokens / guessed if guessed and tokens else 1.0


def peak_memory_mb(of: Literal["self", "children"]) -> int:
    """See `brimful.base.system.peak_memory`."""
    return peak_memory(of) >> 20
