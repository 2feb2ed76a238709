"""The files of a folder that decide its tokenizer."""

from pathlib import Path
from typing import Any

from brimful.base.storage import read_object

TOKENIZER = "tokenizer.json"
CONFIG = "tokenizer_config.json"
MAP = "special_tokens_map.json"
ADDED = "added_tokens.json"
VOCABULARIES = (TOKENIZER, "vocab.txt", "vocab.json")
"""The first of them that is there holds the vocabulary."""
_MODEL_FILES = ("config.json", "bert_config.json")
"""The configuration of a model; the second name is that of Google's folders."""


def read_values(folder: Path, name: str) -> dict[str, Any]:
    """The JSON object in a file of a folder, with or without a byte order mark; empty without the file.

    Raises:
        BrimfulError: the file cannot be read or holds something else.
    """
    return read_object(folder / name, marked=True) if (folder / name).is_file() else {}


def find_vocabulary_file(folder: Path) -> Path | None:
    """The file that holds the vocabulary of a folder's tokenizer; None if there is no tokenizer."""
    files = [folder / name for name in VOCABULARIES]
    files += sorted(folder.glob("*.model"))
    return next((file for file in files if file.is_file()), None)


def find_tokenizer_files(folder: Path) -> list[Path]:
    """All files of a folder that decide its tokenizer, without that of its model."""
    names = (*VOCABULARIES, "merges.txt", CONFIG, MAP, ADDED)
    files = [folder / name for name in names]
    files += sorted([*folder.glob("*.model"), *folder.glob("tokenizer.*.json")])
    return [file for file in files if file.is_file()]


def read_model_values(folder: Path) -> dict[str, Any]:
    """The configuration of a folder's model; empty without one.

    Raises:
        BrimfulError: it cannot be read.
    """
    name = next((name for name in _MODEL_FILES if (folder / name).is_file()), "")
    return read_values(folder, name) if name else {}
