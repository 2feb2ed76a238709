"""Token ids and offsets of texts, equal to those that `tokenizers` gives, mostly from memory.

Texts are cut where the tokens of either side provably do not depend on the other (see `cuts`), fragments
seen before are looked up (see `memo`), and only new ones are given to the tokenizer. A pipeline without known
cuts gets its texts whole: slower, and equally exact.
"""

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy import ndarray

from brimful.corpus.fragments.cuts import Cuts, safe_cuts
from brimful.corpus.fragments.memo import INSIDE, PLAIN_HAN, FragmentTokens, Memo, Rules
from brimful.corpus.text.batches import batch_by_characters
from brimful.corpus.text.characters import code_points, lengths_of

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

    def __call__(self, texts: Sequence[str], codes: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        """Tokenize `texts`.

        Args:
            codes: their code points, with one character between each two texts, uint32 (characters,).

        Returns:
            ids uint32 (T,); the first character of each token as an index of `codes`, int64 (T,); tokens of
            each text, int64 (texts,).
        """
        sizes = lengths_of(texts)
        ends = np.cumsum(sizes + 1) - 1
        begins = ends - sizes
        if self._cuts is None or self._memo is None:
            answers = self._ask(texts, [""] * len(texts))
            lengths = np.diff(answers.ends)
            return answers.tokens, answers.places + np.repeat(begins, lengths), lengths
        self._cuts.learn(codes)
        return self._memo(codes, begins, ends)

    def _make_memo(self, cuts: Cuts) -> Memo:
        pieces = self._list_han_pieces(cuts) if cuts.longest_run else []
        longest_piece = max(map(len, pieces), default=0)
        rules = Rules(cuts.kinds, cuts.positional, cuts.longest_run, longest_piece)

        def ask(fragments: list[str], kinds: list[int]) -> FragmentTokens:
            contexts = []
            for fragment, kind in zip(fragments, kinds, strict=True):
                contexts.append(cuts.context(fragment[0]) if kind == INSIDE else "")
            return self._ask(fragments, contexts)

        return Memo(rules, ask, pieces)

    def _ask(self, texts: Sequence[str], contexts: Sequence[str]) -> FragmentTokens:
        """Return the tokens of texts that stand after a context, without the context's tokens."""
        for context in set(contexts) - self._context_tokens.keys():
            self._context_tokens[context] = len(self._tokenizer.encode(context, add_special_tokens=False))
        tokens, places, ends = array("I"), array("i"), array("q", [0])
        pairs = zip(texts, contexts, strict=True)
        for batch in batch_by_characters(pairs, ASKED_CHARACTERS, lambda pair: len(pair[0])):
            joined = [context + text for text, context in batch]
            encodings = self._tokenizer.encode_batch(joined, add_special_tokens=False)
            for (_, context), encoding in zip(batch, encodings, strict=True):
                skipped = self._context_tokens[context]
                tokens.extend(encoding.ids[skipped:])
                places.extend(begin - len(context) for begin, _ in encoding.offsets[skipped:])
                ends.append(len(tokens))
        return FragmentTokens(
            np.array(tokens, np.uint32), np.array(places, np.int32), np.array(ends, np.int64)
        )

    def _list_han_pieces(self, cuts: Cuts) -> list[str]:
        """Return the entries of the vocabulary that longest match finds in runs of PLAIN_HAN."""
        vocabulary = list(self._tokenizer.get_vocab(with_added_tokens=False))
        cuts.learn(code_points("".join(vocabulary)))
        pieces = []
        for entry in vocabulary:
            is_plain = (cuts.kinds[code_points(entry)] == PLAIN_HAN).all()
            if is_plain and 0 < len(entry) <= cuts.longest_run:
                pieces.append(entry)
        return pieces
