"""Clean texts -> token ids, word-start bits, sentence-start bits, and counts by script."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from brimful.corpus.fragments.fast_tokenizer import FastTokenizer
from brimful.corpus.shards import TokenBatch
from brimful.corpus.text.characters import SCRIPTS, character_scripts, code_points
from brimful.corpus.text.special_ids import unknown_id
from brimful.corpus.words.segmenter import Segmenter, word_starts

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class EncodedTexts:
    """Tokenized texts.

    Attributes:
        batch: their tokens; `lengths` has a number for each text, zero where it has no tokens, and `sources`
            is left empty.
        scripts: by script (`Han`, `Latin` ...) the number of `characters` (spaces not counted), `tokens` and
            `unknown` tokens. A token belongs to the script of its first character that is not a space.
        lacking: the characters that the vocabulary lacks, each with its occurrences; the whole word of such a
            character may become an unknown token.
    """

    batch: TokenBatch
    scripts: dict[str, dict[str, int]]
    lacking: Counter[str]


class TextTokenizer:
    """Tokenizes clean texts, without special tokens, and finds their words and sentences.

    Token ids are exactly those that the tokenizer gives for each text.

    Args:
        tokenizer: of any kind; it must not change afterwards.
        segmenter: finds the words.
    """

    def __init__(self, tokenizer: "Tokenizer", segmenter: Segmenter) -> None:
        self._tokenize = FastTokenizer(tokenizer)
        self._segmenter = segmenter
        self._tokenizer = tokenizer
        self._unknown = unknown_id(tokenizer)
        self._lacked: dict[str, bool] = {}
        self.vocabulary_size: int = tokenizer.get_vocab_size()

    def __call__(self, texts: Sequence[str]) -> EncodedTexts:
        """Encode `texts`. They are read as one, with a line break between them.

        Raises:
            TypeError: a text holds a lone surrogate.
        """
        from brimful.corpus.words.boundaries import count_scripts
        from brimful.corpus.words.sentences import sentence_spans

        joined = "\n".join(texts)
        codes = code_points(joined)
        tokens, begins, lengths = self._tokenize(texts, codes)
        words = word_starts(begins, self._segmenter.spans(joined))
        # A sentence can only start where a word does: a lexicon word such as `Yahoo! Inc` is not cut.
        sentences = word_starts(begins, sentence_spans(joined)) & words
        firsts = (np.cumsum(lengths) - lengths)[lengths > 0]
        words[firsts] = sentences[firsts] = True
        counted = count_scripts(
            codes, begins, tokens, self._unknown, character_scripts(), len(SCRIPTS)
        ).tolist()
        scripts = {
            script: dict(zip(("characters", "tokens", "unknown"), counts, strict=True))
            for script, counts in zip(SCRIPTS, counted, strict=False)
            if any(counts)
        }
        batch = TokenBatch(tokens, words, sentences, lengths, np.empty((0, 2), np.int64))
        return EncodedTexts(batch, scripts, self._lacking(codes, tokens, begins))

    def _lacking(self, codes: np.ndarray, tokens: np.ndarray, begins: np.ndarray) -> Counter[str]:
        """The characters of unknown tokens that the vocabulary lacks, counted."""
        unknown = np.flatnonzero(tokens == self._unknown)
        if not len(unknown):
            return Counter()
        ends = np.append(begins, len(codes))[unknown + 1]
        edges = np.zeros(len(codes) + 1, np.int64)
        np.add.at(edges, begins[unknown], 1)
        np.add.at(edges, ends, -1)
        found, counts = np.unique(codes[np.cumsum(edges[:-1]) > 0], return_counts=True)
        return Counter(
            {
                chr(code): count
                for code, count in zip(found.tolist(), counts.tolist(), strict=True)
                if not chr(code).isspace() and self._lacks(chr(code))
            }
        )

    def _lacks(self, character: str) -> bool:
        """Whether a character is unknown alone, or behind a letter."""
        if character not in self._lacked:
            asked = [character, f"{self._letter}{character}"]
            self._lacked[character] = any(self._is_unknown(text) for text in asked)
        return self._lacked[character]

    @cached_property
    def _letter(self) -> str:
        """A letter that the vocabulary has; empty if it has no single letters."""
        letters = (piece for piece in self._tokenizer.get_vocab() if len(piece) == 1 and piece.isalpha())
        return next((letter for letter in sorted(letters) if not self._is_unknown(letter)), "")

    def _is_unknown(self, text: str) -> bool:
        return self._unknown in self._tokenizer.encode(text, add_special_tokens=False).ids
