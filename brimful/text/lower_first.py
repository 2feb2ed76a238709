"""sentence-transformers' `do_lower_case`: a text is lowered before the tokenizer sees it.

The lowering is Python's `str.lower`, here as the first steps of the tokenizer's normalizer, so that offsets
still point into the text as it was.
"""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brimful.errors import BrimfulError
from brimful.text.folder_settings import read_values

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MODULES = "modules.json"
_SETTINGS = re.compile(r"sentence_[a-z-]+_config\.json")
_MOST_IGNORED = 4
_CASED = r"[\p{Cased}&&\P{Case_Ignorable}]"
_BEFORE = "|".join(_CASED + rf"\p{{Case_Ignorable}}{{{count}}}" for count in range(_MOST_IGNORED))
_FINAL_SIGMA = rf"(?<={_BEFORE})Σ(?!\p{{Case_Ignorable}}*{_CASED})"
"""A capital sigma at the end of a word, which `str.lower` tells from others."""


def lowers_text(folder: Path) -> bool:
    """Whether a folder of sentence-transformers, or the Transformer in one, lowers texts."""
    places = [(folder / MODULES, ""), (folder.parent / MODULES, folder.name)]
    for path, inside in places:
        if not path.is_file():
            continue
        try:
            modules = json.loads(path.read_text(encoding="utf-8-sig"))
            kinds = {str(each["path"]).rstrip("/"): str(each["type"]) for each in modules}
        except (OSError, ValueError, KeyError, TypeError) as error:
            if not inside:
                raise BrimfulError(f"{path} is not a list of modules with type and path") from error
            continue
        if kinds.get(inside, "").rpartition(".")[2] == "Transformer":
            files = [
                each for each in sorted(folder.glob("sentence_*.json")) if _SETTINGS.fullmatch(each.name)
            ]
            return any(bool(read_values(file).get("do_lower_case")) for file in files)
    return False


def lower_first(tokenizer: "Tokenizer") -> tuple["Tokenizer", set[str]]:
    """The tokenizer with lowering before all else, and the added tokens that no lowered text spells."""
    from tokenizers import Regex, Tokenizer, normalizers

    before = tokenizer.normalizer
    lowering = [normalizers.Replace(Regex(_FINAL_SIGMA), "ς"), normalizers.Lowercase()]
    state = json.loads(tokenizer.to_str())
    steps = _steps(state["normalizer"])
    mine = [json.loads(each.__getstate__()) for each in lowering]
    if steps[: len(mine)] == mine:
        return tokenizer, set()

    def pattern(token: dict[str, Any], content: str) -> str:
        return before.normalize_str(content) if before and token["normalized"] else content

    never = set()
    for token in state["added_tokens"]:
        if pattern(token, token["content"]) != pattern(token, token["content"].lower()):
            never.add(token["content"])
        token["normalized"] = True  # the text is lowered in the normalizer
    state["normalizer"] = {"type": "Sequence", "normalizers": [*mine, *steps]}
    return Tokenizer.from_str(json.dumps(state)), never


def _steps(normalizer: dict[str, Any] | None) -> list[dict[str, Any]]:
    return [] if normalizer is None else normalizer.get("normalizers", [normalizer])
