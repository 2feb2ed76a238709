"""Small corpora whose token ids say where they stand, and streams over them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel

from brimful.corpus.shards import Corpus, TokenBatch, write_manifest, write_shard
from brimful.data.batch import PackedBatch
from brimful.data.blocks import Blocks
from brimful.data.config import MaskingConfig, PackingConfig, Phase, SequencesConfig
from brimful.data.reader import BlockSlice, SequenceReader
from brimful.data.rows import Row, RowStream
from brimful.data.sources import Source

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


def toy_corpus(
    directory: Path, lengths: Sequence[int], seed: int, *, first: int = 0, shards: int = 2
) -> Corpus:
    """Documents with `lengths` tokens. The ids of all tokens differ: they count from 5 + `first` on."""
    draw = np.random.default_rng(seed)
    (directory / "shards").mkdir(parents=True)
    toy_tokenizer().save(str(directory / "tokenizer.json"))
    at, names = len(SPECIAL) + first, []
    for number, part in enumerate(np.array_split(np.array(lengths), min(shards, len(lengths)))):
        total = int(part.sum())
        starts = np.zeros(total, dtype=bool)
        starts[np.cumsum([0, *part[:-1]])] = True
        words = starts | (draw.random(total) < 0.6)
        batch = TokenBatch(
            tokens=np.arange(at, at + total),
            word_starts=words,
            sentence_starts=starts | words & (draw.random(total) < 0.2),
            lengths=part,
            sources=np.zeros((len(part), 2), dtype=np.int64),
        )
        at += total
        names.append(f"shard-{number}")
        write_shard(
            directory / "shards",
            names[-1],
            [batch],
            vocabulary_size=ORDINARY + len(SPECIAL),
            tokenizer_hash="toy",
            config_hash="toy",
            inputs=["text"],
        )
    write_manifest(directory, names)
    return Corpus.open(directory)


def toy_source(
    corpus: Corpus,
    packings: Sequence[PackingConfig],
    directory: Path,
    seed: int,
    *,
    name: str = "toy",
    number: int = 0,
    weight: float = 1.0,
    sequences: SequencesConfig | None = None,
) -> Source:
    """A source of blocks with these packings."""
    made = {
        p.max_length: Blocks(corpus, p, sequences or SequencesConfig(), seed, directory) for p in packings
    }
    return Source(number, name, weight, made)


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
    packings = [p.packing if p.unit == "rows" else one_sequence_each(p.packing) for p in phases]
    sources = [
        toy_source(
            corpus,
            packings,
            directory / name,
            seed,
            name=name,
            number=number,
            weight=weight,
            sequences=sequences,
        )
        for number, (name, (corpus, weight)) in enumerate(corpora.items())
    ]
    reader = SequenceReader(toy_tokenizer(), masking or MaskingConfig(rate=0.3))
    return RowStream(reader, sources, phases, seed=seed, rows_per_micro_batch=micro, **settings)  # type: ignore[arg-type]


def one_sequence_each(packing: PackingConfig) -> PackingConfig:
    """Of the blocks, where updates are counted in sequences."""
    return PackingConfig(max_length=packing.max_length, capacity=packing.capacity, max_sequences=1)


def of_rank(stream: RowStream, rank: int, world: int) -> RowStream:
    """The same stream as another rank has it."""
    return RowStream(
        stream.reader,
        stream.sources,
        stream.phases,
        seed=stream.seed,
        rows_per_micro_batch=stream.rows_per_micro_batch,
        fixed_shapes=stream.fixed_shapes,
        rank=rank,
        world=world,
    )


def finish_planning(source: Source) -> None:
    """Wait for what is planned ahead."""
    source._planner.submit(lambda: None).result()


def spans(batch: PackedBatch) -> list[tuple[int, int]]:
    """Where the real sequences begin and end."""
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
    """The tokens of a row."""
    part = BlockSlice(stream.sources[row.source].corpus, row.block.sequences, row.chosen, np.uint64(1))
    batch = stream.reader.batch([part], max_length=row.block.max_length, rate=0.5)
    return contents([batch])


def same(one: PackedBatch, other: PackedBatch) -> bool:
    """Whether two batches are equal to the bit."""
    names = ("tokens", "positions", "segments", "offsets", "mlm_positions", "mlm_labels")
    tensors = [(getattr(one, name), getattr(other, name)) for name in names]
    tensors += [(one.targets[name], other.targets[name]) for name in one.targets]
    return (
        one.lengths == other.lengths
        and one.targets.keys() == other.targets.keys()
        and all(torch.equal(a, b) for a, b in tensors)
    )
