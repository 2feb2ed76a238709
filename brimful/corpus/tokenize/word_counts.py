"""The texts and words that a tokenizer is trained on, in bounded memory."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from brimful.text.tokenizer_pipelines import LONGEST_WORD

MOST_CHARACTERS = 6_000_000
_MOST_CHUNKS = 200_000


def thinned(texts: Iterable[str], most: int) -> list[str]:
    """Every text, or every 2nd, 4th, 8th ...: what holds at most `most` characters, but one text at least."""
    kept: list[str] = []
    size, stride = 0, 1
    for number, text in enumerate(texts):
        if number % stride:
            continue
        kept.append(text)
        size += len(text)
        while size > most and len(kept) > 1:
            kept, stride = kept[::2], 2 * stride
            size = sum(map(len, kept))
    return kept


class WordCounts:
    """Counts what a pre-tokenizer cuts texts into.

    The pre-tokenizer must cut at every blank: then each chunk between two blanks is cut once, however often
    it occurs. Words of more than 100 characters are left out. Where the distinct words hold over 6 million
    characters, the rarest are forgotten; only then does the order of the texts matter.
    """

    def __init__(self, pre_tokenizer: Any) -> None:
        self._cut = pre_tokenizer.pre_tokenize_str
        self._chunks: Counter[str] = Counter()
        self._words: Counter[str] = Counter()

    def read(self, texts: Iterable[str]) -> None:
        for text in texts:
            self._chunks.update(text.split(" "))
            if len(self._chunks) > _MOST_CHUNKS:
                self._cut_chunks()

    def counts(self) -> Counter[str]:
        """Every word so far, and how often it occurs."""
        self._cut_chunks()
        return self._words

    def _cut_chunks(self) -> None:
        for chunk, count in self._chunks.items():
            for word, _ in self._cut(chunk):
                if len(word) <= LONGEST_WORD:
                    self._words[word] += count
        self._chunks.clear()
        rare = 1
        while sum(map(len, self._words)) > MOST_CHARACTERS:
            self._words = Counter({word: n for word, n in self._words.items() if n > rare})
            rare *= 2
