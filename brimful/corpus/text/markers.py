"""A model's own markers (cls, sep, mask, pad, unk, bos, eos) are plain text where a text spells them.

This is the one departure from AutoTokenizer, which by default hands a text `[SEP]` on as the separator.
Added tokens that are no markers, special or not, are found as AutoTokenizer finds them.

`tokenizers` passes over all special added tokens if it is told to (`encode_special_tokens` here,
`split_special_tokens` in transformers), and tokenizer.json has no word for that. So in a tokenizer from here
the markers are its only special tokens, and `save` writes `split_special_tokens`. The pieces of a vocabulary
may spell a marker too: those of SentencePiece do (`<s>`). There, a last pre-tokenizer cuts the marker in two.
"""

import json
import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def plain_markers(tokenizer: "Tokenizer", markers: Collection[str], *, splits: bool) -> "Tokenizer":
    """The tokenizer, changed so that no text gets a marker; or a changed copy.

    Args:
        markers: their names.
        splits: whether all special added tokens are plain text, as the tokenizer's folder says.
    """
    names = set(markers)
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    if pieces := [name for name in sorted(names - known) if tokenizer.token_to_id(name) is not None]:
        tokenizer.add_special_tokens(pieces)  # as AutoTokenizer does with the tokens that `save` names
    added = tokenizer.get_added_tokens_decoder().values()
    special = {token.content: token.content in names or (splits and token.special) for token in added}
    if any(token.special != special[token.content] for token in added):
        tokenizer = _with_special(tokenizer, special)
    tokenizer.encode_special_tokens = True
    if reachable := [name for name in sorted(names) if _is_reachable(tokenizer, name)]:
        tokenizer.pre_tokenizer = _with_cut(tokenizer.pre_tokenizer, reachable)
    return tokenizer


def is_cut_of_markers(part: dict[str, Any]) -> bool:
    """Whether a part of a pre-tokenizer cuts markers and changes nothing in other words."""
    regex = part.get("pattern", {}).get("Regex", "")
    return (
        part["type"] == "Split"
        and part["behavior"] == "MergedWithNext"
        and not part["invert"]
        and regex.startswith("(?<=")
        and not re.search(r"\s", regex)
    )


def _with_special(tokenizer: "Tokenizer", special: dict[str, bool]) -> "Tokenizer":
    from tokenizers import Tokenizer

    state = json.loads(tokenizer.to_str())
    for token in state["added_tokens"]:
        token["special"] = special[token["content"]]
    return Tokenizer.from_str(json.dumps(state))


def _is_reachable(tokenizer: "Tokenizer", name: str) -> bool:
    """Whether the model makes a marker of letters that spell it."""
    index = tokenizer.model.token_to_id(name)
    if index is None or len(name) < 2 or re.search(r"\s", name):
        return False
    normalizer, pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
    for text in (name, f"a{name}", f"{name}a", f"{name} {name}", f"a\t{name}"):
        normal = normalizer.normalize_str(text) if normalizer else text
        parts = [part for part, _ in pre_tokenizer.pre_tokenize_str(normal)] if pre_tokenizer else [normal]
        # An unknown word may be a marker too, the unknown token: that is no spelling.
        if any(token.id == index for p in parts if name in p for token in tokenizer.model.tokenize(p)):
            return True
    return False


def _with_cut(pre_tokenizer: Any, names: Iterable[str]) -> Any:
    """The pre-tokenizer, and after it a cut between the first two characters of each name."""
    from tokenizers import Regex, pre_tokenizers

    cuts = [
        rf"(?<={_escaped(name[0])}){_escaped(name[1])}(?={''.join(map(_escaped, name[2:]))})"
        for name in names
    ]
    cut = pre_tokenizers.Split(Regex("|".join(cuts)), "merged_with_next")
    steps = [] if pre_tokenizer is None else [pre_tokenizer]
    return pre_tokenizers.Sequence([*steps, cut])


def _escaped(character: str) -> str:
    return character if character.isalnum() else f"\\x{{{ord(character):x}}}"
