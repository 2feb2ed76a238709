"""Choose the pieces that a pruned vocabulary keeps in addition to the pieces of its texts.

With these rules for WordPiece, BPE and Unigram, a text of the corpus keeps its encoding:

- Unigram takes the path with the highest sum of scores. Dropping a piece that is not on that path only leaves
  fewer other paths. A character whose own piece is dropped gets an unknown token in its place, 10 below the
  lowest score of the vocabulary; that score stays, so a path with the unknown token is worse than before.
- WordPiece takes the longest piece that matches. A dropped piece did not match, or its word ended as the
  unknown token: the pieces before the end of such a word stay as well (`UnknownWords`).
- BPE applies the merge of the lowest rank, then the leftmost. No merge across the borders of a final piece
  was applied, so inside these borders it is built as it would be without its surroundings. If all merges that
  can build the piece stay, the same merges are applied in the same order.
"""

import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from brimful.corpus.text.markers import ids_around
from brimful.corpus.text.special_ids import TOKEN_NAMES, settings_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

State = dict[str, Any]
"""A tokenizer.json."""
_BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")
_MAX_CHARACTER_BYTES = 4
"""Bytes of a character in UTF-8."""
# Punctuation, digits and symbols (Common), and the accents that follow letters (Inherited).
_OF_EVERY_SCRIPT = ("0", "\u0301")
_CATEGORIES_WITHOUT_SCRIPT = ("Cn", "Co", "Cs")


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


def select_pieces(tokenizer: "Tokenizer", state: State, ids: set[int], text: Iterable[str]) -> set[int]:
    """Return these ids and the ids of all further pieces that must stay.

    Args:
        tokenizer: WordPiece, BPE or Unigram.
        state: its tokenizer.json.
        ids: ids of the pieces that the texts use.
        text: all different characters of the texts.
    """
    model = state["model"]
    is_byte_level = '"type": "ByteLevel"' in json.dumps([state["normalizer"], state["pre_tokenizer"]])
    ids_by_character = _find_single_characters(model, is_byte_level)
    characters = set(ids_by_character)
    # Without an unknown token, a character that has no piece would be lost or an error: so all stay.
    if is_byte_level or model.get("unk_token") is not None or model.get("unk_id") is not None:
        characters = select_same_scripts(characters, text)
    staying = ids | _find_fixed(tokenizer, state, is_byte_level)
    for character in characters:
        staying.update(ids_by_character[character])
    if model["type"] == "BPE":
        staying = _with_ancestors(model, staying)
    return staying


def _find_fixed(tokenizer: "Tokenizer", state: State, is_byte_level: bool) -> set[int]:
    """Return the ids that always stay: special and added tokens, bytes, the lowest score of Unigram."""
    from tokenizers import pre_tokenizers

    model, pieces = state["model"], read_pieces(state["model"])
    ids = ids_around(tokenizer) | tokenizer.get_added_tokens_decoder().keys()
    # Pieces with the name of a special token stay, too.
    names = {model.get("unk_token"), *settings_of(tokenizer).roles.values()}.union(*TOKEN_NAMES.values())
    if model.get("byte_fallback"):
        names.update(filter(_BYTE_PIECE.fullmatch, pieces))
    if is_byte_level:
        names.update(pre_tokenizers.ByteLevel.alphabet())
    ids.update(pieces[name] for name in names if name and name in pieces)
    if model["type"] == "Unigram":
        scores = [score for _, score in model["vocab"]]
        ids.add(scores.index(min(scores)))
        if model["unk_id"] is not None:
            ids.add(model["unk_id"])
    return ids


def _find_single_characters(model: State, is_byte_level: bool) -> dict[str, list[int]]:
    """Return, for each character, the ids of the pieces that spell only it, in any part of a word."""
    from tokenizers import decoders

    prefix = model.get("continuing_subword_prefix") or ""
    suffix = model.get("end_of_word_suffix") or ""
    max_length = len(prefix) + len(suffix) + (_MAX_CHARACTER_BYTES if is_byte_level else 1)
    ids = defaultdict(list)
    for piece, index in read_pieces(model).items():
        if len(piece) > max_length:
            continue
        inner = piece.removeprefix(prefix)
        for spelling in {piece, inner, piece.removesuffix(suffix), inner.removesuffix(suffix)}:
            if is_byte_level:  # in GPT-2's letters for bytes; a part of a character is decoded to U+FFFD
                spelling = decoders.ByteLevel().decode([spelling])
            if len(spelling) == 1 and spelling != "\ufffd":
                ids[spelling].append(index)
    return ids


def _with_ancestors(model: State, ids: set[int]) -> set[int]:
    """Return the ids and the ids of all pieces that merges can build them from, step by step."""
    prefix = model["continuing_subword_prefix"] or ""
    pieces: dict[str, int] = model["vocab"]
    parts: dict[str, list[str]] = defaultdict(list)
    for sides in map(split_merge, model["merges"]):
        parts[join_merge(sides, prefix)] += sides
    ancestors = set(ids)
    waiting = [piece for piece, index in pieces.items() if index in ids]
    while waiting:
        for part in parts[waiting.pop()]:
            if pieces[part] not in ancestors:
                ancestors.add(pieces[part])
                waiting.append(part)
    return ancestors


def select_same_scripts(characters: Iterable[str], text: Iterable[str]) -> set[str]:
    """Return the `characters` whose script occurs in `text`: Unicode's script property, as in `tokenizers`.

    Punctuation, digits, symbols and accents belong to every script, kana to the script of Han. Private-use
    and unassigned characters have no script.
    """
    candidates = _drop_without_script(characters)
    present = _drop_without_script(text) | set(_OF_EVERY_SCRIPT)
    runs = _split_by_script(candidates | present)
    scripts = [run[0] for run in runs if not present.isdisjoint(run)]
    selected: set[str] = set()
    for run in runs:
        # Two characters of one script stay one run when they are put together.
        if any(len(_split(character + run[0])) == 1 for character in scripts):
            selected.update(run)
    return candidates & selected


def _drop_without_script(characters: Iterable[str]) -> set[str]:
    return {c for c in characters if c != " " and unicodedata.category(c) not in _CATEGORIES_WITHOUT_SCRIPT}


def _split_by_script(characters: set[str]) -> list[str]:
    """Sort the characters into about a hundred runs of one script each: a block of Unicode has one script."""
    # `tokenizers` adds a character that is too new for it to the run before it, so such a character must not
    # be the first.
    return _split("".join([_OF_EVERY_SCRIPT[0], *sorted(characters)]))


def _split(text: str) -> list[str]:
    from tokenizers import pre_tokenizers

    return [run for run, _ in pre_tokenizers.UnicodeScripts().pre_tokenize_str(text)]


class UnknownWords:
    """The pieces that WordPiece matches in words before it gives up.

    Without these pieces, WordPiece could match shorter ones and go on, and the word would not be unknown.
    """

    def __init__(self, tokenizer: "Tokenizer", state: State) -> None:
        from tokenizers import Tokenizer

        self._model = state["model"]
        # The same pipeline with a model that knows nothing: each of its tokens is a whole word, as written.
        empty_model = {"type": "Unigram", "unk_id": 0, "vocab": [["\uffff", 0.0]], "byte_fallback": False}
        empty = {**state, "model": empty_model, "post_processor": None, "padding": None, "truncation": None}
        self._words = Tokenizer.from_str(json.dumps(empty))
        self._words.encode_special_tokens = tokenizer.encode_special_tokens

    def pieces(self, texts: list[str]) -> set[int]:
        """Return the ids of the pieces that begin the words of these texts, up to where no piece matches."""
        pieces: dict[str, int] = self._model["vocab"]
        words = set()
        for encoding in self._words.encode_batch(texts, add_special_tokens=False):
            words.update(encoding.tokens)
        ids = set()
        for word in words:
            if len(word) > self._model["max_input_chars_per_word"]:
                continue
            begin, end, prefix = 0, len(word), ""
            while begin < end:  # the longest piece first
                index = pieces.get(prefix + word[begin:end])
                if index is None:
                    end -= 1
                else:
                    ids.add(index)
                    begin, end, prefix = end, len(word), self._model["continuing_subword_prefix"]
        return ids
