"""Which pieces a pruned vocabulary keeps besides those of its texts, for WordPiece, BPE and Unigram.

With these rules, a text of the corpus keeps its encoding:

- Unigram takes the path with the highest sum of scores. Without a piece off that path, the other paths are
  fewer. A character whose own piece is dropped gets an unknown token in its place, 10 below the lowest score
  of the vocabulary; the lowest score stays, so such a path is worse than the one it replaces.
- WordPiece takes the longest piece that matches. A dropped piece did not match, or its word ended as the
  unknown token: the pieces before the end of such a word stay as well (`UnknownWords`).
- BPE applies the merge of the lowest rank, then the leftmost. No merge across the borders of a final piece
  was applied, so inside these borders it is built as it would be alone. If all merges that can build it
  stay, each of those that do is still the first of those that remain.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from brimful.corpus.text.scripts import select_same_scripts
from brimful.corpus.text.special_ids import ids_of_special_names
from brimful.corpus.text.tokenizer_json import State, ids_around, merge_pair, merged, pieces_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_LONGEST_CHARACTER = 4
"""Bytes of a character in UTF-8."""


class PruningRules:
    """Which pieces of a tokenizer stay, given those that texts use.

    Args:
        tokenizer: of one of the three kinds.
        state: its tokenizer.json.
        stay: further ids that stay.
    """

    def __init__(self, tokenizer: "Tokenizer", state: State, stay: Iterable[int] = ()) -> None:
        self._model = state["model"]
        known = pieces_of(self._model)
        byte_level = _is_byte_level(state)
        self._fixed = _fixed(tokenizer, state, known, byte_level) | set(stay)
        self._characters = _single_characters(self._model, known, byte_level)
        self._without_unknown = (
            self._model.get("unk_token") is None and self._model.get("unk_id") is None and not byte_level
        )

    def __call__(self, ids: set[int], text: Iterable[str]) -> set[int]:
        """These ids and all that stay with them.

        Args:
            ids: of the pieces that the texts use.
            text: all different characters of the texts.
        """
        # Where there is no unknown token, a character without a piece is lost or an error.
        every = self._characters.keys()
        characters = every if self._without_unknown else select_same_scripts(every, text)
        found = ids | self._fixed | {index for c in characters for index in self._characters[c]}
        return _with_ancestors(self._model, found) if self._model["type"] == "BPE" else found


def _fixed(tokenizer: "Tokenizer", state: State, known: dict[str, int], byte_level: bool) -> set[int]:
    """Ids that stay whatever the texts: special and added tokens, bytes, the lowest score of Unigram."""
    from tokenizers import pre_tokenizers

    model = state["model"]
    kept = ids_of_special_names(tokenizer) | tokenizer.get_added_tokens_decoder().keys()
    kept.update(ids_around(tokenizer))
    if state["padding"]:
        kept.add(state["padding"]["pad_id"])
    names = [model["unk_token"]] if model.get("unk_token") else []
    if model.get("byte_fallback"):
        names += filter(_BYTE.fullmatch, known)
    if byte_level:
        names += pre_tokenizers.ByteLevel.alphabet()
    kept |= {known[name] for name in names if name in known}
    if model["type"] == "Unigram":
        scores = [score for _, score in model["vocab"]]
        kept.add(scores.index(min(scores)))
        if model["unk_id"] is not None:
            kept.add(model["unk_id"])
    return kept


def _single_characters(model: State, known: dict[str, int], byte_level: bool) -> dict[str, list[int]]:
    """Characters, and the ids of the pieces that are that character: as a word, within or at its end."""
    prefix, suffix = (model.get(name) or "" for name in ("continuing_subword_prefix", "end_of_word_suffix"))
    longest = len(prefix) + len(suffix) + (_LONGEST_CHARACTER if byte_level else 1)
    found = defaultdict(list)
    for piece, index in known.items():
        if len(piece) > longest:
            continue
        inner = piece.removeprefix(prefix)
        for form in {piece, inner, piece.removesuffix(suffix), inner.removesuffix(suffix)}:
            character = _spelled(form) if byte_level else form
            if len(character) == 1 and character != "\ufffd":
                found[character].append(index)
    return found


def _is_byte_level(state: State) -> bool:
    """Are the pieces made of GPT-2's letters for bytes?"""
    return '"type": "ByteLevel"' in json.dumps([state["normalizer"], state["pre_tokenizer"]])


def _spelled(piece: str) -> str:
    """The text of a byte-level piece, with U+FFFD for bytes that spell no character."""
    from tokenizers import decoders

    return decoders.ByteLevel().decode([piece])


def _with_ancestors(model: State, kept: set[int]) -> set[int]:
    """The ids, and those of all pieces that merges can build them from, step by step."""
    prefix = model["continuing_subword_prefix"] or ""
    known: dict[str, int] = model["vocab"]
    origins: dict[str, list[str]] = defaultdict(list)
    for merge in model["merges"]:
        pair = merge_pair(merge)
        origins[merged(pair, prefix)] += pair
    names = {index: piece for piece, index in known.items()}
    found = set(kept)
    waiting = [names[index] for index in kept if index in names]
    while waiting:
        for part in origins[waiting.pop()]:
            if known[part] not in found:
                found.add(known[part])
                waiting.append(part)
    return found


class UnknownWords:
    """The pieces that WordPiece matches in words before it gives up.

    Without them it could match shorter pieces and go on, and the word would no longer be unknown.
    """

    def __init__(self, tokenizer: "Tokenizer", state: State) -> None:
        model = state["model"]
        self._known: dict[str, int] = model["vocab"]
        self._prefix: str = model["continuing_subword_prefix"]
        self._longest: int = model["max_input_chars_per_word"]
        self._words = _words(state)
        self._words.encode_special_tokens = tokenizer.encode_special_tokens

    def pieces(self, texts: list[str]) -> set[int]:
        """Ids of the pieces that begin the words of these texts, up to the place where no piece matches."""
        words: set[str] = set()
        for encoding in self._words.encode_batch(texts, add_special_tokens=False):
            words.update(encoding.tokens)
        found: set[int] = set()
        for word in words:
            if len(word) <= self._longest:
                found.update(self._matches(word))
        return found

    def _matches(self, word: str) -> list[int]:
        found = []
        begin = 0
        while begin < len(word):
            prefix = self._prefix if begin else ""
            for end in range(len(word), begin, -1):
                index = self._known.get(prefix + word[begin:end])
                if index is not None:
                    found.append(index)
                    begin = end
                    break
            else:
                break
        return found


def _words(state: State) -> "Tokenizer":
    """The same pipeline with a model that knows nothing: each of its tokens is a whole word, as written."""
    from tokenizers import Tokenizer

    model = {"type": "Unigram", "unk_id": 0, "vocab": [["\uffff", 0.0]], "byte_fallback": False}
    plain = {**state, "model": model, "post_processor": None, "padding": None, "truncation": None}
    return Tokenizer.from_str(json.dumps(plain))
