"""A tokenizer's pieces as words, and the tokens of words wherever they stand in a text."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from tokenizers import Tokenizer

from brimful.augmentation.words import is_word
from brimful.data.ragged import Ragged
from brimful.data.reader import ordinary_ids

GLUED, SPACED = range(2)
"""Where a word stands, which may decide its tokens: behind another character, behind a space."""
_BEFORE = {GLUED: "(", SPACED: "( "}
"""What stands before a word at each place. No tokenizer here joins a bracket with a word."""
_META, _BYTE_SPACE = "\u2581", "\u0120"


class Pieces:
    """What the pieces of a vocabulary are.

    Attributes:
        continues: bool (vocabulary,), those that only continue a word (##ing).
        spaced: bool (vocabulary,), those that begin with a space.
        texts: of each piece that is a word, its text without the space; "" for the others.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        vocabulary = tokenizer.get_vocab()
        size = max(vocabulary.values()) + 1
        self.continues = np.zeros(size, dtype=bool)
        self.spaced = np.zeros(size, dtype=bool)
        self.texts = [""] * size
        state: dict[str, Any] = msgspec.json.decode(tokenizer.to_str())
        prefix = state["model"].get("continuing_subword_prefix") or ""
        spaces = (_META, _BYTE_SPACE) if _has(state, "ByteLevel") else (_META,)
        for name, index in vocabulary.items():
            self.continues[index] = bool(prefix) and name.startswith(prefix)
            self.spaced[index] = name.startswith(spaces)
        for index in ordinary_ids(tokenizer).tolist():
            if not self.continues[index]:
                text = tokenizer.decode([index]).strip()
                self.texts[index] = text if is_word(text) else ""

    @property
    def words(self) -> np.ndarray:
        """bool (vocabulary,): the pieces that are words."""
        return np.array([bool(text) for text in self.texts])

    def tokens(self, words: Sequence[str], place: int) -> Ragged:
        """The ids of each word, int32, at a place: GLUED or SPACED. Empty where they depend on what
        stands before the word."""
        before = _BEFORE[place]
        behind = len(before.rstrip())
        encodings = self.tokenizer.encode_batch([before + word for word in words], add_special_tokens=False)
        found = []
        for encoding in encodings:
            parts = [
                i for i, (begin, end) in zip(encoding.ids, encoding.offsets, strict=True) if end > behind
            ]
            straddles = any(begin < behind < end for begin, end in encoding.offsets)
            found.append(np.array([] if straddles else parts, dtype=np.int32))
        return Ragged.of(found, np.int32)


def _has(state: Any, kind: str) -> bool:
    """Whether a part of a tokenizer's pipeline is of a type."""
    parts = [state.get("pre_tokenizer"), state.get("decoder")]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            if part.get("type") == kind:
                return True
            parts += [*(part.get("pretokenizers") or []), *(part.get("decoders") or [])]
    return False
