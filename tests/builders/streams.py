"""Small corpora whose token ids say where they stand, and streams over them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel

from brimful.corpus.shards import Corpus
from brimful.data.batch import PackedBatch
from brimful.data.blocks import Blocks
from brimful.data.config import MaskingConfig, Phase, SequencesConfig
from brimful.data.reader import BlockSlice, SequenceReader
from brimful.data.rows import Row, RowStream
from brimful.data.sources import Source
from builders.corpora import batch_of, write_batches

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ORDINARY = 11_000
"""Ids that are not special: 5, 6 ... More tokens than these no test has."""


@cache
def toy_tokenizer() -> Tokenizer:
    """A vocabulary, and nothing that could split a text."""
    words = [*SPECIAL, *(f"w{i}" for i in range(ORDINARY))]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in SPECIAL])
    return tokenizer


def toy_corpus(directory: Path, lengths: Sequence[int], seed: int, *, first: int = 0) -> Corpus:
    """Documents with `lengths` tokens. The ids of all tokens differ: they count from 5 + `first` on."""
    draw = np.random.default_rng(seed)
    (directory / "shards").mkdir(parents=True)
    toy_tokenizer().save(str(directory / "tokenizer.json"))
    at, batches = len(SPECIAL) + first, []
    for part in np.array_split(np.array(lengths), min(2, len(lengths))):
        total = int(part.sum())
        starts = np.zeros(total, dtype=bool)
        starts[np.cumsum([0, *part[:-1]])] = True
        words = starts | (draw.random(total) < 0.6)
        sentences = starts | words & (draw.random(total) < 0.2)
        batches.append(batch_of(np.arange(at, at + total), words, sentences, part))
        at += total
    return write_batches(directory, batches, ORDINARY + len(SPECIAL))


def toy_source(corpus, packings, directory, seed, number=0, weight=1.0, name="toy", sequences=None):
    cutting = sequences or SequencesConfig()
    blocks = {p.max_length: Blocks(corpus, p, cutting, seed, directory) for p in packings}
    return Source(number, name, weight, blocks)


def toy_stream(
    corpora: Mapping[str, tuple[Corpus, float]],
    phases: Sequence[Phase],
    directory: Path,
    seed: int,
    *,
    micro: int = 1,
    masking: MaskingConfig | None = None,
    sequences: SequencesConfig | None = None,
    **settings: int | bool,
) -> RowStream:
    """A stream over corpora, by name, each with its weight."""
    # Where updates are counted in sequences, a row of a block holds one.
    packings = [p.packing if p.unit == "rows" else replace(p.packing, max_sequences=1) for p in phases]
    sources = []
    for number, (name, (corpus, weight)) in enumerate(corpora.items()):
        made = toy_source(corpus, packings, directory / name, seed, number, weight, name, sequences)
        sources.append(made)
    reader = SequenceReader(toy_tokenizer(), masking or MaskingConfig(rate=0.3))
    return RowStream(reader, sources, phases, seed=seed, rows_per_micro_batch=micro, **settings)  # type: ignore[arg-type]


def of_rank(stream: RowStream, rank: int, world: int) -> RowStream:
    names = ("seed", "rows_per_micro_batch", "fixed_shapes")
    settings = {name: getattr(stream, name) for name in names} | {"rank": rank, "world": world}
    return RowStream(stream.reader, stream.sources, stream.phases, **settings)


def finish_planning(source: Source) -> None:
    """Wait for what is planned ahead."""
    source._planner.submit(lambda: None).result()


def spans(batch: PackedBatch) -> list[tuple[int, int]]:
    return list(pairwise(batch.offsets[: batch.real_sequences + 1].tolist()))


def unmasked(batch: PackedBatch) -> list[tuple[int, ...]]:
    """The real sequences as they were before masking."""
    tokens = batch.tokens.clone()
    assert batch.mlm_positions is not None
    assert batch.mlm_labels is not None
    used = batch.mlm_labels != -100
    tokens[batch.mlm_positions[used]] = batch.mlm_labels[used].int()
    return [tuple(tokens[a:b].tolist()) for a, b in spans(batch)]


def contents(batches: Sequence[PackedBatch]) -> Counter[int]:
    """The real tokens of batches, as they were before masking, without special ones."""
    found = Counter(token for batch in batches for sequence in unmasked(batch) for token in sequence)
    for special in range(len(SPECIAL)):
        del found[special]
    return found


def tokens_of(stream: RowStream, row: Row) -> Counter[int]:
    part = BlockSlice(stream.sources[row.source].corpus, row.block.sequences, row.chosen, np.uint64(1))
    batch = stream.reader.batch([part], max_length=row.block.max_length, rate=0.5)
    return contents([batch])


def same(one: PackedBatch, other: PackedBatch) -> bool:
    names = ("tokens", "positions", "segments", "offsets", "mlm_positions", "mlm_labels")
    tensors = [(getattr(one, name), getattr(other, name)) for name in names]
    tensors += [(one.targets[name], other.targets.get(name)) for name in one.targets]
    alike = one.lengths == other.lengths and one.targets.keys() == other.targets.keys()
    return alike and all(torch.equal(a, b) for a, b in tensors)
