"""What a tokenizer.json holds: pieces, merges, every place with ids. The same with fewer pieces."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brimful.base.errors import BrimfulError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

State = dict[str, Any]
"""A tokenizer.json."""


MAX_IDS = 10_000_000
"""The ids that a vocabulary may have: `tokenizers` counts through them all to write it, gaps included."""


def require_ids(ids: Iterable[int], file: Path) -> None:
    """Refuse an id that no vocabulary has.

    Raises:
        BrimfulError: there is one.
    """
    if (highest := max(ids, default=0)) >= MAX_IDS:
        raise BrimfulError(
            f"{file} has ids up to {highest:,}; known are those below {MAX_IDS:,}: put the right file back"
        )


def pieces_of(model: State) -> dict[str, int]:
    """Pieces and their ids. Of equal pieces in a Unigram model the last one counts."""
    if model["type"] == "Unigram":
        return {piece: index for index, (piece, _) in enumerate(model["vocab"])}
    return model["vocab"]


def ids_around(tokenizer: "Tokenizer") -> set[int]:
    """The ids of the special tokens that the post-processor puts around texts and pairs."""
    from tokenizers import Encoding

    processor = tokenizer.post_processor
    if processor is None:
        return set()
    return {*processor.process(Encoding()).ids, *processor.process(Encoding(), Encoding()).ids}


def merge_pair(merge: str | list[str]) -> tuple[str, str]:
    """The two sides of a merge; older files write them with a space between."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right


def merged(pair: tuple[str, str], prefix: str) -> str:
    """What a merge makes of its two sides: play + ##ing -> playing."""
    return pair[0] + pair[1].removeprefix(prefix)


def in_order(model: State, ids: set[int]) -> list[int]:
    """The ids as `tokenizers` numbers what they stand for: added tokens after the model's own pieces."""
    own = range(len(model["vocab"])) if model["type"] == "Unigram" else set(model["vocab"].values())
    return sorted(ids, key=lambda index: (index not in own, index))


def renumbered(tokenizer: "Tokenizer", state: State, new: dict[int, int]) -> State:
    """The tokenizer.json with the pieces in `new` only: old ids and new ones, in the new order."""
    model = dict(state["model"])
    if model["type"] == "Unigram":
        model["vocab"] = [model["vocab"][old] for old in new if old < len(model["vocab"])]
        if model["unk_id"] is not None:
            model["unk_id"] = new[model["unk_id"]]
    else:
        names = {index: piece for piece, index in model["vocab"].items()}
        vocabulary = {names[old]: index for old, index in new.items() if old in names}
        model["vocab"] = vocabulary
        if model["type"] == "BPE":
            prefix = model["continuing_subword_prefix"] or ""
            model["merges"] = [
                pair
                for pair in map(merge_pair, model["merges"])
                if vocabulary.keys() >= {*pair, merged(pair, prefix)}
            ]
    ids = {token.content: index for index, token in tokenizer.get_added_tokens_decoder().items()}
    added = [{**token, "id": new[ids[token["content"]]]} for token in state["added_tokens"]]
    padding = state["padding"] and {**state["padding"], "pad_id": new[state["padding"]["pad_id"]]}
    processor = _renumbered_processor(state["post_processor"], new)
    return {**state, "model": model, "added_tokens": added, "padding": padding, "post_processor": processor}


def _renumbered_processor(processor: State | None, new: dict[int, int]) -> State | None:
    if not processor:
        return processor
    if processor["type"] == "Sequence":
        steps = [_renumbered_processor(step, new) for step in processor["processors"]]
        return {**processor, "processors": steps}
    if processor["type"] == "TemplateProcessing":
        tokens = {
            name: {**token, "ids": [new[index] for index in token["ids"]]}
            for name, token in processor["special_tokens"].items()
        }
        return {**processor, "special_tokens": tokens}
    ends = {name: processor[name] for name in ("sep", "cls") if name in processor}
    return {**processor, **{name: [token, new[index]] for name, (token, index) in ends.items()}}
