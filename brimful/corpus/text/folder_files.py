"""The files of a model's folder, also of sentence-transformers, that decide how texts are read."""

import json
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from brimful.base.errors import BrimfulError
from brimful.base.storage import read_object
from brimful.base.types import Values

TOKENIZER = "tokenizer.json"
CONFIG = "tokenizer_config.json"
MAP = "special_tokens_map.json"
ADDED = "added_tokens.json"
VOCABULARIES = (TOKENIZER, "vocab.txt", "vocab.json")
"""The first of these files that exists holds the vocabulary."""
_MODEL_FILES = ("config.json", "bert_config.json")
"""The configuration of a model; Google's folders use the second name."""
MODULES = "modules.json"
SETTINGS = "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"
MAX_IDS = 10_000_000
"""Ids must be smaller: to write a vocabulary, `tokenizers` counts up to the largest, gaps included."""
_MODEL_KINDS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")


def read_values(folder: Path, name: str) -> Values:
    """Return the JSON object in a file of a folder, which may have a byte order mark; empty without the file.

    Raises:
        BrimfulError: the file cannot be read or holds something else.
    """
    return read_object(folder / name) if (folder / name).is_file() else {}


def find_vocabulary_file(folder: Path) -> Path | None:
    """Return the file that holds the vocabulary of a folder's tokenizer; None if there is no tokenizer."""
    return next(iter(_existing_files(folder, VOCABULARIES, "*.model")), None)


def find_tokenizer_files(folder: Path) -> list[Path]:
    """Return all files of a folder that decide its tokenizer, except the configuration of the model."""
    names = (*VOCABULARIES, "merges.txt", CONFIG, MAP, ADDED)
    return _existing_files(folder, names, "*.model", "tokenizer.*.json")


def _existing_files(folder: Path, names: tuple[str, ...], *patterns: str) -> list[Path]:
    """Return the files of these names in their order, then, sorted, the files that a pattern matches."""
    files = list(map(folder.joinpath, names))
    files += sorted(chain.from_iterable(map(folder.glob, patterns)))
    return list(filter(Path.is_file, files))


def read_model_values(folder: Path) -> Values:
    """Return the configuration of a folder's model; an empty dictionary without one.

    Raises:
        BrimfulError: the file cannot be read.
    """
    for name in _MODEL_FILES:
        if (folder / name).is_file():
            return read_values(folder, name)
    return {}


def normalizer_steps(state: Values) -> list[Values]:
    """Return the steps of the normalizer in a tokenizer.json, which may be one step or none."""
    normalizer = state["normalizer"] or {"normalizers": []}
    return normalizer.get("normalizers", [normalizer])


def require_ids(ids: Iterable[int], file: Path) -> None:
    """Refuse an id that is too large for any vocabulary.

    Raises:
        BrimfulError: an id is `MAX_IDS` or more.
    """
    highest = max(ids, default=0)
    if highest >= MAX_IDS:
        raise BrimfulError(
            f"{file} has ids up to {highest:,}, but they must be below {MAX_IDS:,}: put the right file back"
        )


def read_modules(folder: Path) -> list[tuple[str, str]]:
    """Return the class and the subfolder of each module; an empty list without modules.json.

    Raises:
        BrimfulError: the file cannot be read, or is not a list of modules.
    """
    path = folder / MODULES
    if not path.is_file():
        return []
    modules = []
    try:
        for module in json.loads(path.read_text(encoding="utf-8-sig")):
            # The type is a path of Python, as in sentence_transformers.models.Pooling.
            modules.append((str(module["type"]).rpartition(".")[2], str(module["path"])))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BrimfulError(f"{path} is not a list of modules with type and path") from error
    return modules


def find_settings_file(folder: Path) -> Path | None:
    """Return the file with the settings of the Transformer in a folder; the first one of several."""
    for kind in _MODEL_KINDS:
        file = folder / f"sentence_{kind}_config.json"
        if file.is_file():
            return file
    return None


def read_transformer_settings(folder: Path) -> Values:
    """Return the settings of the Transformer in a folder; an empty dictionary without their file.

    Raises:
        BrimfulError: the file cannot be read or is not a JSON object.
    """
    file = find_settings_file(folder)
    return {} if file is None else read_object(file)


def lowers_text(folder: Path) -> bool:
    """Whether a folder of sentence-transformers, or the Transformer in one, lowers texts."""
    # modules.json is in the folder itself, or one level up if the folder holds the Transformer.
    for modules_folder, subfolder in ((folder, ""), (folder.parent, folder.name)):
        try:
            modules = read_modules(modules_folder)
        except BrimfulError:
            if modules_folder == folder:
                raise
            continue  # a file of that name above the folder may be anything
        if ("Transformer", subfolder) in [(kind, path.rstrip("/")) for kind, path in modules]:
            return bool(read_transformer_settings(folder).get("do_lower_case"))
    return False
