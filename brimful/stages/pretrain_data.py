"""What a pretraining reads and starts from, and what it takes.

It reads sources, updates and held-out batches, and starts from a model. It takes disk and memory, which a dry
run says.
"""

import tempfile
from bisect import bisect
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from brimful.base.console import pluralise, say, warn
from brimful.base.types import Precision
from brimful.corpus.shards import PARTS, Corpus
from brimful.data.mixture import parse_sources
from brimful.data.pairs import NO_PAIR
from brimful.data.reader import SequenceReader
from brimful.data.rows import RowStream
from brimful.data.sources import Source
from brimful.data.streams import training_sources, validation_batches
from brimful.hf.model_folder import ModelFolder
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead, PretrainingHead
from brimful.model.shape import EncoderConfig
from brimful.objectives.masked_lm import MaskedLM, MaskedLMAndPairs
from brimful.precision.policy import DTYPES
from brimful.runs.job import RunPlan, Summary
from brimful.stages.pretrain_config import PretrainConfig
from brimful.start.initial import Initial, head_kind, new_model, trained_model
from brimful.train.objective import Objective, Runtime
from brimful.train.step_memory import Held, longest_batch, room_of_a_pass, rows_on_cpu, sizes_of, traced_pass


@dataclass(frozen=True)
class PretrainPlan(RunPlan):
    """A pretraining before it starts.

    Attributes:
        config: resolved, but for the rows of a micro-batch.
        initial: what it starts from.
        is_started: whether that is what an interrupted run has kept.
        epochs: of each source; empty where an interrupted run continues.
    """

    config: PretrainConfig
    corpora: dict[str, Corpus]
    reader: SequenceReader
    initial: Initial
    is_started: bool
    sources: list[Source]
    runtime: Runtime
    epochs: dict[str, float]

    @property
    def decides(self) -> list[Any]:
        """The corpora."""
        return [(s.name, s.proportion, self.corpora[s.name].fingerprint) for s in self.sources]


def make_sources(
    config: PretrainConfig, corpora: Mapping[str, Corpus], directory: Path, *, ahead: bool
) -> list[Source]:
    """The run's training documents; see `training_sources`."""
    data, phases = parse_sources(config.data or ()), config.run_phases()
    return training_sources(data, corpora, phases, config.sequences, config.seed, directory, ahead=ahead)


def make_stream(
    config: PretrainConfig,
    sources: list[Source],
    reader: SequenceReader,
    *,
    fixed_shapes: bool = False,
    rank: int = 0,
    world: int = 1,
) -> RowStream:
    """The run's updates. Where `rows_per_micro_batch` is not yet known, it is 1."""
    rows = config.rows_per_micro_batch
    return RowStream(
        reader,
        sources,
        config.run_phases(),
        seed=config.seed,
        rows_per_micro_batch=rows if isinstance(rows, int) else 1,
        fixed_shapes=fixed_shapes,
        rank=rank,
        world=world,
    )


def make_modules(plan: PretrainPlan, directory: Path) -> tuple[Encoder, MaskedLM]:
    """The modules of a run with weights of their own, to trace what a step needs. Nothing is held out.

    Args:
        directory: for files; unused without held-out text.
    """
    config = replace(plan.config, validation_tokens=0)
    encoder = Encoder(plan.initial.encoder.config)
    head = head_kind(config.sequences)(encoder)
    return encoder, make_objective(config, head, plan.reader, plan.corpora, directory)


def make_objective(
    config: PretrainConfig,
    head: MaskedLMHead,
    reader: SequenceReader,
    corpora: Mapping[str, Corpus],
    directory: Path,
) -> MaskedLM:
    """The loss, and the held-out batches that evaluate it."""
    held_out = {
        name: validation_batches(
            name,
            corpus.part("validation"),
            reader,
            config.run_phases()[-1].packing,
            config.sequences,
            config.validation_tokens,
            directory / "validation",
        )
        for name, corpus in corpora.items()
    }
    if isinstance(head, PretrainingHead):
        return MaskedLMAndPairs(head, held_out, config.loss_mean)
    return MaskedLM(head, held_out, config.loss_mean)


def initial_model(config: PretrainConfig, tokenizer: Tokenizer, kept: Path | None = None) -> Initial:
    """The model that a run starts from, new or trained.

    Args:
        tokenizer: of the data.
        kept: where an interrupted run keeps the model that it started from.

    Raises:
        BrimfulError: the trained model cannot be used; see `trained_model`.
    """
    if kept is not None:
        folder = kept
    elif config.start_from is None:
        return new_model(config.encoder_config(tokenizer), tokenizer, config.sequences, config.seed)
    else:
        folder = ModelFolder.open(config.start_from, "encoder").path
    return trained_model(folder, tokenizer, config.sequences, config.longest_sequence(), config.seed)


def proportions_of(sources: list[Source]) -> np.ndarray:
    """float64: the fraction of the tokens that each source contributes."""
    proportions = np.array([source.proportion for source in sources])
    return proportions / proportions.sum()


def describe(config: PretrainConfig, sources: list[Source], initial: Initial) -> dict[str, float]:
    """Say what a new run will do, and return the epochs of each source."""
    parameters = sum(p.numel() for p in initial.encoder.parameters())
    documents = sum(source.corpus.documents for source in sources)
    model = f"a {config.model} {config.architecture} encoder"
    if config.start_from is not None:
        model = f"the {initial.encoder.config.architecture} encoder of {config.start_from}"
    say(
        f"pretraining {model} ({parameters / 1e6:.1f} M parameters) on {documents:,} documents"
        f" with {config.optimizer.summary}"
    )
    for warning in initial.warnings:
        warn(warning)
    read, max_length = np.zeros(len(sources)), 0
    for phase in config.run_phases():
        longest = phase.packing.max_length
        sequences, plans = zip(*(source.blocks[longest].preview() for source in sources), strict=True)
        for source, some in zip(sources, sequences, strict=True):
            if config.sequences.paired and not max_length and (some.pair == NO_PAIR).all():
                warn(f"{source.name} gives no pairs: it has one document, or every document has one sentence")
        rows = proportions_of(sources) / [
            plan.tokens / plan.rows for plan in plans
        ]  # of each source, per token
        tokens = phase.size / rows.sum()
        packed = phase.size * float(np.dot(rows / rows.sum(), [plan.packing_factor for plan in plans]))
        what = pluralise(phase.size, phase.counted.removesuffix("s"))
        say(
            f"{pluralise(phase.steps, 'update')} of {what}, about {packed:,.0f} sequences and {tokens:,.0f}"
            f" tokens, sequences of at most {longest}"
        )
        blocks = phase.steps * tokens * proportions_of(sources) / [plan.tokens for plan in plans]
        if max_length not in (0, longest) and (read.astype(int) == (read + blocks).astype(int)).all():
            warn(
                "the length of sequences does not change in this phase: it changes when a block of data"
                " begins, and no block is expected to begin here"
            )
        read, max_length = read + blocks, longest
    if config.trainer.hours:
        say(f"the run ends after {config.trainer.hours:g} hours of training at the latest")
    epochs = {}
    for source, blocks in zip(sources, read.tolist(), strict=True):
        epochs[source.name] = blocks / source.blocks[max_length].count
        say(f"{source.name}: {epochs[source.name]:.3g} epochs of {source.corpus.tokens:,} tokens")
    return epochs


SIZES = (16, 32, 80)
"""GB of the GPUs that are asked about."""
CONTEXT = 1 << 30
"""Bytes of a GPU that CUDA and its libraries take."""


def expected(plan: PretrainPlan) -> Summary:
    """What a run takes. Plans of blocks are kept in a folder that is then removed."""
    config, corpora, initial, runtime = plan.config, plan.corpora, plan.initial, plan.runtime
    held = Held.of([initial.encoder, initial.head], config.optimizer, config.trainer, runtime.precision)
    with tempfile.TemporaryDirectory(prefix="brimful-") as made:
        make = partial(make_modules, plan, Path(made))
        sources = make_sources(config, corpora, Path(made), ahead=False)
        stream = make_stream(config, sources, plan.reader, fixed_shapes=True, world=runtime.world.size)
        with closing(stream):
            needed = memory(config, stream, make, initial.encoder.config, held, runtime.precision)
    return {
        "dry_run": True,
        "documents": sum(corpus.documents for corpus in corpora.values()),
        "tokens": sum(corpus.tokens for corpus in corpora.values()),
        "parameters": sum(p.numel() for p in initial.encoder.parameters()),
        "disk": disk(config, corpora, held),
        "memory": needed,
    }


def disk(config: PretrainConfig, corpora: dict[str, Corpus], held: Held) -> dict[str, int]:
    """Bytes that a run takes: of its data, its checkpoints, and the models that it starts and ends with."""
    files = (
        corpus.directory / "shards" / f"{shard.name}.{part}"
        for corpus in corpora.values()
        for shard in corpus.shards
        for part in PARTS
    )
    trainer = config.trainer
    checkpoints = (trainer.keep_checkpoints + 1 + trainer.keeps_best) if trainer.checkpoint_every else 0
    return {
        "shards": sum(file.stat().st_size for file in files),
        "checkpoints": checkpoints * (held.weights + held.states),
        "models": 2 * held.weights * 4 // DTYPES[trainer.weights].itemsize,
    }


def memory(
    config: PretrainConfig,
    stream: RowStream,
    make: Callable[[], tuple[Encoder, Objective]],
    shape: EncoderConfig,
    held: Held,
    precision: Precision,
) -> dict[str, Any]:
    """Bytes of one rank with a micro-batch of the longest phase, and which GPUs hold them.

    Args:
        config: its `residual` is resolved.
        stream: of the run, with the shapes of a GPU.
        make: see `traced_pass`.
        precision: resolved.

    Returns:
        `rows_per_micro_batch`: of the run; where the run will choose, the most that the largest GPU holds.
        Bytes of what is held (see `Held`), of the `pass` and in `total`. `holds`: by the GB of a GPU, the
        most rows that it holds, of those that divide the updates, or 0.
    """
    trainer, chosen_rows = config.trainer, config.rows_per_micro_batch
    if chosen_rows is None:
        chosen_rows = rows_on_cpu(stream, shape.hidden_size)
    sizes = sizes_of(stream)

    @lru_cache
    def traced(rows: int) -> int:
        return traced_pass(make, trainer, precision, longest_batch(stream, rows))

    holds = {}
    for size in SIZES:
        room = room_of_a_pass((size << 30) - CONTEXT - (held.total - held.later), held.later)
        holds[str(size)] = ([0, *sizes])[bisect(sizes, room, key=traced)]
    rows = max(*holds.values(), sizes[0]) if chosen_rows == "auto" else chosen_rows
    parts = asdict(held) | {"pass": traced(rows)}
    return {"rows_per_micro_batch": rows, **parts, "total": sum(parts.values()), "holds": holds}


def say_outlook(outlook: dict[str, Any], precision: Precision) -> None:
    """Say disk and memory."""
    on_disk, needed = outlook["disk"], outlook["memory"]
    say(
        f"disk: checkpoints {_gb(on_disk['checkpoints'])}, models {_gb(on_disk['models'])}, beside shards of"
        f" {_gb(on_disk['shards'])}"
    )
    rows, holds = needed["rows_per_micro_batch"], needed["holds"]
    say(
        f"memory in {precision}, traced: {_gb(needed['total'])} with micro-batches of {rows} rows:"
        f" {_gb(needed['pass'])} of a pass, {_gb(needed['total'] - needed['pass'])} of weights, gradients and"
        " optimizer"
    )
    fits = ", ".join(f"{size} GB {f'{most} rows' if most else 'none'}" for size, most in holds.items())
    say(f"the most rows of a micro-batch that a GPU holds: {fits}")


def _gb(size: float) -> str:
    return f"{size / 1e9:.3g} GB"
