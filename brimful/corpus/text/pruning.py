"""A smaller vocabulary for a tokenizer: the pieces that some texts use, and what other texts fall back to.

The texts' encodings stay the same up to the new ids (pruning_rules.py says why). Other texts get
smaller pieces, and unknown tokens where they hold characters of another script.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from brimful.base.errors import BrimfulError
from brimful.corpus.text.batches import batch_by_characters
from brimful.corpus.text.characters import code_points
from brimful.corpus.text.pruning_rules import PruningRules, UnknownWords
from brimful.corpus.text.special_ids import name_like, unknown_id
from brimful.corpus.text.tokenizer_json import State, in_order, renumbered

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Encodings take about 200 bytes a token while a batch is read.
_BATCH_CHARACTERS = 1 << 18
_CHARACTERS_OF_AN_ENCODING = 64
# The encodings of one text in this many are compared before and after, in the first batches.
_CHECKED_STRIDE = 20
_MAX_CHECKED_TEXTS = 4096


@dataclass(frozen=True)
class Statistics:
    """Sizes before and after.

    Attributes:
        texts: how many texts were read.
        used: how many different pieces they use.
    """

    pieces_before: int
    pieces_after: int
    texts: int
    used: int


@dataclass(frozen=True)
class Pruned:
    """A pruned tokenizer.

    Attributes:
        tokenizer: the new one.
        kept: int64 (pieces,): the old id of each new one, so that `embedding[kept]` is the new embedding.
        statistics: sizes before and after.
    """

    tokenizer: "Tokenizer"
    kept: np.ndarray
    statistics: Statistics


def prune(tokenizer: "Tokenizer", texts: Iterable[str], stay: Collection[int] = ()) -> Pruned:
    """A copy of the tokenizer without the pieces that `texts` never use.

    Special and added tokens stay; so do single characters of the scripts in `texts`, the pieces of single
    bytes, and what each kind of model needs to encode the texts as before. Ids are numbered anew, in the old
    order, in the model, the added tokens, the post-processor and the padding.

    The texts are read once, in batches; memory does not grow with their number. They are encoded whole: cut
    texts of millions of characters beforehand.

    Args:
        tokenizer: WordPiece, BPE (byte-level or not) or Unigram.
        stay: ids of further pieces that stay, such as the padding token of a model.

    Raises:
        BrimfulError: the model is of another kind, an id in `stay` has no piece, there are no texts, or a
            text would change its encoding.
    """
    from tokenizers import Tokenizer

    state: State = json.loads(tokenizer.to_str())
    if (kind := state["model"]["type"]) not in ("WordPiece", "BPE", "Unigram"):
        raise BrimfulError(f"a {kind} tokenizer cannot be pruned, only WordPiece, BPE and Unigram")
    for index in stay:
        if tokenizer.id_to_token(index) is None:
            raise BrimfulError(
                f"this tokenizer cannot be pruned: the model needs the id {index}, which has no piece"
            )
    usage = _Usage(_plain(tokenizer), state, unknown_id(tokenizer))
    number_of_texts = 0
    checked_texts: list[str] = []
    for batch in batch_by_characters(texts, _BATCH_CHARACTERS, _size):
        usage.add(batch)
        number_of_texts += len(batch)
        if len(checked_texts) < _MAX_CHECKED_TEXTS:
            checked_texts += batch[::_CHECKED_STRIDE]
    if not number_of_texts:
        raise BrimfulError("there are no texts whose pieces could be kept")
    rules = PruningRules(tokenizer, state, stay)
    kept = in_order(state["model"], rules(usage.ids | usage.matched, usage.characters))
    new_ids = {old: index for index, old in enumerate(kept)}
    pruned = name_like(Tokenizer.from_str(json.dumps(renumbered(tokenizer, state, new_ids))), tokenizer)
    old_ids = np.array(kept, np.int64)
    _check(tokenizer, pruned, old_ids, checked_texts)
    sizes = Statistics(tokenizer.get_vocab_size(), len(kept), number_of_texts, len(usage.ids))
    return Pruned(pruned, old_ids, sizes)


class _Usage:
    """What the texts use.

    Attributes:
        ids: of their pieces.
        matched: ids of the pieces that WordPiece matches in unknown words.
    """

    def __init__(self, tokenizer: "Tokenizer", state: State, unknown: int) -> None:
        self.ids: set[int] = set()
        self.matched: set[int] = set()
        self._tokenizer = tokenizer
        self._seen = np.zeros(0x110000, bool)
        word_piece = state["model"]["type"] == "WordPiece"
        self._unknown = unknown
        self._unknown_words = UnknownWords(tokenizer, state) if word_piece else None

    @property
    def characters(self) -> list[str]:
        """All different characters of the texts."""
        return [chr(code) for code in np.flatnonzero(self._seen).tolist()]

    def add(self, texts: list[str]) -> None:
        self._seen[code_points("".join(texts))] = True
        with_unknown = []
        for text, encoding in zip(texts, _encode(self._tokenizer, texts), strict=True):
            ids = encoding.ids
            self.ids.update(ids)
            if self._unknown_words and self._unknown in ids:
                with_unknown.append(text)
        if self._unknown_words and with_unknown:
            self.matched |= self._unknown_words.pieces(with_unknown)


def _size(text: str) -> int:
    return len(text) + _CHARACTERS_OF_AN_ENCODING


def _plain(tokenizer: "Tokenizer") -> "Tokenizer":
    """The tokenizer, or a copy of it that neither pads nor truncates and always gives the same encoding."""
    from tokenizers import Tokenizer

    dropout = getattr(tokenizer.model, "dropout", None)
    if tokenizer.padding is None and tokenizer.truncation is None and not dropout:
        return tokenizer
    state = json.loads(tokenizer.to_str())
    state["padding"] = state["truncation"] = None
    if dropout:
        state["model"]["dropout"] = None
    return name_like(Tokenizer.from_str(json.dumps(state)), tokenizer)


def _encode(tokenizer: "Tokenizer", texts: list[str]) -> list[Any]:
    return tokenizer.encode_batch_fast(texts, add_special_tokens=False)


def _check(old: "Tokenizer", new: "Tokenizer", kept: np.ndarray, texts: list[str]) -> None:
    old, new = _plain(old), _plain(new)
    for batch in batch_by_characters(texts, _BATCH_CHARACTERS, _size):
        for text, one, other in zip(batch, _encode(old, batch), _encode(new, batch), strict=True):
            if one.ids != kept[other.ids].tolist():
                raise BrimfulError(
                    f"this tokenizer cannot be pruned: the encoding of {text!r:.80} would change"
                )
