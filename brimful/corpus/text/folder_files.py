"""The files of a folder that decide its tokenizer."""

from itertools import chain
from pathlib import Path
from typing import Any

from brimful.base.storage import read_object

TOKENIZER = "tokenizer.json"
CONFIG = "tokenizer_config.json"
MAP = "special_tokens_map.json"
ADDED = "added_tokens.json"
VOCABULARIES = (TOKENIZER, "vocab.txt", "vocab.json")
"""The first of these files that exists holds the vocabulary."""
_MODEL_FILES = ("config.json", "bert_config.json")
"""The configuration of a model; Google's folders use the second name."""


def read_values(folder: Path, name: str) -> dict[str, Any]:
    """Return the JSON object in a file of a folder, which may have a byte order mark; empty without the file.

    Raises:
        BrimfulError: the file cannot be read or holds something else.
    """
    return read_object(folder / name, marked=True) if (folder / name).is_file() else {}


def find_vocabulary_file(folder: Path) -> Path | None:
    """Return the file that holds the vocabulary of a folder's tokenizer; None if there is no tokenizer."""
    return next(iter(_existing_files(folder, VOCABULARIES, "*.model")), None)


def find_tokenizer_files(folder: Path) -> list[Path]:
    """Return all files of a folder that decide its tokenizer, except the configuration of the model."""
    names = (*VOCABULARIES, "merges.txt", CONFIG, MAP, ADDED)
    return _existing_files(folder, names, "*.model", "tokenizer.*.json")


def _existing_files(folder: Path, names: tuple[str, ...], *patterns: str) -> list[Path]:
    """Return the files of these names in their order, then, sorted, the files that a pattern matches."""
    files = [folder / name for name in names]
    files += sorted(chain.from_iterable(map(folder.glob, patterns)))
    return [file for file in files if file.is_file()]


def read_model_values(folder: Path) -> dict[str, Any]:
    """Return the configuration of a folder's model; an empty dictionary without one.

    Raises:
        BrimfulError: the file cannot be read.
    """
    for name in _MODEL_FILES:
        if (folder / name).is_file():
            return read_values(folder, name)
    return {}
