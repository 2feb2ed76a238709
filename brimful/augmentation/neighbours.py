"""A tokenizer's pieces as words, and the neighbours of words: those whose vectors have the highest cosine.

A word's vector is the mean of the input embeddings of its pieces.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from brimful.augmentation.words import is_word
from brimful.corpus.text.characters import HAN, character_classes, character_scripts
from brimful.corpus.text.special_ids import unknown_id
from brimful.data.ragged import Ragged
from brimful.data.reader import list_ordinary_ids

_SPACES = ("\u2581", "\u0120")
"""How the pieces of SentencePiece and of byte-level BPE spell a space."""


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
        prefix = getattr(tokenizer.model, "continuing_subword_prefix", None) or ""
        for name, index in vocabulary.items():
            self.continues[index] = bool(prefix) and name.startswith(prefix)
            self.spaced[index] = name.startswith(_SPACES)
        for index in list_ordinary_ids(tokenizer).tolist():
            if not self.continues[index]:
                text = tokenizer.decode([index]).strip()
                self.texts[index] = text if is_word(text) else ""

    @property
    def words(self) -> np.ndarray:
        """bool (vocabulary,): the pieces that are words."""
        return np.array([bool(text) for text in self.texts])

    def tokens(self, words: Sequence[str]) -> Ragged:
        """The ids of each word, int32, as it stands in most texts: behind a space, or, of Han characters,
        without one. Empty where they depend on what stands before the word."""
        classes = character_classes()
        # No tokenizer here joins a bracket with a word.
        texts = [f"({word}" if classes[ord(word[0])] == HAN else f"( {word}" for word in words]
        found = []
        for encoding in self.tokenizer.encode_batch(texts, add_special_tokens=False):
            pairs = list(zip(encoding.ids, encoding.offsets, strict=True))
            straddles = any(begin < 1 < end for _, (begin, end) in pairs)
            ids = [index for index, (_, end) in pairs if end > 1 and not straddles]
            found.append(np.array(ids, dtype=np.int32))
        return Ragged.of(found, np.int32)


MAX_WORDS_OF_TEXTS = 100_000
"""The most words of the texts, the most frequent ones, that may be neighbours beside the encoder's pieces."""
WORDS_AT_ONCE = 256
"""Words whose cosines with all others are in memory at a time."""


class Neighbours:
    """The words that are pieces of an encoder and those of the texts, and which are near to each other.

    Args:
        embeddings: of the encoder, (vocabulary, width).
        of_texts: the words of the texts, the most frequent first. Of words with the same pieces one is a
            neighbour; a word with unknown characters has no vector.

    Attributes:
        words: those that may be neighbours.
        number: of each word that can be looked up.
        vectors: float32 (words, width), each of length 1 or 0.
    """

    def __init__(self, embeddings: Tensor, pieces: Pieces, of_texts: Iterable[str]) -> None:
        self.words: list[str] = []
        self.number: dict[str, int] = {}
        spelled = self._take(pieces, list(dict.fromkeys(of_texts)))
        self._pieces_of = Ragged.of(spelled, np.int32)
        flat = torch.from_numpy(self._pieces_of.values.astype(np.int64))
        starts = torch.from_numpy(self._pieces_of.starts)
        means = F.embedding_bag(flat, embeddings.detach().float().cpu(), starts, mode="mean")
        self.vectors = F.normalize(means, dim=1)
        # The piece that each word is; -1 where it has several.
        self._piece = np.where(self._pieces_of.lengths == 1, flat.numpy()[self._pieces_of.starts], -1)
        scripts, folded = character_scripts(), dict[str, int]()
        self._scripts = torch.tensor([int(scripts[ord(word[0])]) for word in self.words], dtype=torch.uint8)
        # A number that words share which differ in capital letters alone.
        self._folded = torch.tensor([folded.setdefault(word.casefold(), len(folded)) for word in self.words])

    def _take(self, pieces: Pieces, of_texts: list[str]) -> list[np.ndarray]:
        """Number the words; returns the pieces of each."""
        unknown = unknown_id(pieces.tokenizer)
        parts = [index for index, text in enumerate(pieces.texts) if text]
        # Pieces that differ in the space before them are one word: the one that begins with the space.
        parts.sort(key=lambda index: (not pieces.spaced[index], index))
        known: dict[tuple[int, ...], int] = {}
        spelled: list[np.ndarray] = []
        for index in parts:
            text = pieces.texts[index]
            if text not in self.number:
                self.number[text] = known[index,] = len(self.words)
                self.words.append(text)
                spelled.append(np.array([index], dtype=np.int32))
        for text, its in zip(of_texts, pieces.tokens(of_texts), strict=True):
            key = tuple(its.tolist())
            if not key or unknown in key:
                continue
            if key not in known:
                if text in self.number or len(self.words) - len(parts) >= MAX_WORDS_OF_TEXTS:
                    continue
                known[key] = len(self.words)
                self.words.append(text)
                spelled.append(its)
            self.number.setdefault(text, known[key])
        return spelled

    def nearest(self, words: Sequence[str], choices: int) -> list[list[str]]:
        """The nearest of each word, the nearest first; empty where it has no vector.

        A word is not its own neighbour, in small letters or capital ones. Nor is one of its own pieces, nor a
        word of another script, which mean embeddings of pieces may be near to.
        """
        known = [self.number.get(word) for word in words]
        asked = [n for n in dict.fromkeys(known) if n is not None and self.vectors[n].any()]
        found: dict[int | None, list[str]] = {}
        for start in range(0, len(asked), WORDS_AT_ONCE):
            part = asked[start : start + WORDS_AT_ONCE]
            cosines = self.vectors[torch.tensor(part)] @ self.vectors.T
            for row, number in enumerate(part):
                own = np.flatnonzero(np.isin(self._piece, self._pieces_of[number]))
                cosines[row, torch.from_numpy(own)] = -torch.inf
            cosines.masked_fill_(self._folded == self._folded[part, None], -torch.inf)
            cosines.masked_fill_(self._scripts != self._scripts[part, None], -torch.inf)
            best = cosines.topk(min(choices, len(self.words)), dim=1)
            for number, values, ids in zip(part, best.values.tolist(), best.indices.tolist(), strict=True):
                near = zip(values, ids, strict=True)
                found[number] = [self.words[index] for value, index in near if value > -torch.inf]
        return [found.get(number, []) for number in known]
