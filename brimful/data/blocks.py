"""The corpus as blocks: each epoch divides the shuffled documents into blocks, and each block has one
committed, memory-mapped plan.

A plan holds the sequences of the block's documents and the row of each. It is a pure function of the corpus
and (seed, epoch, block) (and, where best-fit does not suffice, of the solver's version), so it can be made
again at any time. On disk it is a cache that several processes share, written atomically with its commit
record last. There is no table of all documents: a keyed permutation gives the documents of a block.
"""

import functools
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy import ndarray

from brimful.base.compiled import compiled
from brimful.base.config import config_hash
from brimful.base.draws import shuffle_indices
from brimful.base.randomness import derive_key, permutation
from brimful.base.storage import atomic_files, commit, find_commit
from brimful.corpus.shards import Corpus, map_file
from brimful.data.config import SPECIAL_TOKENS, PackingConfig, SequencesConfig
from brimful.data.pairs import pair_stretches
from brimful.data.sequences import SEQUENCE_ARRAYS, Sequences, cut_documents, make_sequences
from brimful.packing.assignment import assign
from brimful.packing.cutting_stock import cutting_stock
from brimful.packing.histogram import Plan, count_lengths
from brimful.packing.pack_first import best_fit

BLOCK_TOKENS = 64_000_000
BLOCK_ROWS = 1000
"""A block has at least about this many rows, if the corpus has so many. Then about a thousandth of the slots
are empty: those in its last rows."""
BLOCKS_PER_EPOCH = 16
"""Blocks per epoch of a small corpus, if they have enough rows: a new length can only start at a block."""
PLANNER = f"best-fit, else cutting stock by scipy {version('scipy')}"
"""Another version of the solver may find another plan with as many rows."""
PLAN_ARRAYS: dict[str, type[np.generic]] = {**SEQUENCE_ARRAYS, "row_offsets": np.int64, "order": np.int64}
"""The files of a plan: bare arrays. (Planners are threads, and in a thread of Python 3.11 parsing the header
of a .npy file fails now and then.)"""


@compiled
def _measure(lengths, order, row_offsets, rows, tokens, costs):
    for i in range(len(rows)):
        for place in range(row_offsets[rows[i]], row_offsets[rows[i] + 1]):
            length = np.int64(lengths[order[place]])
            tokens[i] += length
            costs[i] += length * length


@dataclass(frozen=True)
class Block:
    """A block's sequences and rows: row r holds the sequences `order[row_offsets[r]:row_offsets[r + 1]]`.

    Attributes:
        max_length: the longest that a sequence may be.
    """

    sequences: Sequences
    row_offsets: ndarray
    order: ndarray
    max_length: int
    digest: str

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.row_offsets) - 1

    def row(self, index: int) -> ndarray:
        """int64: the sequences of a row."""
        return self.order[self.row_offsets[index] : self.row_offsets[index + 1]]

    def measure(self, rows: ndarray) -> tuple[ndarray, ndarray]:
        """Sum the tokens of each of these rows, and its attention cost (squared lengths): int64 (n,)."""
        tokens, costs = np.zeros((2, len(rows)), dtype=np.int64)
        _measure(self.sequences.length, self.order, self.row_offsets, rows, tokens, costs)
        return tokens, costs


@dataclass(eq=False)
class Blocks:
    """The blocks of a corpus, planned on demand.

    Attributes:
        directory: where plans are committed.
    """

    corpus: Corpus
    packing: PackingConfig
    sequences: SequencesConfig
    seed: int
    directory: Path

    @functools.cached_property
    def count(self) -> int:
        """Blocks in an epoch."""
        tokens = self.corpus.tokens
        size = max(tokens // BLOCKS_PER_EPOCH, BLOCK_ROWS * self.packing.capacity)
        blocks = max(1, round(tokens / min(size, BLOCK_TOKENS)))
        return min(blocks, self.corpus.documents)

    @functools.cached_property
    def identity(self) -> str:
        """A hash of all inputs of the plans except `max_length`."""
        shape = (self.packing.capacity, self.packing.depth)
        return config_hash([self.corpus.fingerprint, shape, self.sequences, self.seed, self.count, PLANNER])

    def documents(self, epoch: int, block: int) -> ndarray:
        """int64: the documents of a block, ascending."""
        # A keyed permutation of all documents, of which only the places of this block are computed.
        size = self.corpus.documents
        places = np.arange(block * size // self.count, (block + 1) * size // self.count)
        return np.sort(shuffle_indices(derive_key(self.seed, "documents", epoch), places, size))

    def row_order(self, epoch: int, block: int, rows: int) -> ndarray:
        """Draw the order in which an epoch visits a block's rows."""
        return permutation(rows, derive_key(self.seed, "row order", epoch, block))

    def next(self, epoch: int, block: int) -> tuple[int, int]:
        """Epoch and number of the block after this one."""
        epochs, following = divmod(block + 1, self.count)
        return epoch + epochs, following

    def open(self, epoch: int, block: int) -> Block:
        """Read a block's plan from disk, or make and commit it."""
        stem = self._stem(epoch, block)
        record_path = stem.with_suffix(".json")
        inputs = config_hash([self.identity, self.packing.max_length, epoch, block])
        while True:
            try:
                record = find_commit(record_path, verify=True, inputs=inputs)
                if record is None:
                    record = self._commit_plan(stem, record_path, inputs, epoch, block)
                arrays = {}
                for name, dtype in PLAN_ARRAYS.items():
                    arrays[name] = map_file(Path(f"{stem}.{name}"), dtype)
                break
            except FileNotFoundError:
                continue  # another rank, ahead of this one, has just dropped it
        row_offsets, order = arrays.pop("row_offsets"), arrays.pop("order")
        digest = config_hash(record["files"])
        return Block(Sequences(**arrays), row_offsets, order, self.packing.max_length, digest)

    def _stem(self, epoch: int, block: int) -> Path:
        return self.directory / f"epoch-{epoch:04d}-block-{block:05d}-length-{self.packing.max_length}"

    def cut(self, epoch: int, block: int) -> Sequences:
        """Cut the documents of a block into sequences, in the documents' order."""
        config = self.sequences
        room = self.packing.max_length - config.special_tokens
        # One key for the whole epoch: how a document is cut does not depend on its block.
        key = derive_key(self.seed, "cuts", epoch)
        stretches = cut_documents(self.corpus, self.documents(epoch, block), room, config, key)
        if not config.paired:
            lengths = stretches.end - stretches.begin + SPECIAL_TOKENS
            return make_sequences(shard=stretches.shard, begin=stretches.begin, length=lengths)
        sentence_bits = [shard.sentence_bits for shard in self.corpus.shards]
        return pair_stretches(stretches, sentence_bits, room, derive_key(self.seed, "pairs", epoch, block))

    def _commit_plan(self, stem: Path, record_path: Path, inputs: str, epoch: int, block: int) -> dict:
        sequences = self.cut(epoch, block)
        plan = self._plan(sequences)
        row_offsets, order = assign(plan, sequences.length, derive_key(self.seed, "assign", epoch, block))
        arrays = {**vars(sequences), "row_offsets": row_offsets, "order": order}
        files = [Path(f"{stem}.{name}") for name in PLAN_ARRAYS]
        with atomic_files(record_path, files) as temporaries:
            for temporary, name in zip(temporaries, PLAN_ARRAYS, strict=True):
                arrays[name].tofile(temporary)
        return commit(record_path, files, inputs=inputs)

    def _plan(self, sequences: Sequences) -> Plan:
        """Plan by best-fit, a pure function on any machine, if it is within 0.3 % or one row of its bound;
        else by cutting stock."""
        counts = count_lengths(sequences.length)
        plan = best_fit(counts, self.packing.capacity, self.packing.depth)
        if plan.rows_above_bound <= max(1, 0.003 * plan.rows):
            return plan
        return cutting_stock(counts, self.packing.capacity, self.packing.depth)

    def preview(self) -> tuple[Sequences, Plan]:
        """Plan the first block of a run: its sequences and their plan. Nothing is written."""
        sequences = self.cut(0, 0)
        return sequences, self._plan(sequences)

    def drop(self, epoch: int, block: int) -> None:
        """Delete a plan that is no longer needed."""
        for path in self.directory.glob(f"{self._stem(epoch, block).name}.*"):
            path.unlink(missing_ok=True)
