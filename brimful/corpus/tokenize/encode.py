"""Clean texts -> token ids, word-start bits, sentence-start bits, and counts by script."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from brimful.corpus.segments.fast_tokenizer import FastTokenizer
from brimful.corpus.shards import TokenBatch
from brimful.corpus.words.segmenter import Segmenter, word_starts
from brimful.text.characters import SCRIPTS, character_scripts, code_points
from brimful.text.tokenizer import unknown_id

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class Encoded:
    """Tokenized texts.

    Attributes:
        batch: their tokens; `lengths` has a number for each text, zero where it has no tokens, and `sources`
            is left empty.
        scripts: by script (`Han`, `Latin` ...) the number of `characters` (spaces not counted), `tokens` and
            `unknown` tokens. A token belongs to the script of its first character that is not a space.
    """

    batch: TokenBatch
    scripts: dict[str, dict[str, int]]


class TextEncoder:
    """Tokenizes clean texts, without special tokens, and finds their words and sentences.

    Token ids are exactly those that the tokenizer gives for each text.

    Args:
        tokenizer: of any kind; it must not change afterwards.
        segmenter: finds the words.
    """

    def __init__(self, tokenizer: "Tokenizer", segmenter: Segmenter) -> None:
        self._tokenize = FastTokenizer(tokenizer)
        self._segmenter = segmenter
        self._unknown = unknown_id(tokenizer)
        self.vocabulary_size: int = tokenizer.get_vocab_size()

    def __call__(self, texts: Sequence[str]) -> Encoded:
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
        return Encoded(TokenBatch(tokens, words, sentences, lengths, np.empty((0, 2), np.int64)), scripts)
