"""sentence-transformers' `do_lower_case`: a text is lowered before the tokenizer sees it.

The lowering is Python's `str.lower`, here as the first steps of the tokenizer's normalizer, so that offsets
still point into the text as it was.
"""

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_MOST_IGNORED = 4
_CASED = r"[\p{Cased}&&\P{Case_Ignorable}]"
_BEFORE = "|".join(_CASED + rf"\p{{Case_Ignorable}}{{{count}}}" for count in range(_MOST_IGNORED))
_FINAL_SIGMA = rf"(?<={_BEFORE})Σ(?!\p{{Case_Ignorable}}*{_CASED})"
"""A capital sigma at the end of a word, which `str.lower` tells from others."""


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
