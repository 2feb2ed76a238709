"""Token ids and offsets of texts, equal to those that `tokenizers` gives, mostly from memory.

Texts are cut where the tokens of either side provably do not depend on the other (see `cuts`), fragments
seen before are looked up (see `memo`), and only new ones are given to the tokenizer. A pipeline without known
cuts gets its texts whole: slower, and equally exact.
"""

from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from brimful.corpus.fragments.cuts import Cuts, safe_cuts
from brimful.corpus.fragments.memo import INSIDE, PLAIN_HAN, Memo, Rules, Values
from brimful.corpus.text.batches import batch_by_characters
from brimful.corpus.text.characters import code_points

if TYPE_CHECKING:
    from tokenizers import Tokenizer

ASKED_CHARACTERS = 1 << 15
"""An answer takes about 150 bytes a token."""


class FastTokenizer:
    """Tokenizes texts without special tokens. Not for use by several threads at once.

    Args:
        tokenizer: the sole authority on tokens. It must not change afterwards. Its `encode_special_tokens`
            decides whether a text that spells a special token gets that token.
    """

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._context_tokens: dict[str, int] = {}
        self._cuts = safe_cuts(tokenizer)
        self._memo = self._make_memo(self._cuts) if self._cuts else None

    def __call__(self, texts: Sequence[str], codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tokenize `texts`.

        Args:
            codes: their code points, with one character between each two texts, uint32 (characters,).

        Returns:
            ids uint32 (T,); the first character of each token as an index of `codes`, int64 (T,); tokens of
            each text, int64 (texts,).
        """
        sizes = np.fromiter(map(len, texts), np.int64, len(texts))
        ends = np.cumsum(sizes + 1) - 1
        begins = ends - sizes
        if self._cuts is None or self._memo is None:
            values = self._ask(texts, [""] * len(texts))
            lengths = np.diff(values.ends)
            return values.tokens, values.places + np.repeat(begins, lengths), lengths
        self._cuts.learn(codes)
        return self._memo(codes, begins, ends)

    def _make_memo(self, cuts: Cuts) -> Memo:
        def ask(texts: list[str], kinds: list[int]) -> Values:
            contexts = [
                cuts.context(text[0]) if kind == INSIDE else ""
                for text, kind in zip(texts, kinds, strict=True)
            ]
            return self._ask(texts, contexts)

        pieces = self._han_pieces(cuts) if cuts.longest_run else []
        longest = max(map(len, pieces), default=0)
        return Memo(Rules(cuts.kinds, cuts.matrix, cuts.positional, cuts.longest_run, longest), ask, pieces)

    def _ask(self, texts: Sequence[str], contexts: Sequence[str]) -> Values:
        """The tokens of texts that stand after a context, without the context's tokens."""
        for context in set(contexts) - self._context_tokens.keys():
            self._context_tokens[context] = len(self._tokenizer.encode(context, add_special_tokens=False))
        pairs = zip(texts, contexts, strict=True)
        batches = batch_by_characters(pairs, ASKED_CHARACTERS, lambda pair: len(pair[0]))
        answers = [self._ask_some(*zip(*batch, strict=True)) for batch in batches]
        columns = (np.concatenate(column) for column in zip(*answers, strict=True))
        tokens, places, lengths = columns if answers else (np.empty(0, np.int64) for _ in range(3))
        return Values(tokens, places, np.concatenate([[0], np.cumsum(lengths)]))

    def _ask_some(
        self, texts: Sequence[str], contexts: Sequence[str]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        asked = [context + text for context, text in zip(contexts, texts, strict=True)]
        encodings = self._tokenizer.encode_batch(asked, add_special_tokens=False)
        skipped = [self._context_tokens[context] for context in contexts]
        lengths = np.fromiter(map(len, encodings), np.int64, len(texts)) - np.array(skipped, np.int64)
        total = int(lengths.sum())
        parts = list(zip(encodings, skipped, strict=True))
        ids = chain.from_iterable(encoding.ids[skip:] for encoding, skip in parts)
        offsets = chain.from_iterable(encoding.offsets[skip:] for encoding, skip in parts)
        tokens = np.fromiter(ids, np.uint32, total)
        places = np.fromiter(map(itemgetter(0), offsets), np.int32, total)
        places -= np.repeat(np.fromiter(map(len, contexts), np.int32, len(texts)), lengths)
        return tokens, places, lengths

    def _han_pieces(self, cuts: Cuts) -> list[str]:
        """The entries of the vocabulary that longest match finds in runs of PLAIN_HAN."""
        vocabulary = list(self._tokenizer.get_vocab(with_added_tokens=False))
        cuts.learn(code_points("".join(vocabulary)))
        return [
            piece
            for piece in vocabulary
            if 0 < len(piece) <= cuts.longest_run and (cuts.kinds[code_points(piece)] == PLAIN_HAN).all()
        ]
