"""Find the words of a text, and the tokens that start a word: the unit of whole-word masking.

One segmenter serves every tokenizer. Letters, digits and their marks form words; each punctuation
mark is a word; runs of Han characters are cut by rjieba; the words of the user's lexicon then stay whole,
such as 腾讯控股(00700) or Coca Cola. Words change no token ids: a token belongs to the word that holds its
first character, whatever the tokenizer's own pre-tokens are.
"""

from collections.abc import Collection, Iterable

import numpy as np
from numpy import ndarray

from brimful.base.compiled import compiled
from brimful.corpus.fragments.memo import SEPARATOR, WORD, FragmentTokens, Memo, Rules
from brimful.corpus.text.character_classes import HAN, MARK, SINGLE, SPACE, character_classes
from brimful.corpus.text.characters import code_points, lengths_of
from brimful.corpus.words.lexicon import Lexicon

# The characters that jieba reads together with Han; its cuts depend on nothing else.
_WITH_HAN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+#&._%-"
_ZERO_WIDTH_JOINER = 0x200D


class Segmenter:
    """Cuts a text into words.

    Args:
        language: `auto` and `zh` cut runs of Han characters, `en` leaves them whole.
        lexicon: words that stay whole. A lexicon word is found only where it does not cut a word of
            letters in two (`AI` is not found in `MAIN`); from left to right, the longest one is taken.
    """

    def __init__(self, language: str = "auto", lexicon: list[str] | None = None) -> None:
        self._segment_han = language != "en"
        self._han_segmenter: HanSegmenter | None = None
        self._lexicon = Lexicon(lexicon) if lexicon else None

    def spans(self, text: str) -> ndarray:
        """Return the words of `text` in order: character begin and end, int64 (words, 2), without spaces."""
        if not text:
            return np.empty((0, 2), np.int64)
        codes = code_points(text)
        starts, classes, marks = _word_starts_by_class(codes, character_classes())
        inside = classes != SPACE
        han = (classes == HAN) & ~marks  # words begin at Han characters, not at their marks
        if self._segment_han and han.any():
            self._han_segmenter = self._han_segmenter or HanSegmenter()
            begins = self._han_segmenter.word_begins(codes)
            starts[begins[han[begins]]] = True
        if self._lexicon:
            self._lexicon.mark_words(codes, starts, inside, han)
        return _spans_from(starts, inside)


class HanSegmenter:
    """Cuts runs of Han characters into words; runs seen before come from memory."""

    def __init__(self) -> None:
        from rjieba import cut  # its dictionary takes a fifth of a second

        self._cut = cut
        kinds = np.where(character_classes() == HAN, WORD, SEPARATOR).astype(np.uint8)
        kinds[[ord(character) for character in _WITH_HAN]] = WORD
        rules = Rules(kinds, positional=False, longest_run=0, longest_piece=0)
        self._memo = Memo(rules, self._cut_runs)

    def word_begins(self, codes: ndarray) -> ndarray:
        """Return where words begin, in order, int64 (words,).

        Words of Latin letters and digits between Han characters are included.

        Args:
            codes: code points, uint32 (characters,).
        """
        _, begins, _ = self._memo(codes, np.zeros(1, np.int64), np.array([len(codes)]))
        return begins

    def _cut_runs(self, texts: list[str], kinds: list[int]) -> FragmentTokens:
        """Cut runs into words: where the words of each run begin, counted from its first character."""
        sizes = lengths_of(texts)
        text_begins = np.cumsum(sizes + 1) - sizes - 1
        words = self._cut("\n".join(texts))  # one call, since each has a cost
        lengths = lengths_of(words)
        begins = np.cumsum(lengths) - lengths
        owners = np.searchsorted(text_begins, begins, side="right") - 1
        places = begins - text_begins[owners]
        inside = places < sizes[owners]  # the others are the line breaks
        ends = np.cumsum(np.bincount(owners[inside], minlength=len(texts)))
        places = places[inside].astype(np.int32)
        return FragmentTokens(places.view(np.uint32), places, np.concatenate([[0], ends]))


@compiled
def _word_starts_by_class(codes: ndarray, table: ndarray) -> tuple[ndarray, ndarray, ndarray]:
    """Find where words start by the classes of characters, and which marks join the character before.

    Args:
        codes: code points, uint32 (characters,).
        table: `character_classes.character_classes()`.

    Returns:
        the characters that start a word, bool (characters,); the classes, uint8 (characters,), where a mark
        has the class of the character that it follows; and the characters that are such marks,
        bool (characters,).
    """
    starts = np.zeros(len(codes), np.bool_)
    classes = np.empty(len(codes), np.uint8)
    marks = np.zeros(len(codes), np.bool_)
    before = before_raw = SPACE
    joined = False
    for index, code in enumerate(codes):
        raw = table[code]
        own = raw
        if raw == MARK:
            own = SINGLE if before_raw == SPACE else before
            marks[index] = before_raw != SPACE
        if own != SPACE and not marks[index]:
            starts[index] = (own == SINGLE or own != before) and not joined
        classes[index] = own
        before, before_raw = own, raw
        joined = code == _ZERO_WIDTH_JOINER
    return starts, classes, marks


@compiled
def _spans_from(starts: ndarray, inside: ndarray) -> ndarray:
    """Return spans from each start to the next one, or to where `inside` ends; int64 (spans, 2)."""
    spans = np.empty((starts.sum(), 2), np.int64)
    number = -1
    is_open = False
    for index in range(len(starts)):
        if is_open and (starts[index] or not inside[index]):
            spans[number, 1] = index
            is_open = False
        if starts[index]:
            number += 1
            spans[number, 0] = index
            is_open = True
    if is_open:
        spans[number, 1] = len(starts)
    return spans


@compiled
def word_starts(begins: ndarray, spans: ndarray) -> ndarray:
    """Find the tokens that start a word, or a sentence, if the spans are sentences.

    Args:
        begins: each token's first character, int (tokens,), non-decreasing.
        spans: character spans in order, int64 (words, 2). A space counts as part of the span after it,
            since byte-level and SentencePiece tokens carry the space before their word.

    Returns:
        bool (tokens,): the token's span differs from the previous token's span.
    """
    starts = np.empty(len(begins), np.bool_)
    owner, before = 0, -1
    for index, begin in enumerate(begins):
        while owner < len(spans) and spans[owner, 1] <= begin:
            owner += 1
        starts[index] = owner != before
        before = owner
    return starts


def count_entries(segmenter: Segmenter, entries: Collection[str], texts: Iterable[str]) -> int:
    """Return how many entries of a segmenter's lexicon are words of the texts."""
    missing = set(entries)
    count = len(missing)
    for text in texts:
        missing.difference_update(text[begin:end] for begin, end in segmenter.spans(text).tolist())
        if not missing:
            break
    return count - len(missing)
