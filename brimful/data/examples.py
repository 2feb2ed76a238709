"""Labelled or plain texts, encoded and packed: the stream of updates for fine-tuning and distillation.

An update holds exactly B examples, so a mean over it is the same as without packing. Order and cursor work as
in `rows`: examples come in a keyed permutation, anew each epoch, and an update at the end of an epoch takes
the rest from the next.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
import torch
from tokenizers import Tokenizer

from brimful.data.batch import PackedBatch, pack
from brimful.data.rows import Cursor
from brimful.data.slots import SequenceSlots, sampled_updates, slots_needed
from brimful.errors import BrimfulError
from brimful.packing.assignment import assign
from brimful.packing.histogram import count_lengths
from brimful.packing.pack_first import best_fit
from brimful.randomness import derive_key, permutation

TOKENS = 4096
"""Tokens in a batch of inference: enough for fast matrix products, few enough for the cache."""

GRAIN = 128
"""T is a multiple of this where shapes are not fixed, since every new shape makes new kernels."""


@dataclass(frozen=True)
class Examples:
    """Encoded examples, special tokens included.

    Attributes:
        tokens: int32 ids of each example, each at most `max_length` long.
        segments: uint8 token types of each example.
        targets: by name, (n,) int64 or float32; empty for unlabelled text.
        max_length: the longest that an example may be.
        pad: the id of the padding token.
    """

    tokens: Sequence[np.ndarray]
    segments: Sequence[np.ndarray]
    targets: dict[str, np.ndarray]
    max_length: int
    pad: int

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def lengths(self) -> np.ndarray:
        """int64 (n,): tokens of each example."""
        return np.array([len(ids) for ids in self.tokens], dtype=np.int64)

    @property
    def typed(self) -> bool:
        """Whether a token has another type than 0, as in pairs of texts."""
        return any(types.any() for types in self.segments)

    def batch(
        self, index: np.ndarray, slots: int | None = None, sequence_slots: int | None = None
    ) -> PackedBatch:
        """The examples `index` (int64) as one micro-batch of T = `slots` and S = `sequence_slots`, by
        default as many as are needed."""
        batch = pack(
            [self.tokens[i] for i in index],
            segments=[self.segments[i] for i in index],
            max_length=self.max_length,
            pad=self.pad,
            slots=slots,
            sequence_slots=sequence_slots,
            sequence_index=np.asarray(index),
        )
        targets = {}
        for name, values in self.targets.items():
            none = -100 if values.dtype.kind == "i" else np.nan
            missing = np.full(len(batch.offsets) - 1, none, dtype=values.dtype)
            missing[: len(index)] = values[index]
            targets[name] = torch.from_numpy(missing)
        return replace(batch, targets=targets)

    def rounded_batch(self, index: np.ndarray) -> PackedBatch:
        """The examples `index` as one micro-batch of the next multiple of `GRAIN` tokens."""
        return self.batch(index, -(-int(self.lengths[index].sum()) // GRAIN) * GRAIN)

    def batches(self, tokens: int = TOKENS) -> Iterator[PackedBatch]:
        """Every example once, in micro-batches of at most `tokens` tokens (or one longer example)."""
        if len(self):
            for index in self.pack(np.arange(len(self)), tokens, derive_key("inference")):
                yield self.rounded_batch(index)

    def pack(self, index: np.ndarray, tokens: int, key: np.uint64) -> list[np.ndarray]:
        """Spread the examples `index` over few micro-batches of at most `tokens` tokens, by best-fit."""
        lengths = self.lengths[index]
        plan = best_fit(count_lengths(lengths), max(tokens, int(lengths.max())))
        row_offsets, order = assign(plan, lengths, key)
        return [index[order[a:b]] for a, b in pairwise(row_offsets)]


def encode_texts(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    second: Sequence[str] | None = None,
    *,
    max_length: int,
    pad: int,
    targets: dict[str, np.ndarray] | None = None,
) -> Examples:
    """Token ids of each text or pair, special tokens included, cut to `max_length` tokens.

    A text without tokens (an empty text, with a tokenizer that adds no special tokens) is a single pad token.

    Raises:
        BrimfulError: a text is not a string, or holds half a surrogate pair.
    """
    before = tokenizer.truncation
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length)
    try:
        inputs = list(texts) if second is None else list(zip(texts, second, strict=True))
        encodings = tokenizer.encode_batch_fast(inputs)
    except TypeError as error:
        for index, found in enumerate(inputs):
            for text in (found,) if second is None else found:
                if not _is_text(text):
                    raise BrimfulError(f"text {index} is not a Unicode string: {text!a:.60}") from error
        raise
    finally:
        tokenizer.no_truncation()
        if before is not None:
            tokenizer.enable_truncation(**before)
    return Examples(
        tokens=[np.array(e.ids or [pad], dtype=np.int32) for e in encodings],
        segments=[np.array(e.type_ids or [0], dtype=np.uint8) for e in encodings],
        targets=targets or {},
        max_length=max_length,
        pad=pad,
    )


def _is_text(value: object) -> bool:
    """Whether a value is a string that can be written as UTF-8."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


class ExampleStream:
    """Updates of exactly `sequences` examples, in micro-batches of at most `tokens` tokens.

    Args:
        fixed_shapes: fill every micro-batch up to `tokens`, and S up to a constant, for compilers and CUDA
            graphs. S is what the first updates of a run need; see `slots`.
    """

    def __init__(
        self,
        examples: Examples,
        *,
        sequences: int,
        tokens: int,
        seed: int,
        fixed_shapes: bool = False,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.examples = examples
        self.sequences = sequences
        self.tokens = max(tokens, examples.max_length)
        self.seed = seed
        self.fixed_shapes = fixed_shapes
        self.rank = rank
        self.world = world
        self._slots = SequenceSlots(shown=rank == 0)
        self._order = lru_cache(maxsize=2)(
            lambda epoch: permutation(len(examples), derive_key(seed, "examples", epoch))
        )

    def start(self) -> Cursor:
        """The cursor of a new run."""
        return {"epoch": 0, "example": 0}

    def tokens_by_source(self, cursor: Cursor) -> dict[str, int]:
        """Empty: there are no sources."""
        return {}

    def take(self, cursor: Cursor) -> tuple[list[PackedBatch], Cursor]:
        """This rank's micro-batches of the update at `cursor`, and the cursor of the next update."""
        packed, following = self._packed(cursor)
        mine = packed[self.rank :: self.world]
        if not self.fixed_shapes:
            return [self.examples.rounded_batch(index) for index in mine], following
        S = self._slots.choose({"examples": self._sampled}, self._needed(packed))
        return [self.examples.batch(index, self.tokens, S) for index in mine], following

    def _packed(self, cursor: Cursor) -> tuple[list[np.ndarray], Cursor]:
        """The examples of each micro-batch of the update at `cursor`, and the cursor of the next update."""
        epoch, start = cursor["epoch"], cursor["example"]
        chosen: list[np.ndarray] = []
        missing = self.sequences
        while missing:
            order = self._order(epoch)
            chosen.append(order[start : start + missing])
            missing -= len(chosen[-1])
            start += len(chosen[-1])
            if start == len(order):
                epoch, start = epoch + 1, 0
        key = derive_key(self.seed, "micro-batches", epoch, start)
        packed = self.examples.pack(np.concatenate(chosen), self.tokens, key)
        return packed, {"epoch": epoch, "example": start}

    def _needed(self, packed: list[np.ndarray]) -> int:
        """Sequence slots that these micro-batches need."""
        tokens = np.array([self.examples.lengths[index].sum() for index in packed])
        sequences = np.array([len(index) for index in packed])
        return int(slots_needed(sequences, tokens, self.tokens, self.examples.max_length).max())

    def _sampled(self) -> int:
        """What the first updates of a run need."""
        packed, cursor = self._packed(self.start())
        most = self._needed(packed)
        for _ in range(sampled_updates(len(packed)) - 1):
            packed, cursor = self._packed(cursor)
            most = max(most, self._needed(packed))
        return most
