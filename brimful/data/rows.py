"""Planned rows -> masked micro-batches: pretraining's stream of updates.

The stream is endless: block after block, epoch after epoch. Where it stands is a cursor, a small JSON
value, and `take(cursor)` is a pure function of it: resuming costs nothing and gives the same bits.
"""

from dataclasses import astuple, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch

from brimful.corpus.shards import Corpus
from brimful.corpus.tokenization.tokenizer import SpecialIds
from brimful.data.batch import IGNORED, PackedBatch, pack
from brimful.data.blocks import Block, Blocks
from brimful.data.masking import MaskingConfig, Vocabulary, mask_tokens, prediction_slots
from brimful.data.sequences import SPECIAL_TOKENS, Sequences
from brimful.errors import BrimfulError
from brimful.packing.dealing import deal
from brimful.randomness import derive_key, hash_words

Row = tuple[int, Block, np.ndarray]
"""Epoch, block, and int64 indices of the row's sequences in the block."""

ROWS_PER_HAND = 4
"""The least rows over which attention costs are evened out; more ranks can profit where it is less."""

Cursor = dict[str, Any]
"""Where a stream stands: JSON values only."""


def ordinary_ids(vocabulary_size: int, special: SpecialIds) -> np.ndarray:
    """int32: every id of the vocabulary but the special ones."""
    return np.setdiff1d(
        np.arange(vocabulary_size, dtype=np.int32), [i for i in astuple(special) if i is not None]
    )


class SequenceReader:
    """Reads planned sequences of a corpus into masked micro-batches."""

    def __init__(
        self, corpus: Corpus, special: SpecialIds, masking: MaskingConfig, max_length: int, seed: int
    ) -> None:
        self.corpus = corpus
        self.special = special
        self.masking = masking
        self.max_length = max_length
        self.seed = seed
        self.vocabulary = Vocabulary(special.mask, ordinary_ids(corpus.vocabulary_size, special))

    def _read(self, sequences: Sequences, chosen: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        """Token ids of each sequence with [CLS] and [SEP], and where words start, bool, for all of them."""
        tokens, word_starts = [], []
        shards = self.corpus.shards
        columns = (sequences.shard, sequences.begin, sequences.length)
        for shard, begin, length in zip(*(column[chosen].tolist() for column in columns), strict=True):
            end = begin + length - SPECIAL_TOKENS
            ids = np.empty(length, dtype=np.int32)
            ids[0], ids[1:-1], ids[-1] = self.special.cls, shards[shard].tokens[begin:end], self.special.sep
            starts = np.ones(length, dtype=bool)
            starts[2:-1] = shards[shard].word_starts(begin + 1, end)
            tokens.append(ids)
            word_starts.append(starts)
        return tokens, np.concatenate(word_starts)

    def batch(
        self,
        parts: list[Row],
        *,
        slots: int | None = None,
        sequence_slots: int | None = None,
        predictions: int | None = None,
    ) -> tuple[PackedBatch, int]:
        """Lay sequences into one masked micro-batch.

        Args:
            parts: (epoch, block, int64 indices of its sequences).
            slots, sequence_slots, predictions: T, S and M; without them, as many as there are.

        Returns:
            the batch, and how many predictions did not fit M.
        """
        tokens: list[np.ndarray] = []
        word_starts, keys = [], []
        for epoch, block, chosen in parts:
            ids, starts = self._read(block.sequences, chosen)
            key = derive_key(self.seed, "masking", epoch)
            tokens += ids
            word_starts.append(starts)
            keys.append(hash_words(key, block.sequences.identity(chosen)))
        lengths = [len(ids) for ids in tokens]
        batch = pack(
            tokens,
            max_length=self.max_length,
            pad=self.special.pad,
            slots=slots,
            sequence_slots=sequence_slots,
        )
        real = slice(0, sum(lengths))
        laid = batch.tokens.numpy()[real]
        shown, positions, labels, dropped = mask_tokens(
            laid,
            batch.positions.numpy()[real],
            np.concatenate(word_starts),
            (laid != self.special.cls) & (laid != self.special.sep),
            np.repeat(np.concatenate(keys), lengths),
            self.masking,
            self.vocabulary,
            predictions,
        )
        batch.tokens[real] = torch.from_numpy(shown)
        masked = replace(
            batch, mlm_positions=torch.from_numpy(positions), mlm_labels=torch.from_numpy(labels)
        )
        return masked, dropped


class RowStream:
    """Updates of `rows_per_update` rows, in micro-batches of `rows_per_micro_batch`.

    Micro-batch i of an update belongs to rank `i % world`, so what an update holds does not depend on the
    number of ranks. Its rows are dealt to micro-batches so that ranks have about the same attention cost.

    Args:
        fixed_shapes: pad S to a constant (T and M are constant anyway), for compilers and CUDA graphs.
    """

    def __init__(
        self,
        reader: SequenceReader,
        blocks: Blocks,
        *,
        rows_per_update: int,
        rows_per_micro_batch: int,
        fixed_shapes: bool = False,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.reader = reader
        self.blocks = blocks
        self.rows_per_update = rows_per_update
        self.rows_per_micro_batch = rows_per_micro_batch
        self.fixed_shapes = fixed_shapes
        self.rank = rank
        self.world = world
        self.dropped_predictions = 0
        self.predictions = 0
        self._open = lru_cache(maxsize=2)(blocks.open)

    def start(self) -> Cursor:
        """The cursor of a new run."""
        return {"epoch": 0, "block": 0, "row": 0}

    def take(self, cursor: Cursor) -> tuple[list[PackedBatch], Cursor]:
        """This rank's micro-batches of the update at `cursor`, and the cursor of the next update.

        Raises:
            BrimfulError: the cursor belongs to another plan (the data or the packing changed).
        """
        epoch, place, row = cursor["epoch"], cursor["block"], cursor["row"]
        plan = cursor.get("plan")
        rows: list[Row] = []
        while len(rows) < self.rows_per_update:
            number = int(self.blocks.order(epoch)[place])
            block = self._open(epoch, number)
            if plan not in (None, block.digest):
                raise BrimfulError(
                    "the checkpoint was made from other data or packing (or another scipy); start a new run"
                )
            plan = block.digest
            order = self.blocks.row_order(epoch, number, block.rows)
            taken = order[row : row + self.rows_per_update - len(rows)]
            rows += [(epoch, block, block.row(r)) for r in taken]
            row += len(taken)
            if row == block.rows:
                if self.rank == 0:
                    self.blocks.drop(epoch, number)
                place, row, plan = place + 1, 0, None
                if place == self.blocks.count:
                    epoch, place = epoch + 1, 0
        rows = self._dealt(rows, derive_key(self.blocks.seed, "deal", epoch, place, row))
        starts = range(0, len(rows), self.rows_per_micro_batch)
        mine = [s for index, s in enumerate(starts) if index % self.world == self.rank]
        batches = [self._micro_batch(rows[s : s + self.rows_per_micro_batch]) for s in mine]
        return batches, {"epoch": epoch, "block": place, "row": row} | ({"plan": plan} if plan else {})

    @cached_property
    def _hands(self) -> int:
        """Among how many groups of micro-batches an update's rows are dealt; 1 = they are not."""
        micro_batches, left = divmod(self.rows_per_update, self.rows_per_micro_batch)
        most = 0 if left else min(micro_batches, self.rows_per_update // ROWS_PER_HAND)
        divisors = [n for n in range(1, most + 1) if micro_batches % n == 0]
        powers = [n for n in divisors if n & (n - 1) == 0]  # ranks mostly come in powers of two
        return max([n for n in powers if n > 1] or divisors or [1])

    def _dealt(self, rows: list[Row], key: np.uint64) -> list[Row]:
        """An update's rows in an order in which the i-th, (n + i)-th ... micro-batch cost as much for every i
        below n: for n = 2, 4, 8 ..., as far as its number of rows and of micro-batches allows."""
        each, hands = self.rows_per_micro_batch, self._hands
        if hands == 1:
            return rows
        costs = np.array([np.square(b.sequences.length[row], dtype=np.int64).sum() for _, b, row in rows])
        dealt, _ = deal(costs, hands, len(rows) // hands, key)
        order = dealt[0].reshape(hands, -1, each).swapaxes(0, 1).ravel()
        return [rows[i] for i in order]

    def _micro_batch(self, rows: list[Row]) -> PackedBatch:
        config = self.blocks.config
        slots = self.rows_per_micro_batch * config.capacity
        sequence_slots = None
        if self.fixed_shapes:
            sequence_slots = self.rows_per_micro_batch * config.depth + slots // config.max_length + 1
        predictions = prediction_slots(slots, self.reader.masking.rate)
        batch, dropped = self.reader.batch(
            rows, slots=slots, sequence_slots=sequence_slots, predictions=predictions
        )
        assert batch.mlm_labels is not None
        self.dropped_predictions += dropped
        self.predictions += int((batch.mlm_labels != IGNORED).sum())
        return batch
