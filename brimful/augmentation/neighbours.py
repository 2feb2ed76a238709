"""Neighbours of words: those with the vectors of the highest cosine, from a file or from an encoder."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from brimful.augmentation.pieces import GLUED, SPACED, Pieces
from brimful.augmentation.words import is_word
from brimful.base.errors import BrimfulError
from brimful.corpus.text.characters import HAN, character_classes, character_scripts
from brimful.corpus.text.special_ids import unknown_id
from brimful.data.ragged import Ragged

WORDS = 100_000
"""The most words among which neighbours are looked for: the first of a file, the most frequent of the texts.
Files are in the order of frequency."""
_QUERIES = 256
"""Words whose cosines with all others are in memory at a time."""


@dataclass(frozen=True)
class Neighbours:
    """Words and their vectors.

    Attributes:
        words: those that may be neighbours.
        vectors: float32 (words, width), each of length 1 or 0.
        number: of each word that can be looked up.
        parts: of each word, the piece that it is; -1 where it has several or none.
        pieces_of: of each word, its pieces; none in a file.
    """

    words: list[str]
    vectors: Tensor
    number: dict[str, int]
    parts: np.ndarray | None = None
    pieces_of: Ragged | None = None

    def nearest(self, words: Sequence[str], choices: int) -> list[list[str]]:
        """The nearest of each word, the nearest first; empty where it has no vector.

        A word is not its own neighbour, in small letters or capital ones. Nor is one of its own pieces, nor a
        word of another script, which mean embeddings of pieces may be near to.
        """
        known = [self._find(word) for word in words]
        asked = [number for number in dict.fromkeys(known) if number is not None]
        found: dict[int | None, list[str]] = {None: []}
        for start in range(0, len(asked), _QUERIES):
            part = asked[start : start + _QUERIES]
            cosines = self.vectors[torch.tensor(part)] @ self.vectors.T
            for row, number in enumerate(part):
                cosines[row, torch.from_numpy(self._pieces(number))] = -torch.inf
            cosines.masked_fill_(self.folded == self.folded[part, None], -torch.inf)
            cosines.masked_fill_(self.scripts != self.scripts[part, None], -torch.inf)
            best = cosines.topk(min(choices, len(self.words)), dim=1)
            for number, values, ids in zip(part, best.values.tolist(), best.indices.tolist(), strict=True):
                found[number] = [
                    self.words[i] for value, i in zip(values, ids, strict=True) if value > -torch.inf
                ]
        return [found[number] for number in known]

    @cached_property
    def scripts(self) -> Tensor:
        """uint8 (words,): the script of each word's first character."""
        table = character_scripts()
        return torch.tensor([int(table[ord(word[0])]) for word in self.words], dtype=torch.uint8)

    @cached_property
    def folded(self) -> Tensor:
        """int64 (words,): a number that words share which differ in capital letters alone."""
        numbers: dict[str, int] = {}
        return torch.tensor([numbers.setdefault(word.casefold(), len(numbers)) for word in self.words])

    def _find(self, word: str) -> int | None:
        for form in (word, word.lower(), word.casefold()):
            if form in self.number:
                number = self.number[form]
                return number if self.vectors[number].any() else None
        return None

    def _pieces(self, number: int) -> np.ndarray:
        """The words that are pieces of a word, int64."""
        if self.parts is None or self.pieces_of is None:
            return np.array([number])
        return np.flatnonzero(np.isin(self.parts, self.pieces_of[number]))


def read_vectors(path: str | Path) -> Neighbours:
    """The first `WORDS` words of a text file of vectors: a word and its numbers on each line, as GloVe writes
    them; word2vec's first line, which says how many there are, may come before.

    Only words of letters are kept; of two that differ in capital letters alone, the first.

    Raises:
        BrimfulError: the file cannot be read, is not text, or a line has another number of numbers.
    """
    words: list[str] = []
    vectors: list[np.ndarray] = []
    number: dict[str, int] = {}
    width = 0
    try:
        with open(path, encoding="utf-8") as file:
            for line, text in enumerate(islice(file, WORDS + 1), 1):
                parts = text.rstrip().split(" ")
                if line == 1 and len(parts) == 2 and all(part.isdigit() for part in parts):
                    width = int(parts[1])
                    continue
                width = width or len(parts) - 1
                word = " ".join(parts[:-width]) if width else ""
                try:
                    more = parts[1:-width]  # of a word with spaces, or numbers too many
                    if not word or (more and all(map(_is_number, more))):
                        raise ValueError
                    vector = np.array(parts[-width:], dtype=np.float32)
                except ValueError as error:
                    raise BrimfulError(
                        f"{path}, line {line} is not a word and {max(width, 1)} numbers, divided by spaces"
                    ) from error
                if not np.isfinite(vector).all():
                    raise BrimfulError(f"{path}, line {line} has a number that is not finite")
                if is_word(word) and word.casefold() not in number:
                    number[word.casefold()] = number[word] = len(words)
                    words.append(word)
                    vectors.append(vector)
    except OSError as error:
        raise BrimfulError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BrimfulError(
            f"{path} is not UTF-8 text; of word2vec and fastText take the text files (.txt, .vec), not .bin"
        ) from error
    if not words:
        raise BrimfulError(f"{path} has no vectors of words")
    return Neighbours(words, F.normalize(torch.from_numpy(np.stack(vectors)), dim=1), number)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def embedding_neighbours(embeddings: Tensor, pieces: Pieces, words: Iterable[str]) -> Neighbours:
    """The words that are pieces of an encoder and those of the texts. A word's vector is the mean of the
    input embeddings of its pieces.

    Args:
        embeddings: (vocabulary, width).
        words: of the texts, the most frequent first. Of words with the same pieces one is a neighbour; a word
            with unknown characters has no vector.
    """
    of_texts = list(dict.fromkeys(words))
    ids, unknown = tokens_of(pieces, of_texts), unknown_id(pieces.tokenizer)
    parts = [index for index, text in enumerate(pieces.texts) if text]
    # Pieces that differ in the space before them are one word: the one that begins with the space.
    parts.sort(key=lambda index: (not pieces.spaced[index], index))
    known: dict[tuple[int, ...], int] = {}
    number: dict[str, int] = {}
    found: list[str] = []
    spelled: list[np.ndarray] = []
    for index in parts:
        text = pieces.texts[index]
        if text not in number:
            number[text] = known[index,] = len(found)
            found.append(text)
            spelled.append(np.array([index], dtype=np.int32))
    for text, its in zip(of_texts, ids, strict=True):
        key = tuple(its.tolist())
        if not key or unknown in key:
            continue
        if key not in known:
            if text in number or len(found) - len(parts) >= WORDS:
                continue
            known[key] = len(found)
            found.append(text)
            spelled.append(its)
        number.setdefault(text, known[key])
    pieces_of = Ragged.of(spelled, np.int32)
    matrix = embeddings.detach().float().cpu()
    flat = torch.from_numpy(pieces_of.values.astype(np.int64))
    offsets = torch.from_numpy(pieces_of.starts)
    means = F.embedding_bag(flat, matrix, offsets, mode="mean")
    first = np.where(pieces_of.lengths == 1, flat.numpy()[pieces_of.starts], -1)
    return Neighbours(found, F.normalize(means, dim=1), number, first, pieces_of)


def tokens_of(pieces: Pieces, words: Sequence[str]) -> Ragged:
    """The ids of each word as it stands in most texts: behind a space, or, of Han characters, without one."""
    classes = character_classes()
    han = np.array([classes[ord(word[0])] == HAN for word in words], dtype=bool)
    spaced, glued = (pieces.tokens(words, place) for place in (SPACED, GLUED))
    return Ragged.of((glued[i] if of_han else spaced[i] for i, of_han in enumerate(han)), np.int32)
