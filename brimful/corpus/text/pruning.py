"""Prune a tokenizer's vocabulary to the pieces that a corpus uses and the pieces that other texts need.

The encodings of the corpus stay the same except for the new ids (pruning_rules.py says why). Other texts get
smaller pieces, and unknown tokens for characters of scripts that the corpus lacks.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from brimful.base.errors import BrimfulError
from brimful.corpus.text.batches import batch_by_characters
from brimful.corpus.text.characters import code_points
from brimful.corpus.text.pruning_rules import State, UnknownWords, join_merge, select_pieces, split_merge
from brimful.corpus.text.special_ids import name_like, unknown_id

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Encodings take about 200 bytes a token while a batch is read.
_BATCH_CHARACTERS = 1 << 18
_ENCODING_CHARACTERS = 64  # an encoding takes the memory of so many characters, even if its text is empty
# Of the first batches, one text in this many is encoded before and after, and compared.
_CHECKED_STRIDE = 20
_MAX_CHECKED_TEXTS = 4096


@dataclass(frozen=True)
class Statistics:
    """Sizes before and after pruning."""

    pieces_before: int
    pieces_after: int
    texts: int  # the number of texts that were read
    used: int  # the number of different pieces that the texts use


@dataclass(frozen=True)
class Pruned:
    """A pruned tokenizer."""

    tokenizer: "Tokenizer"
    # The old id of each new one, int64 (pieces,); `embedding[old_ids]` is the new embedding.
    old_ids: ndarray
    statistics: Statistics


def prune(tokenizer: "Tokenizer", texts: Iterable[str], stay: Collection[int] = ()) -> Pruned:
    """Copy the tokenizer without the pieces that `texts` never use.

    Special and added tokens stay; so do single characters of the scripts in `texts`, the pieces of single
    bytes, and what each kind of model needs to encode the texts as before. Ids are numbered anew, in the old
    order, in the model, the added tokens and the post-processor.

    The texts are read once, in batches; memory does not grow with their number. Each text is encoded whole,
    so cut texts of millions of characters beforehand.

    Args:
        tokenizer: WordPiece, BPE (byte-level or not) or Unigram, without padding and truncation, as `load`
            returns it.
        stay: ids of further pieces that stay, such as the padding token of a model.

    Raises:
        BrimfulError: the model is of another kind, an id in `stay` has no piece, there are no texts, or a
            text would change its encoding.
    """
    from tokenizers import Tokenizer

    state: State = json.loads(tokenizer.to_str())
    kind = state["model"]["type"]
    if kind not in ("WordPiece", "BPE", "Unigram"):
        raise BrimfulError(f"a {kind} tokenizer cannot be pruned, only WordPiece, BPE and Unigram")
    for index in stay:
        if tokenizer.id_to_token(index) is None:
            raise BrimfulError(
                f"this tokenizer cannot be pruned: the model needs the id {index}, which has no piece"
            )
    plain, unknown = _plain(tokenizer), unknown_id(tokenizer)
    unknown_words = UnknownWords(plain, state) if kind == "WordPiece" else None
    used = set()  # ids of the pieces of the texts
    matched = set()  # ids of the pieces that WordPiece matches in unknown words
    occurs = np.zeros(0x110000, bool)  # by code point
    number_of_texts = 0
    checked_texts: list[str] = []
    for batch in batch_by_characters(texts, _BATCH_CHARACTERS, _size):
        occurs[code_points("".join(batch))] = True
        texts_with_unknown = []
        for text, encoding in zip(batch, _encode(plain, batch), strict=True):
            ids = encoding.ids
            used.update(ids)
            if unknown in ids:
                texts_with_unknown.append(text)
        if unknown_words:
            matched |= unknown_words.pieces(texts_with_unknown)
        number_of_texts += len(batch)
        if len(checked_texts) < _MAX_CHECKED_TEXTS:
            checked_texts += batch[::_CHECKED_STRIDE]
    if not number_of_texts:
        raise BrimfulError("there are no texts whose pieces could be kept")
    characters = map(chr, np.flatnonzero(occurs).tolist())
    order = order_ids(state["model"], select_pieces(tokenizer, state, used.union(matched, stay), characters))
    new_ids = {old: new for new, old in enumerate(order)}
    pruned = name_like(Tokenizer.from_str(json.dumps(renumber(tokenizer, state, new_ids))), tokenizer)
    old_ids = np.array(order, np.int64)
    _check(tokenizer, pruned, old_ids, checked_texts)
    sizes = Statistics(tokenizer.get_vocab_size(), len(order), number_of_texts, len(used))
    return Pruned(pruned, old_ids, sizes)


def _size(text: str) -> int:
    return len(text) + _ENCODING_CHARACTERS


def _plain(tokenizer: "Tokenizer") -> "Tokenizer":
    """Return the tokenizer, or a copy without dropout, which always gives the same encoding."""
    from tokenizers import Tokenizer

    if not getattr(tokenizer.model, "dropout", None):
        return tokenizer
    state = json.loads(tokenizer.to_str())
    state["model"]["dropout"] = None
    return name_like(Tokenizer.from_str(json.dumps(state)), tokenizer)


def _encode(tokenizer: "Tokenizer", texts: list[str]) -> list[Any]:
    return tokenizer.encode_batch_fast(texts, add_special_tokens=False)


def _check(old: "Tokenizer", new: "Tokenizer", old_ids: ndarray, texts: list[str]) -> None:
    old, new = _plain(old), _plain(new)
    for batch in batch_by_characters(texts, _BATCH_CHARACTERS, _size):
        for text, before, after in zip(batch, _encode(old, batch), _encode(new, batch), strict=True):
            if before.ids != old_ids[after.ids].tolist():
                raise BrimfulError(
                    f"this tokenizer cannot be pruned: the encoding of {text!r:.80} would change"
                )


def order_ids(model: State, ids: set[int]) -> list[int]:
    """Sort ids as `tokenizers` numbers their pieces: the model's own first, then added tokens."""
    pieces = model["vocab"]
    own_ids = set(range(len(pieces)) if model["type"] == "Unigram" else pieces.values())
    return sorted(ids & own_ids) + sorted(ids - own_ids)


def renumber(tokenizer: "Tokenizer", state: State, new_ids: dict[int, int]) -> State:
    """Return the tokenizer.json with fewer pieces, under new ids in every place.

    Args:
        new_ids: the new id of each old id that stays, in the order of the new ids.
    """
    ids = {token.content: index for index, token in tokenizer.get_added_tokens_decoder().items()}
    added = [{**token, "id": new_ids[ids[token["content"]]]} for token in state["added_tokens"]]
    return {
        **state,
        "model": _renumber_model(state["model"], new_ids),
        "added_tokens": added,
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
