"""sentence-transformers' `do_lower_case`: a text is lowered before the tokenizer sees it.

sentence-transformers calls Python's `str.lower`. Here the first steps of the tokenizer's normalizer do the
same, so that offsets still point into the text as it was.
"""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_MAX_IGNORED_CHARACTERS = 3
_CASED = r"[\p{Cased}&&\P{Case_Ignorable}]"
# A lookbehind needs alternatives of fixed lengths: one for each number of ignored characters.
_BEFORE = "|".join(_CASED + rf"\p{{Case_Ignorable}}{{{n}}}" for n in range(_MAX_IGNORED_CHARACTERS + 1))
_FINAL_SIGMA = rf"(?<={_BEFORE})Σ(?!\p{{Case_Ignorable}}*{_CASED})"
"""A capital sigma at the end of a word, which `str.lower` treats differently from others."""


def lower_first(tokenizer: "Tokenizer") -> tuple["Tokenizer", set[str]]:
    """Return a tokenizer that lowers texts first, and the added tokens that no lowered text can spell."""
    from tokenizers import Regex, Tokenizer, normalizers

    state = json.loads(tokenizer.to_str())
    steps: list[dict] = []
    if state["normalizer"] is not None:
        steps = state["normalizer"].get("normalizers", [state["normalizer"]])
    lowering = [normalizers.Replace(Regex(_FINAL_SIGMA), "ς"), normalizers.Lowercase()]
    lowering_steps = [json.loads(step.__getstate__()) for step in lowering]
    if steps[:2] == lowering_steps:
        return tokenizer, set()
    unspelled = set()
    for token in state["added_tokens"]:
        content, lowered = token["content"], token["content"].lower()
        if tokenizer.normalizer and token["normalized"]:
            content, lowered = map(tokenizer.normalizer.normalize_str, (content, lowered))
        if content != lowered:
            unspelled.add(token["content"])
        # The text is lowered in the normalizer, so tokens must be found behind it.
        token["normalized"] = True
    state["normalizer"] = {"type": "Sequence", "normalizers": [*lowering_steps, *steps]}
    return Tokenizer.from_str(json.dumps(state)), unspelled
