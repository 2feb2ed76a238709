"""What pretraining reads: a stream of updates over all sources and phases, and held-out batches."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from brimful.commands.phases import PhaseConfig
from brimful.commands.pretrain_config import PretrainConfig
from brimful.console import warn
from brimful.corpus.shards import Corpus
from brimful.data.batch import PackedBatch
from brimful.data.blocks import Blocks, PackingConfig
from brimful.data.mixture import parse_sources
from brimful.data.reader import Part, SequenceReader
from brimful.data.rows import Phase, RowStream
from brimful.data.sources import Source
from brimful.errors import BrimfulError
from brimful.randomness import derive_key
from brimful.storage import sweep


def run_phases(config: PretrainConfig) -> list[Phase]:
    """The parts of the run; one without `phases`."""
    packing, sequences = config.packing, config.sequences_per_update
    return [
        Phase(
            part.steps,
            packing if part.max_length is None else replace(packing, max_length=part.max_length),
            part.update_size or sequences or config.rows_per_update,
            "sequences" if sequences else "rows",
        )
        for part in config.phases or [PhaseConfig(steps=config.trainer.steps)]
    ]


def _source_packing(phase: Phase) -> PackingConfig:
    """Of a source's blocks: rows of one sequence each, where updates are counted in sequences."""
    return phase.packing if phase.counted == "rows" else replace(phase.packing, max_sequences=1)


def longest_sequence(config: PretrainConfig) -> int:
    """The longest that a sequence of the run may be."""
    return max(phase.packing.max_length for phase in run_phases(config))


def make_sources(
    config: PretrainConfig, corpora: Mapping[str, Corpus], directory: Path, *, ahead: bool
) -> list[Source]:
    """The training documents of each corpus, in the order of `config.data`.

    Args:
        directory: where plans of blocks are kept.
        ahead: whether to plan blocks ahead; one rank does.

    Raises:
        BrimfulError: a corpus holds no training documents.
    """
    sources = []
    for number, source in enumerate(parse_sources(config.data or ())):
        corpus = corpora[source.name].part("train")
        if corpus is None:
            raise BrimfulError(f"{source.path} holds no training documents; prepare more text")
        plans = directory / source.name
        if ahead:
            sweep(plans)
        blocks = {
            phase.packing.max_length: Blocks(
                corpus, _source_packing(phase), config.sequences, config.seed, plans
            )
            for phase in run_phases(config)
        }
        sources.append(Source(number, source.name, source.weight, blocks, ahead=ahead))
    return sources


def make_stream(
    config: PretrainConfig,
    sources: list[Source],
    reader: SequenceReader,
    *,
    fixed_shapes: bool = False,
    rank: int = 0,
    world: int = 1,
) -> RowStream:
    """The updates of a run; see `RowStream`. Where `rows_per_micro_batch` is auto, it is not known yet: 1."""
    rows = config.rows_per_micro_batch
    return RowStream(
        reader,
        sources,
        run_phases(config),
        seed=config.seed,
        rows_per_micro_batch=1 if rows == "auto" else rows,
        fixed_shapes=fixed_shapes,
        rank=rank,
        world=world,
    )


def validation_batches(
    name: str, corpus: Corpus | None, reader: SequenceReader, config: PretrainConfig, directory: Path
) -> list[PackedBatch]:
    """Held-out documents as micro-batches, at most `validation_tokens`, masked once and for all."""
    if not config.validation_tokens:
        return []
    if corpus is None:
        warn(f"{name} holds no validation documents (see prepare's validation_share): no validation loss")
        return []
    packing = run_phases(config)[-1].packing
    blocks = Blocks(corpus, packing, config.sequences, 0, directory / name)
    block = blocks.open(0, 0)
    rows = min(block.rows, max(1, config.validation_tokens // packing.capacity))
    key = derive_key("validation")
    chosen = (block.row(row) for row in blocks.row_order(0, 0, block.rows)[:rows])
    parts = (Part(corpus, block.sequences, row, key) for row in chosen)
    rate = config.masking.rate
    return [reader.batch([part], max_length=packing.max_length, rate=rate) for part in parts]
