"""Planned sequences -> one masked micro-batch, read from the memory-mapped shards."""

import re
from collections.abc import Sequence
from dataclasses import astuple, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy import ndarray
from tokenizers import Tokenizer

from brimful.base.compiled import compiled_briefly
from brimful.base.errors import BrimfulError
from brimful.base.randomness import hash_words
from brimful.base.types import IGNORED
from brimful.corpus.shards import Corpus
from brimful.corpus.text.special_ids import mask_id, special_ids
from brimful.data.batch import PackedBatch, make_blank
from brimful.data.config import PAIR_SPECIAL_TOKENS, SPECIAL_TOKENS, MaskingConfig
from brimful.data.masking import MaskingVocabulary, mask_tokens
from brimful.data.pairs import NO_PAIR
from brimful.data.sequences import Sequences

UNUSED = re.compile(
    r"[\[<]\|?(unused|reserved|reserved_special_token|extra_id)[ _-]*\d+\|?[\]>]|madeupword\d+", re.IGNORECASE
)
"""Names of unused vocabulary entries: [unused1], <reserved_7>, <extra_id_0>, fairseq's
madeupword0000, <|reserved_special_token_0|>."""


def list_ordinary_ids(tokenizer: Tokenizer) -> ndarray:
    """int32: the ids of the vocabulary that are neither special nor unused, ascending."""
    special = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    special.update(astuple(special_ids(tokenizer)))
    ids = [i for name, i in tokenizer.get_vocab().items() if i not in special and not UNUSED.fullmatch(name)]
    return np.array(sorted(ids), dtype=np.int32)


class BlockSlice(NamedTuple):
    """Sequences of one block that a micro-batch takes.

    Attributes:
        corpus: where their tokens are.
        sequences: of the block.
        chosen: int64, indices into `sequences`.
        key: a hash of (seed, source, epoch) that decides their masks.
    """

    corpus: Corpus
    sequences: Sequences
    chosen: ndarray
    key: np.uint64


@compiled_briefly
def _lay(source, word_bits, ranges, sep, tokens, segments, word_starts):
    """Write ranges of a shard's tokens, whether each token starts a word, and a [SEP] after each range.

    `ranges`: int64 (n, 4), a row for each range: first token, length, destination, segment.
    """
    for row in range(len(ranges)):
        begin, n, at, segment = ranges[row]
        for i in range(n):
            token = begin + i
            tokens[at + i] = source[token]
            word_starts[at + i] = (word_bits[token >> 3] >> (token & 7)) & 1 != 0
        tokens[at + n] = sep
        segments[at : at + n + 1] = segment


def list_segments(
    sequences: Sequences, chosen: ndarray, lengths: ndarray, ends: ndarray
) -> tuple[ndarray, ndarray]:
    """List the segments of the chosen sequences: their shards, int64 (n,), and rows for `_lay`, int64 (n, 4).

    `ends`: int64, where the sequences end in the batch.
    """
    shard, begin = sequences.shard[chosen].astype(np.int64), sequences.begin[chosen]
    ranges = np.column_stack([begin, lengths - SPECIAL_TOKENS, ends - lengths + 1, np.zeros_like(begin)])
    if not len(sequences.pair):
        return shard, ranges
    pairs = np.flatnonzero(sequences.second_length[chosen])
    paired = chosen[pairs]
    n = sequences.second_length[paired].astype(np.int64)
    ranges[pairs, 1] = lengths[pairs] - PAIR_SPECIAL_TOKENS - n
    second = np.column_stack([sequences.second_begin[paired], n, ends[pairs] - n - 1, np.ones_like(n)])
    second_shard = sequences.second_shard[paired].astype(np.int64)
    return np.concatenate([shard, second_shard]), np.concatenate([ranges, second])


class SequenceReader:
    """Reads sequences into masked micro-batches."""

    def __init__(self, tokenizer: Tokenizer, masking: MaskingConfig) -> None:
        self.special = special_ids(tokenizer)
        self.masking = masking
        self.vocabulary = MaskingVocabulary(mask_id(tokenizer), list_ordinary_ids(tokenizer))
        self._maskable = np.ones(max(tokenizer.get_vocab().values()) + 1, dtype=np.bool_)
        special = self.special
        self._maskable[[special.pad, special.cls, special.sep, self.vocabulary.mask]] = False

    def batch(
        self,
        slices: Sequence[BlockSlice],
        *,
        max_length: int,
        rate: float,
        slots: int | None = None,
        sequence_slots: int | None = None,
        predictions: int | None = None,
    ) -> PackedBatch:
        """Lay sequences into one masked micro-batch, with the target `pair` if they are pairs.

        Args:
            slices: the sequences, in this order.
            max_length: the longest that a sequence may be.
            rate: the expected fraction of tokens to predict.
            slots, sequence_slots, predictions: T, S and M; by default as many as are needed.

        Raises:
            BrimfulError: a token is not in the tokenizer's vocabulary.
        """
        lengths = []
        for part in slices:
            lengths += part.sequences.length[part.chosen].tolist()
        batch = make_blank(
            lengths, max_length=max_length, pad=self.special.pad, slots=slots, sequence_slots=sequence_slots
        )
        used = sum(lengths)
        # Views: what is written to them is in the batch.
        tokens, segments = batch.tokens.numpy()[:used], batch.segments.numpy()[:used]
        word_starts = np.ones(used, dtype=np.bool_)
        keys = [np.empty(0, np.uint64)]
        at = 0
        for part in slices:
            at = self._fill(part, tokens, segments, word_starts, at)
            keys.append(hash_words(part.key, part.sequences.identity(part.chosen)))
        if tokens.max(initial=0) >= len(self._maskable) or tokens.min(initial=0) < 0:
            names = ", ".join(str(part.corpus.directory) for part in slices)
            raise BrimfulError(
                f"{names}: a token is not in the vocabulary, so a shard is damaged; brimful inspect"
                " --verify says which"
            )
        positions, labels, dropped = mask_tokens(
            tokens,
            batch.offsets.numpy()[: len(lengths) + 1],
            word_starts,
            self._maskable[tokens],
            np.concatenate(keys),
            self.masking,
            self.vocabulary,
            rate=rate,
            slots=predictions,
        )
        return replace(
            batch,
            mlm_positions=torch.from_numpy(positions),
            mlm_labels=torch.from_numpy(labels),
            targets=self._targets(slices, len(batch.offsets) - 1),
            predictions=int((labels != IGNORED).sum()),
            dropped_predictions=dropped,
        )

    def _fill(
        self, part: BlockSlice, tokens: ndarray, segments: ndarray, word_starts: ndarray, at: int
    ) -> int:
        """Write the tokens of a slice from `at` on; return where they end."""
        lengths = part.sequences.length[part.chosen].astype(np.int64)
        ends = at + np.cumsum(lengths)
        tokens[ends - lengths] = self.special.cls
        shard, ranges = list_segments(part.sequences, part.chosen, lengths, ends)
        order = np.argsort(shard, kind="stable")  # one call for all ranges of a shard
        numbers, firsts = np.unique(shard[order], return_index=True)
        for number, own in zip(numbers, np.split(ranges[order], firsts[1:]), strict=False):
            source, sep = part.corpus.shards[number], self.special.sep
            _lay(source.tokens, source.word_bits, own, sep, tokens, segments, word_starts)
        return at + int(lengths.sum())

    @staticmethod
    def _targets(slices: Sequence[BlockSlice], sequence_slots: int) -> dict[str, torch.Tensor]:
        if not any(len(part.sequences.pair) for part in slices):
            return {}
        pairs = np.concatenate([part.sequences.pair[part.chosen] for part in slices])
        target = np.full(sequence_slots, NO_PAIR, dtype=np.int64)
        target[: len(pairs)] = pairs
        return {"pair": torch.from_numpy(target)}
