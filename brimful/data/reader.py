"""Planned sequences -> one masked micro-batch, read from the memory-mapped shards."""

import re
from collections.abc import Sequence
from dataclasses import astuple, replace
from typing import NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer

from brimful.compiled import compiled_briefly
from brimful.corpus.shards import Corpus
from brimful.corpus.tokenization.tokenizer import special_ids
from brimful.data.batch import IGNORED, PackedBatch, blank
from brimful.data.masking import MaskingConfig, Vocabulary, mask_tokens
from brimful.data.pairs import NO_PAIR
from brimful.data.sequences import PAIR_SPECIAL_TOKENS, SPECIAL_TOKENS, Sequences
from brimful.errors import BrimfulError
from brimful.randomness import hash_words

UNUSED = re.compile(
    r"[\[<]\|?(unused|reserved|reserved_special_token|extra_id)[ _-]*\d+\|?[\]>]|madeupword\d+", re.IGNORECASE
)
"""Names of vocabulary entries that stand for nothing yet: [unused1], <reserved_7>, <extra_id_0>, fairseq's
madeupword0000, <|reserved_special_token_0|>."""


def ordinary_ids(tokenizer: Tokenizer) -> np.ndarray:
    """int32: every id of the vocabulary but the special and the unused ones, ascending."""
    special = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    special |= {i for i in astuple(special_ids(tokenizer)) if i is not None}
    ids = [i for name, i in tokenizer.get_vocab().items() if i not in special and not UNUSED.fullmatch(name)]
    return np.array(sorted(ids), dtype=np.int32)


class Part(NamedTuple):
    """Some sequences of a micro-batch.

    Attributes:
        corpus: whose ranges they are.
        chosen: int64, which of `sequences`.
        key: a hash of (seed, epoch), which decides their masks.
    """

    corpus: Corpus
    sequences: Sequences
    chosen: np.ndarray
    key: np.uint64


@compiled_briefly
def _lay(
    source: np.ndarray,
    word_bits: np.ndarray,
    begin: int,
    n: int,
    sep: int,
    segment: int,
    at: int,
    tokens: np.ndarray,
    segments: np.ndarray,
    word_starts: np.ndarray,
) -> None:
    """Write n tokens from `begin` on, and which of them start words, then [SEP]."""
    for i in range(n):
        token = begin + i
        tokens[at + i] = source[token]
        word_starts[at + i] = (word_bits[token >> 3] >> (token & 7)) & 1 != 0
    tokens[at + n] = sep
    segments[at : at + n + 1] = segment


class SequenceReader:
    """Reads sequences into masked micro-batches."""

    def __init__(self, tokenizer: Tokenizer, masking: MaskingConfig) -> None:
        self.special = special_ids(tokenizer)
        self.masking = masking
        self.vocabulary = Vocabulary(self.special.mask, ordinary_ids(tokenizer))
        self._maskable = np.ones(max(tokenizer.get_vocab().values()) + 1, dtype=np.bool_)
        for never in (self.special.pad, self.special.cls, self.special.sep, self.special.mask):
            self._maskable[never] = False

    def batch(
        self,
        parts: Sequence[Part],
        *,
        max_length: int,
        rate: float,
        slots: int | None = None,
        sequence_slots: int | None = None,
        predictions: int | None = None,
    ) -> PackedBatch:
        """Lay sequences into one masked micro-batch. Pairs give it the target `pair`.

        Args:
            max_length: the longest that a sequence may be.
            rate: expected share of tokens to predict.
            slots, sequence_slots, predictions: T, S and M; without them, as many as there are.

        Raises:
            BrimfulError: a token is none of the tokenizer's.
        """
        lengths = [length for part in parts for length in part.sequences.length[part.chosen].tolist()]
        batch = blank(
            lengths, max_length=max_length, pad=self.special.pad, slots=slots, sequence_slots=sequence_slots
        )
        used = sum(lengths)
        tokens, segments = batch.tokens.numpy()[:used], batch.segments.numpy()[:used]
        word_starts = np.ones(used, dtype=np.bool_)
        at = 0
        for part in parts:
            at = self._fill(part, tokens, segments, word_starts, at)
        if tokens.max(initial=0) >= len(self._maskable) or tokens.min(initial=0) < 0:
            names = ", ".join(str(part.corpus.directory) for part in parts)
            raise BrimfulError(
                f"{names}: a token is not in the vocabulary, so the shards are damaged; prepare again"
            )
        keys = [hash_words(part.key, part.sequences.identity(part.chosen)) for part in parts]
        positions, labels, dropped = mask_tokens(
            tokens,
            batch.offsets.numpy()[: len(lengths) + 1],
            word_starts,
            self._maskable[tokens],
            np.concatenate(keys) if keys else np.empty(0, np.uint64),
            self.masking,
            self.vocabulary,
            rate=rate,
            slots=predictions,
        )
        return replace(
            batch,
            mlm_positions=torch.from_numpy(positions),
            mlm_labels=torch.from_numpy(labels),
            targets=self._targets(parts, len(batch.offsets) - 1),
            predictions=int((labels != IGNORED).sum()),
            dropped_predictions=dropped,
        )

    def _fill(
        self, part: Part, tokens: np.ndarray, segments: np.ndarray, word_starts: np.ndarray, at: int
    ) -> int:
        """Write a part's tokens from `at` on; returns where they end."""
        sequences, shards, sep = part.sequences, part.corpus.shards, self.special.sep
        written = (tokens, segments, word_starts)
        columns = [sequences.shard, sequences.begin, sequences.length]
        if len(sequences.pair):
            columns += [sequences.second_shard, sequences.second_begin, sequences.second_length]
        ranges = (column[part.chosen].tolist() for column in columns)
        for shard, begin, length, *second in zip(*ranges, strict=True):
            n = length - SPECIAL_TOKENS
            if second and second[-1]:
                number, second_begin, size = second
                n = length - PAIR_SPECIAL_TOKENS - size
                other = shards[number]
                _lay(other.tokens, other.word_bits, second_begin, size, sep, 1, at + n + 2, *written)
            tokens[at] = self.special.cls
            _lay(shards[shard].tokens, shards[shard].word_bits, begin, n, sep, 0, at + 1, *written)
            at += length
        return at

    @staticmethod
    def _targets(parts: Sequence[Part], sequence_slots: int) -> dict[str, torch.Tensor]:
        if not any(len(part.sequences.pair) for part in parts):
            return {}
        pairs = np.concatenate([part.sequences.pair[part.chosen] for part in parts])
        target = np.full(sequence_slots, NO_PAIR, dtype=np.int64)
        target[: len(pairs)] = pairs
        return {"pair": torch.from_numpy(target)}
