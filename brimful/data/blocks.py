"""The corpus as blocks: fixed sets of documents, each with one committed, memory-mapped plan an epoch.

A plan says which sequences the block's documents yield and which row each lands in. It is a pure function
of the corpus and of (seed, epoch, block) (and, where best-fit doesn't suffice, of the linear solver's
version), so it can be made again at any time; on disk it is a cache that several processes share, written
atomically with its commit record last.
"""

from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

import numpy as np

from brimful.config import config_hash
from brimful.corpus.shards import Corpus
from brimful.data.sequences import Sequences, cut_documents
from brimful.errors import BrimfulError
from brimful.packing.assignment import assign
from brimful.packing.histogram import Plan, count_lengths, padded_efficiency
from brimful.packing.pack_first import best_fit
from brimful.packing.rounding import cutting_stock
from brimful.randomness import derive_key, hash_words, permutation
from brimful.storage import TEMPORARY, atomic_files, commit, read_commit

BLOCK_TOKENS = 64_000_000
_PLANNER = f"best-fit, else cutting stock by scipy {version('scipy')}"
"""Another version of the solver may find another plan of as many rows."""
_ARRAYS = ("shard", "begin", "length", "row_offsets", "order")


@dataclass(frozen=True, kw_only=True)
class PackingConfig:
    """How sequences are cut and share rows."""

    max_length: int = 128
    """The most tokens in a sequence, [CLS] and [SEP] included."""
    capacity: int = 1024
    """Token slots of a row."""
    max_sequences: int | None = None
    """The most sequences in a row; by default an eighth of the capacity."""

    def __post_init__(self) -> None:
        if not 3 <= self.max_length <= self.capacity:
            raise BrimfulError(
                f"packing.max_length is {self.max_length}: it must be at least 3 and at most packing.capacity"
                f" ({self.capacity})"
            )
        if self.max_sequences is not None and self.max_sequences < 1:
            raise BrimfulError(f"packing.max_sequences is {self.max_sequences}: it must be at least 1")

    @property
    def depth(self) -> int:
        """The most sequences in a row."""
        return self.max_sequences or max(1, self.capacity // 8)


@dataclass(frozen=True)
class Split:
    """Documents to train on and documents held out, int64 indices each."""

    training: np.ndarray
    validation: np.ndarray


def split_documents(corpus: Corpus) -> Split:
    """The split that `prepare` made.

    Raises:
        BrimfulError: nothing is left to train on.
    """
    held_out = np.repeat(
        [shard.split == "validation" for shard in corpus.shards], [shard.documents for shard in corpus.shards]
    )
    if held_out.all():
        raise BrimfulError(f"{corpus.directory} holds no training documents; prepare more text")
    return Split(np.flatnonzero(~held_out), np.flatnonzero(held_out))


@dataclass(frozen=True)
class Block:
    """A block's sequences and rows: row r holds the sequences `order[row_offsets[r]:row_offsets[r + 1]]`."""

    sequences: Sequences
    row_offsets: np.ndarray
    order: np.ndarray
    efficiency: float
    padded_efficiency: float
    digest: str

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.row_offsets) - 1

    def row(self, index: int) -> np.ndarray:
        """int64: the sequences of one row."""
        return self.order[self.row_offsets[index] : self.row_offsets[index + 1]]


class Blocks:
    """The blocks of one set of documents, planned on demand.

    Args:
        documents: int64, indices over the whole corpus, ascending.
        directory: where plans are committed.
    """

    def __init__(
        self, corpus: Corpus, documents: np.ndarray, config: PackingConfig, seed: int, directory: Path
    ) -> None:
        self.corpus = corpus
        self.documents = documents
        self.config = config
        self.seed = seed
        self.directory = directory
        self.count = max(1, round(corpus.tokens / BLOCK_TOKENS))

    @cached_property
    def _block_of_document(self) -> np.ndarray:
        hashes = hash_words(derive_key(self.seed, "blocks"), self.documents)
        return (hashes % np.uint64(self.count)).astype(np.int64)

    def order(self, epoch: int) -> np.ndarray:
        """The order in which an epoch visits the blocks."""
        return permutation(self.count, derive_key(self.seed, "block order", epoch))

    def row_order(self, epoch: int, block: int, rows: int) -> np.ndarray:
        """The order in which an epoch visits a block's rows."""
        return permutation(rows, derive_key(self.seed, "row order", epoch, block))

    def open(self, epoch: int, block: int) -> Block:
        """A block's plan for an epoch: from disk if it is committed there, else made and committed."""
        stem = self.directory / f"epoch-{epoch:04d}-block-{block:05d}"
        record_path = stem.with_suffix(".json")
        inputs = config_hash(
            [
                *(self.corpus.fingerprint, self.config, self.seed, epoch, block),
                *(len(self.documents), self.count, _PLANNER),
            ]
        )
        while True:
            try:
                record = read_commit(record_path)
            except BrimfulError:
                record = {}
            if record.get("inputs") != inputs:
                record = self._plan(stem, record_path, inputs, epoch, block)
            try:
                arrays = {name: np.load(f"{stem}.{name}.npy", mmap_mode="r") for name in _ARRAYS}
                break
            except FileNotFoundError:
                continue  # another rank, ahead of this one, has dropped it in between
        return Block(
            Sequences(arrays["shard"], arrays["begin"], arrays["length"]),
            arrays["row_offsets"],
            arrays["order"],
            record["efficiency"],
            record["padded_efficiency"],
            config_hash(record["files"]),
        )

    def _plan(self, stem: Path, record_path: Path, inputs: str, epoch: int, block: int) -> dict:
        documents = self.documents[self._block_of_document == block]
        sequences = cut_documents(self.corpus, documents, self.config.max_length)
        counts = count_lengths(sequences.length)
        plan = self._planned(counts)
        row_offsets, order = assign(plan, sequences.length, derive_key(self.seed, "assign", epoch, block))
        values = dict(
            zip(
                _ARRAYS,
                (sequences.shard, sequences.begin, sequences.length, row_offsets, order),
                strict=True,
            )
        )
        files = [Path(f"{stem}.{name}.npy") for name in values]
        with atomic_files(record_path, files) as temporaries:
            for temporary, value in zip(temporaries, values.values(), strict=True):
                with open(temporary, "wb") as file:
                    np.save(file, value)
        return commit(
            record_path,
            files,
            inputs=inputs,
            rows=plan.rows,
            sequences=plan.sequences,
            tokens=plan.tokens,
            efficiency=plan.efficiency,
            padded_efficiency=padded_efficiency(counts, self.config.max_length),
        )

    def _planned(self, counts: np.ndarray) -> Plan:
        """Best-fit, which is a pure function on any machine, if it comes within a thousandth of its bound."""
        plan = best_fit(counts, self.config.capacity, self.config.depth)
        if plan.rows_above_bound <= plan.rows / 1000:
            return plan
        return cutting_stock(counts, self.config.capacity, self.config.depth)

    def packing_factor(self) -> float:
        """Sequences in a row on average, in the block that a run begins with."""
        documents = self.documents[self._block_of_document == self.order(0)[0]]
        return self._planned(
            count_lengths(cut_documents(self.corpus, documents, self.config.max_length).length)
        ).packing_factor

    def drop(self, epoch: int, block: int) -> None:
        """Forget a plan that is no longer needed (it can be made again)."""
        for path in self.directory.glob(f"epoch-{epoch:04d}-block-{block:05d}.*"):
            if not path.name.startswith(TEMPORARY):
                path.unlink(missing_ok=True)
