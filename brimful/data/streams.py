"""What a pretraining run reads: the training documents of its sources, and held-out batches."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from brimful.base.console import warn
from brimful.base.errors import BrimfulError
from brimful.base.randomness import derive_key
from brimful.base.storage import sweep
from brimful.corpus.shards import Corpus
from brimful.data.batch import PackedBatch
from brimful.data.blocks import Blocks
from brimful.data.config import PackingConfig, Phase, SequencesConfig
from brimful.data.mixture import DataSource
from brimful.data.reader import BlockSlice, SequenceReader
from brimful.data.sources import Source


def open_training_sources(
    data: Sequence[DataSource],
    corpora: Mapping[str, Corpus],
    phases: Sequence[Phase],
    sequences: SequencesConfig,
    seed: int,
    directory: Path,
    *,
    ahead: bool,
) -> list[Source]:
    """Open the training documents of each corpus, in the order of `data`.

    Args:
        directory: the folder of the plans of blocks.
        ahead: whether this rank plans blocks ahead; one rank does.

    Raises:
        BrimfulError: a corpus holds no training documents.
    """
    sources = []
    for number, source in enumerate(data):
        corpus = corpora[source.name].part("train")
        if corpus is None:
            raise BrimfulError(f"{source.path} holds no training documents; prepare more text")
        plans = directory / source.name
        if ahead:
            sweep(plans)
        blocks = {}
        for phase in phases:
            packing = phase.packing
            if phase.unit == "sequences":  # each row of a block is one sequence; rows are packed by update
                packing = replace(packing, max_sequences=1)
            blocks[packing.max_length] = Blocks(corpus, packing, sequences, seed, plans)
        sources.append(Source(number, source.name, source.weight, blocks, ahead=ahead))
    return sources


def make_validation_batches(
    name: str,
    corpus: Corpus | None,
    reader: SequenceReader,
    packing: PackingConfig,
    sequences: SequencesConfig,
    tokens: int,
    directory: Path,
) -> list[PackedBatch]:
    """Read rows of held-out documents, at most `tokens` tokens, with masks that never change.

    Args:
        name: the name of the source.
        corpus: the validation documents of the source, if it has any.
        directory: the folder of the plan.
    """
    if not tokens:
        return []
    if corpus is None:
        warn(f"{name} holds no validation documents (prepare's --validation-share): no validation loss")
        return []
    # Seed and epoch are constants: all runs of a corpus are compared on the same batches.
    blocks = Blocks(corpus, packing, sequences, 0, directory / name)
    block = blocks.open(0, 0)
    rows = min(block.rows, max(1, tokens // packing.capacity))
    key = derive_key("validation")
    batches = []
    for row in blocks.row_order(0, 0, block.rows)[:rows]:
        part = BlockSlice(corpus, block.sequences, block.row(row), key)
        batches.append(reader.batch([part], max_length=packing.max_length, rate=reader.masking.rate))
    return batches
