"""What the JSON files of a sentence-transformers folder say: its modules, and the settings of the first."""

import json
from pathlib import Path
from typing import Any

from brimful.base.errors import BrimfulError
from brimful.base.storage import read_object

MODULES = "modules.json"
SETTINGS = "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"
_KINDS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")


def read_modules(folder: Path) -> list[tuple[str, str]]:
    """The class and the subfolder of each module; empty without modules.json.

    Raises:
        BrimfulError: the file cannot be read, or is no such list.
    """
    path = folder / MODULES
    if not path.is_file():
        return []
    try:
        values = json.loads(path.read_text(encoding="utf-8-sig"))
        return [(str(each["type"]).rpartition(".")[2], str(each["path"])) for each in values]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BrimfulError(f"{path} is not a list of modules with type and path") from error


def find_settings_file(folder: Path) -> Path | None:
    """The file with the settings of the Transformer in a folder. Of several the first one counts."""
    files = [folder / f"sentence_{kind}_config.json" for kind in _KINDS]
    return next((file for file in files if file.is_file()), None)


def read_transformer_settings(folder: Path) -> dict[str, Any]:
    """Its settings; empty without the file.

    Raises:
        BrimfulError: the file cannot be read or is not a JSON object.
    """
    file = find_settings_file(folder)
    return {} if file is None else read_object(file, marked=True)


def lowers_text(folder: Path) -> bool:
    """Whether a folder of sentence-transformers, or the Transformer in one, lowers texts."""
    for place, inside in ((folder, ""), (folder.parent, folder.name)):
        try:
            kinds = {path.rstrip("/"): kind for kind, path in read_modules(place)}
        except BrimfulError:
            if not inside:
                raise
            continue
        if kinds.get(inside) == "Transformer":
            return bool(read_transformer_settings(folder).get("do_lower_case"))
    return False
