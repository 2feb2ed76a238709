"""The pieces and merges in a tokenizer.json, and a tokenizer.json with fewer pieces under new ids."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

State = dict[str, Any]
"""A tokenizer.json."""


def read_pieces(model: State) -> dict[str, int]:
    """Return the pieces and their ids. A Unigram model may have equal pieces: the last one counts."""
    if model["type"] == "Unigram":
        return {piece: index for index, (piece, _) in enumerate(model["vocab"])}
    return model["vocab"]


def split_merge(merge: str | list[str]) -> tuple[str, str]:
    """Return the two sides of a merge; older files write them with a space between."""
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return first, second


def join_merge(sides: tuple[str, str], prefix: str) -> str:
    """Return what a merge makes of its two sides: play + ##ing -> playing."""
    return sides[0] + sides[1].removeprefix(prefix)


def order_ids(model: State, ids: set[int]) -> list[int]:
    """Sort ids as `tokenizers` numbers their pieces: the model's own first, then added tokens."""
    is_list = model["type"] == "Unigram"
    own_ids = set(range(len(model["vocab"])) if is_list else model["vocab"].values())
    return sorted(ids & own_ids) + sorted(ids - own_ids)


def renumber(tokenizer: "Tokenizer", state: State, new_ids: dict[int, int]) -> State:
    """Return the tokenizer.json with fewer pieces, under new ids in every place.

    Args:
        new_ids: the new id of each old id that stays, in the order of the new ids.
    """
    ids = {token.content: index for index, token in tokenizer.get_added_tokens_decoder().items()}
    added = [{**token, "id": new_ids[ids[token["content"]]]} for token in state["added_tokens"]]
    padding = state["padding"]
    if padding:
        padding = {**padding, "pad_id": new_ids[padding["pad_id"]]}
    return {
        **state,
        "model": _renumber_model(state["model"], new_ids),
        "added_tokens": added,
        "padding": padding,
        "post_processor": _renumber_processor(state["post_processor"], new_ids),
    }


def _renumber_model(model: State, new_ids: dict[int, int]) -> State:
    model = dict(model)
    pieces = model["vocab"]
    if model["type"] == "Unigram":
        model["vocab"] = [pieces[old] for old in new_ids if old < len(pieces)]
        if model["unk_id"] is not None:
            model["unk_id"] = new_ids[model["unk_id"]]
        return model
    names = {index: piece for piece, index in pieces.items()}
    vocabulary = {names[old]: new for old, new in new_ids.items() if old in names}
    model["vocab"] = vocabulary
    if model["type"] == "BPE":
        prefix = model["continuing_subword_prefix"] or ""
        merges = []
        for sides in map(split_merge, model["merges"]):
            if vocabulary.keys() >= {*sides, join_merge(sides, prefix)}:
                merges.append(sides)
        model["merges"] = merges
    return model


def _renumber_processor(processor: State | None, new_ids: dict[int, int]) -> State | None:
    if not processor:
        return processor
    processor = dict(processor)
    if processor["type"] == "Sequence":
        processor["processors"] = [_renumber_processor(step, new_ids) for step in processor["processors"]]
    elif processor["type"] == "TemplateProcessing":
        tokens = {}
        for name, token in processor["special_tokens"].items():
            tokens[name] = {**token, "ids": [new_ids[index] for index in token["ids"]]}
        processor["special_tokens"] = tokens
    else:  # BertProcessing and RobertaProcessing have (token, id) of two tokens
        for name in processor.keys() & {"sep", "cls"}:
            token, index = processor[name]
            processor[name] = [token, new_ids[index]]
    return processor
