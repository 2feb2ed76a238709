"""Read the JSON files of a sentence-transformers folder: its modules, and the settings of the first one."""

import json
from pathlib import Path
from typing import Any

from brimful.base.errors import BrimfulError
from brimful.base.storage import read_object

MODULES = "modules.json"
SETTINGS = "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"
_MODEL_KINDS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")


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


def read_transformer_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of the Transformer in a folder; an empty dictionary without their file.

    Raises:
        BrimfulError: the file cannot be read or is not a JSON object.
    """
    file = find_settings_file(folder)
    return {} if file is None else read_object(file, marked=True)


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
