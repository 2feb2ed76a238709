"""Find the neighbours of words: the words whose vectors have the highest cosine.

A word's vector is the mean of the input embeddings of its pieces.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy import ndarray
from tokenizers import Tokenizer
from torch import Tensor

from brimful.augmentation.words import is_word
from brimful.corpus.text.character_classes import HAN, character_classes, character_scripts
from brimful.corpus.text.special_ids import unknown_id
from brimful.data.ragged import Ragged
from brimful.data.reader import list_ordinary_ids

_SPACES = ("\u2581", "\u0120")
"""How the pieces of SentencePiece and of byte-level BPE spell a space."""


class Pieces:
    """The pieces of a vocabulary as words.

    Attributes:
        continues: bool (vocabulary,), the pieces that only continue a word (##ing).
        spaced: bool (vocabulary,), the pieces that begin with a space.
        texts: the text of each piece that is a word, without the space; "" for the others.
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
    def words(self) -> ndarray:
        """bool (vocabulary,): the pieces that are words."""
        return np.array(list(map(bool, self.texts)))

    def tokens(self, words: Sequence[str]) -> Ragged:
        """Return the token ids of each word, int32, as it occurs in most texts.

        Most words follow a space; Han words do not. A word whose ids depend on the text before it gets none.
        """
        classes = character_classes()
        # The bracket takes the place of earlier text. A word that shares a token with it gets no ids.
        texts = []
        for word in words:
            texts.append(f"({word}" if classes[ord(word[0])] == HAN else f"( {word}")
        ids_of_words = []
        for encoding in self.tokenizer.encode_batch(texts, add_special_tokens=False):
            ids: list[int] = []
            for index, (begin, end) in zip(encoding.ids, encoding.offsets, strict=True):
                if begin < 1 < end:  # a token of the bracket and the word
                    ids = []
                    break
                if end > 1:
                    ids.append(index)
            ids_of_words.append(np.array(ids, dtype=np.int32))
        return Ragged.of(ids_of_words, np.int32)


MAX_WORDS_OF_TEXTS = 100_000
"""The most frequent words of the texts that may be neighbours, in addition to the encoder's pieces."""
WORDS_AT_ONCE = 256
"""Words whose cosines with all others are in memory at a time."""


class Neighbours:
    """Words with their vectors: the encoder's pieces that are words, and the words of the texts.

    Args:
        embeddings: input embeddings of the encoder, (vocabulary, width).
        words_of_texts: the words of the texts, the most frequent first. If several words have the same
            pieces, only one is a neighbour; a word with unknown characters has no vector.

    Attributes:
        words: the words that may be neighbours.
        number: the index in `words` of each word that can be looked up; words may share one.
        vectors: float32 (words, width), each of length 1 or 0.
    """

    def __init__(self, embeddings: Tensor, pieces: Pieces, words_of_texts: Iterable[str]) -> None:
        self.words: list[str] = []
        self.number: dict[str, int] = {}
        self._pieces_of = Ragged.of(self._number_words(pieces, list(dict.fromkeys(words_of_texts))), np.int32)
        ids = torch.from_numpy(self._pieces_of.values.astype(np.int64))
        starts = torch.from_numpy(self._pieces_of.starts)
        means = F.embedding_bag(ids, embeddings.detach().float().cpu(), starts, mode="mean")
        self.vectors = F.normalize(means, dim=1)  # (words, width)
        # The piece that each word is; -1 where it has several.
        self._piece = np.where(self._pieces_of.lengths == 1, ids.numpy()[self._pieces_of.starts], -1)
        scripts = character_scripts()
        self._scripts = torch.tensor([int(scripts[ord(word[0])]) for word in self.words], dtype=torch.uint8)
        # Words that differ only in capital letters share a number.
        folded = dict[str, int]()
        self._folded = torch.tensor([folded.setdefault(word.casefold(), len(folded)) for word in self.words])

    def _number_words(self, pieces: Pieces, words_of_texts: list[str]) -> list[ndarray]:
        """Number the words; return the pieces of each."""
        unknown = unknown_id(pieces.tokenizer)
        parts = [index for index, text in enumerate(pieces.texts) if text]
        # Pieces that differ only in a leading space are one word; the one with the space stands for it.
        parts.sort(key=lambda index: (not pieces.spaced[index], index))
        number_by_pieces: dict[tuple[int, ...], int] = {}
        pieces_of_words = []
        for index in parts:
            text = pieces.texts[index]
            if text not in self.number:
                self.number[text] = number_by_pieces[index,] = len(self.words)
                self.words.append(text)
                pieces_of_words.append(np.array([index], dtype=np.int32))
        max_words = len(self.words) + MAX_WORDS_OF_TEXTS
        for text, ids in zip(words_of_texts, pieces.tokens(words_of_texts), strict=True):
            key = tuple(ids.tolist())
            if not key or unknown in key:
                continue
            if key not in number_by_pieces:
                if text in self.number or len(self.words) >= max_words:
                    continue
                number_by_pieces[key] = len(self.words)
                self.words.append(text)
                pieces_of_words.append(ids)
            self.number.setdefault(text, number_by_pieces[key])
        return pieces_of_words

    def nearest(self, words: Sequence[str], choices: int) -> list[list[str]]:
        """Return the nearest words of each word, nearest first; an empty list for a word without a vector.

        A word's neighbours do not include the word in other capitals, one of its pieces, or a word of another
        script: mean embeddings of pieces may be near to all of these.
        """
        neighbours = {}
        numbers = dict.fromkeys(self.number[word] for word in words if word in self.number)
        with_vector = [number for number in numbers if self.vectors[number].any()]
        for start in range(0, len(with_vector), WORDS_AT_ONCE):
            part = with_vector[start : start + WORDS_AT_ONCE]
            cosines = self.vectors[torch.tensor(part)] @ self.vectors.T  # (part, words)
            for row, number in enumerate(part):
                own = np.flatnonzero(np.isin(self._piece, self._pieces_of[number]))
                cosines[row, torch.from_numpy(own)] = -torch.inf
            cosines.masked_fill_(self._folded == self._folded[part, None], -torch.inf)
            cosines.masked_fill_(self._scripts != self._scripts[part, None], -torch.inf)
            best = cosines.topk(min(choices, len(self.words)), dim=1)  # (part, choices)
            for number, values, indices in zip(part, *best, strict=True):
                nearest = indices[values > -torch.inf].tolist()
                neighbours[number] = [self.words[index] for index in nearest]
        return [neighbours.get(self.number.get(word, -1), []) for word in words]
