"""A smaller vocabulary for a tokenizer: the pieces that some texts use, and what other texts fall back to.

The texts' encodings stay the same up to the new ids (pruning_rules.py says why). Other texts get
smaller pieces, and unknown tokens where they hold characters of another script.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from brimful.base.errors import BrimfulError
from brimful.corpus.text.characters import code_points
from brimful.corpus.text.pruning_rules import PruningRules, UnknownWords
from brimful.corpus.text.special_ids import named_as, unknown_id
from brimful.corpus.text.tokenizer_files import State, in_order, renumbered

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Encodings take about 200 bytes a token while a batch is read.
_BATCH_TEXTS = 1 << 12
_BATCH_CHARACTERS = 1 << 18
# One text in this many is held out, and fewer of a large corpus.
_STRIDE = 20
_MOST_HELD_OUT = 1 << 20


@dataclass(frozen=True)
class Unseen:
    """What pruning does to text that it has not seen, measured before the held-out texts are added.

    Attributes:
        texts: how many texts were held out: one in 20, at most a million characters.
        tokens_before, tokens_after: their tokens, without those that stand around a text.
        unknown_before, unknown_after: how many of these tokens are unknown.
    """

    texts: int
    tokens_before: int
    tokens_after: int
    unknown_before: int
    unknown_after: int


@dataclass(frozen=True)
class Statistics:
    """Sizes before and after.

    Attributes:
        texts: how many texts were read.
        used: how many different pieces they use.
        unseen: None where fewer than 20 texts were read.
    """

    pieces_before: int
    pieces_after: int
    texts: int
    used: int
    unseen: Unseen | None


@dataclass(frozen=True)
class Pruned:
    """A pruned tokenizer.

    Attributes:
        tokenizer: the new one.
        kept: int64 (pieces,): the old id of each new one, so that `embedding[kept]` is the new embedding.
        statistics: sizes, and what happens to unseen text.
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
    state: State = json.loads(tokenizer.to_str())
    if (kind := state["model"]["type"]) not in ("WordPiece", "BPE", "Unigram"):
        raise BrimfulError(f"a {kind} tokenizer cannot be pruned, only WordPiece, BPE and Unigram")
    for index in stay:
        if tokenizer.id_to_token(index) is None:
            raise BrimfulError(
                f"this tokenizer cannot be pruned: the model needs the id {index}, which has no piece"
            )
    rules = PruningRules(tokenizer, state, stay)
    unknown = unknown_id(tokenizer)
    usage = _Usage(_plain(tokenizer), state, unknown)
    sample = _HeldOut()
    for batch in _batches(sample.rest(texts)):
        usage.add(batch)
    if not sample.read:
        raise BrimfulError("there are no texts whose pieces could be kept")
    unseen = None
    if sample.texts:
        provisional, _ = _build(tokenizer, state, rules, usage)
        before = _count(tokenizer, unknown, sample.texts)
        after = _count(provisional, unknown_id(provisional), sample.texts)
        unseen = Unseen(len(sample.texts), before[0], after[0], before[1], after[1])
        for batch in _batches(sample.texts):
            usage.add(batch)
    pruned, kept = _build(tokenizer, state, rules, usage)
    _check(tokenizer, pruned, kept, sample.texts)
    before_and_after = tokenizer.get_vocab_size(), len(kept)
    return Pruned(pruned, kept, Statistics(*before_and_after, sample.read, len(usage.ids), unseen))


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


class _HeldOut:
    """A sample of the texts: every 20th, or fewer so that it has at most a million characters.

    Attributes:
        texts: the sample.
        read: how many texts there are.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.read = 0

    def rest(self, texts: Iterable[str]) -> Iterator[str]:
        """The texts that are not in the sample."""
        stride, size = _STRIDE, 0
        for text in texts:
            self.read += 1
            if self.read % stride:
                yield text
                continue
            self.texts.append(text)
            size += len(text)
            while size > _MOST_HELD_OUT:
                yield from self.texts[::2]
                self.texts, stride = self.texts[1::2], 2 * stride
                size = sum(map(len, self.texts))


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if len(batch) >= _BATCH_TEXTS or size >= _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


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
    return named_as(Tokenizer.from_str(json.dumps(state)), tokenizer)


def _encode(tokenizer: "Tokenizer", texts: list[str]) -> list[Any]:
    return tokenizer.encode_batch_fast(texts, add_special_tokens=False)


def _count(tokenizer: "Tokenizer", unknown: int, texts: Iterable[str]) -> tuple[int, int]:
    """The tokens of the texts, and how many of them are unknown."""
    tokenizer = _plain(tokenizer)
    counts = np.zeros(2, np.int64)
    for batch in _batches(texts):
        for encoding in _encode(tokenizer, batch):
            ids = encoding.ids
            counts += len(ids), ids.count(unknown)
    return int(counts[0]), int(counts[1])


def _build(
    tokenizer: "Tokenizer", state: State, rules: PruningRules, usage: _Usage
) -> tuple["Tokenizer", np.ndarray]:
    """The tokenizer with what stays, and the old id of each new one."""
    from tokenizers import Tokenizer

    kept = in_order(state["model"], rules(usage.ids | usage.matched, usage.characters))
    new = {old: index for index, old in enumerate(kept)}
    built = Tokenizer.from_str(json.dumps(renumbered(tokenizer, state, new)))
    return named_as(built, tokenizer), np.array(kept, np.int64)


def _check(old: "Tokenizer", new: "Tokenizer", kept: np.ndarray, texts: list[str]) -> None:
    old, new = _plain(old), _plain(new)
    for batch in _batches(texts):
        for text, one, other in zip(batch, _encode(old, batch), _encode(new, batch), strict=True):
            if one.ids != kept[other.ids].tolist():
                raise BrimfulError(
                    f"this tokenizer cannot be pruned: the encoding of {text!r:.80} would change"
                )
