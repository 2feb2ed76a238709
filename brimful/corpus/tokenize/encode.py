"""Encode clean texts: token ids, word-start bits, sentence-start bits, and counts by script."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy import ndarray

from brimful.base.compiled import compiled
from brimful.corpus.fragments.fast_tokenizer import FastTokenizer
from brimful.corpus.shards import TokenBatch
from brimful.corpus.text.character_classes import NO_SCRIPT, SCRIPTS, character_scripts
from brimful.corpus.text.characters import code_points
from brimful.corpus.text.special_ids import unknown_id
from brimful.corpus.words.segmenter import Segmenter, word_starts
from brimful.corpus.words.sentences import sentence_spans

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_TOKENS_IN_WORD = 32
"""In a longer word, each token is a word of its own. Otherwise whole-word masking would hide a whole
protein, or a line of a script without spaces."""


@dataclass(frozen=True)
class EncodedTexts:
    """Tokenized texts.

    Attributes:
        batch: their tokens; `lengths` has a number for each text, zero where it has no tokens, and `sources`
            is empty.
        scripts: by script (`Han`, `Latin` ...) the number of `characters` (spaces not counted), `tokens` and
            characters in `unknown` tokens. A token belongs to the script of its first character that is not a
            space.
        lacking: the characters that the vocabulary lacks, each with its occurrences; the whole word of such a
            character may become an unknown token.
    """

    batch: TokenBatch
    scripts: dict[str, dict[str, int]]
    lacking: Counter[str]


class TextTokenizer:
    """Tokenizes clean texts, without special tokens, and finds their words and sentences.

    Token ids are exactly the ids that the tokenizer gives for each text.

    Args:
        tokenizer: a tokenizer of any kind; it must not change afterwards.
        segmenter: finds the words.
    """

    def __init__(self, tokenizer: "Tokenizer", segmenter: Segmenter) -> None:
        self._tokenize = FastTokenizer(tokenizer)
        self._segmenter = segmenter
        self._tokenizer = tokenizer
        self._unknown = unknown_id(tokenizer)
        self._lacks_character: dict[str, bool] = {}
        self.vocabulary_size: int = tokenizer.get_vocab_size()

    def __call__(self, texts: Sequence[str]) -> EncodedTexts:
        """Encode `texts`. They are read as one, with a line break between them.

        Raises:
            TypeError: a text holds a lone surrogate.
        """
        joined = "\n".join(texts)
        codes = code_points(joined)
        tokens, begins, lengths = self._tokenize(texts, codes)
        words = word_starts(begins, self._segmenter.spans(joined))
        # A sentence can only start where a word does: a lexicon word such as `Yahoo! Inc` is not cut.
        sentences = word_starts(begins, sentence_spans(joined)) & words
        # Every text begins a word and a sentence, even if its first character is a space.
        firsts = (np.cumsum(lengths) - lengths)[lengths > 0]
        words[firsts] = sentences[firsts] = True
        starts = np.flatnonzero(words)
        sizes = np.diff(starts, append=len(tokens))
        words |= np.repeat(sizes > MAX_TOKENS_IN_WORD, sizes)
        scripts = {}
        counts_of_scripts = _count_scripts(codes, begins, tokens, self._unknown, character_scripts())
        for script, (characters, count, unknown) in zip(SCRIPTS, counts_of_scripts.tolist(), strict=True):
            if characters or count:
                scripts[script] = {"characters": characters, "tokens": count, "unknown": unknown}
        batch = TokenBatch(tokens, words, sentences, lengths, np.empty((0, 2), np.int64))
        return EncodedTexts(batch, scripts, self._count_lacking(codes, tokens, begins))

    def _count_lacking(self, codes: ndarray, tokens: ndarray, begins: ndarray) -> Counter[str]:
        """Count the characters of unknown tokens that the vocabulary lacks."""
        lacking: Counter[str] = Counter()
        unknown = np.flatnonzero(tokens == self._unknown)
        if not len(unknown):
            return lacking
        ends = np.append(begins, len(codes))[unknown + 1]
        # A character is in an unknown token where more of them have begun than ended.
        edges = np.zeros(len(codes) + 1, np.int64)
        np.add.at(edges, begins[unknown], 1)
        np.add.at(edges, ends, -1)
        different, counts = np.unique(codes[np.cumsum(edges[:-1]) > 0], return_counts=True)
        for character, count in zip(map(chr, different), counts.tolist(), strict=True):
            if not character.isspace() and self._lacks(character):
                lacking[character] = count
        return lacking

    def _lacks(self, character: str) -> bool:
        """Whether a character is unknown at the beginning of a word or within one.

        WordPiece has a piece for each place. For the second one, the character itself stands before it.
        """
        if character not in self._lacks_character:
            alone, doubled = self._tokenizer.encode_batch(
                [character, 2 * character], add_special_tokens=False
            )
            self._lacks_character[character] = self._unknown in alone.ids + doubled.ids
        return self._lacks_character[character]


@compiled
def _count_scripts(codes: ndarray, begins: ndarray, tokens: ndarray, unknown: int, table: ndarray) -> ndarray:
    """Count characters, tokens, and characters in unknown tokens, by script.

    Args:
        begins: each token's first character, int (tokens,).
        unknown: the id of the unknown token, or -1.
        table: `character_scripts()`.

    Returns:
        int64 (scripts, 3). A token of whitespace belongs to the script of the text after it; at the end,
        to the last script.
    """
    counts = np.zeros((NO_SCRIPT + 1, 3), np.int64)
    for code in codes:
        counts[table[code], 0] += 1
    for index, begin in enumerate(begins):
        while begin + 1 < len(codes) and table[codes[begin]] == NO_SCRIPT:
            begin += 1
        script = table[codes[begin]]
        counts[script, 1] += 1
        if tokens[index] == unknown:
            end = begins[index + 1] if index + 1 < len(begins) else len(codes)
            for place in range(begin, end):
                counts[script, 2] += table[codes[place]] != NO_SCRIPT
    counts[NO_SCRIPT - 1, 1:] += counts[NO_SCRIPT, 1:]
    return counts[:NO_SCRIPT]
