"""A model's own markers (cls, sep, mask, pad, unk, bos, eos) are plain text where a text spells them.

This is the one departure from AutoTokenizer, which by default takes a `[SEP]` in a text as the separator.
Other added tokens, special or not, are found as AutoTokenizer finds them.

`tokenizers` can pass over all special added tokens at once (`encode_special_tokens` here,
`split_special_tokens` in transformers), but tokenizer.json has no key for that. So the markers become the
only special tokens of a tokenizer, and `save` writes `split_special_tokens`. The pieces of a vocabulary may
spell a marker too: SentencePiece has pieces such as `<s>`. There, a final pre-tokenizer cuts the marker in
two.
"""

import json
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from brimful.base.types import Values
from brimful.corpus.text.special_ids import marker_names

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def plain_markers(tokenizer: "Tokenizer", markers: Collection[str], *, splits: bool) -> "Tokenizer":
    """Return the tokenizer or a copy, changed so that no text gets a marker.

    Args:
        markers: the names of the markers.
        splits: whether all special added tokens are plain text, as the tokenizer's folder says.
    """
    from tokenizers import Tokenizer

    markers = sorted(set(markers))
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    # AutoTokenizer adds the tokens that `save` names, too.
    pieces = [name for name in markers if name not in added and tokenizer.token_to_id(name) is not None]
    tokenizer.add_special_tokens(pieces)
    before = marker_names(tokenizer)
    special = set(markers)
    if splits:
        special |= before
    if before != special & added.union(pieces):
        state = json.loads(tokenizer.to_str())
        for token in state["added_tokens"]:
            token["special"] = token["content"] in special
        tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.encode_special_tokens = True
    reachable = [name for name in markers if _is_reachable(tokenizer, name)]
    if reachable:
        tokenizer.pre_tokenizer = _with_cut(tokenizer.pre_tokenizer, reachable)
    return tokenizer


def ids_around(tokenizer: "Tokenizer") -> set[int]:
    """Return the ids of the special tokens that the post-processor puts around texts and pairs."""
    from tokenizers import Encoding

    processor = tokenizer.post_processor
    if processor is None:
        return set()
    return {*processor.process(Encoding()).ids, *processor.process(Encoding(), Encoding()).ids}


def is_cut_of_markers(part: Values) -> bool:
    """Whether a part of a pre-tokenizer cuts markers and changes nothing in other words."""
    regex = part.get("pattern", {}).get("Regex", "")
    return (
        part["type"] == "Split"
        and part["behavior"] == "MergedWithNext"
        and not part["invert"]
        and regex.startswith("(?<=")
        and not re.search(r"\s", regex)
    )


def _is_reachable(tokenizer: "Tokenizer", name: str) -> bool:
    """Whether the model turns letters that spell a marker into the marker."""
    index = tokenizer.model.token_to_id(name)
    if index is None or len(name) < 2 or re.search(r"\s", name):
        return False
    normalizer, pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
    for text in (name, f"a{name}", f"{name}a", f"{name} {name}", f"a\t{name}"):
        if normalizer:
            text = normalizer.normalize_str(text)
        parts = [text]
        if pre_tokenizer:
            parts = [part for part, _ in pre_tokenizer.pre_tokenize_str(text)]
        for part in parts:
            # A part without the name may be an unknown word, and the unknown token is a marker too.
            if name in part and index in [token.id for token in tokenizer.model.tokenize(part)]:
                return True
    return False


def _with_cut(pre_tokenizer: Any, names: list[str]) -> Any:
    """Return the pre-tokenizer, and after it a cut between the first two characters of each name."""
    from tokenizers import Regex, pre_tokenizers

    cuts = []
    for name in names:
        first, second, *others = map(_escape, name)
        cuts.append(f"(?<={first}){second}(?={''.join(others)})")
    cut = pre_tokenizers.Split(Regex("|".join(cuts)), "merged_with_next")
    return pre_tokenizers.Sequence([cut] if pre_tokenizer is None else [pre_tokenizer, cut])


def _escape(character: str) -> str:
    return character if character.isalnum() else f"\\x{{{ord(character):x}}}"
