"""The data and the initial model of a pretraining, and its memory, which a dry run says."""

import tempfile
from bisect import bisect
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from brimful.base.config import to_dict
from brimful.base.console import pluralise, say, warn
from brimful.base.summary import Summary, make_facts_table
from brimful.base.types import Numbers, Precision, Values
from brimful.corpus.shards import Corpus
from brimful.data.mixture import parse_sources
from brimful.data.pairs import NO_PAIR
from brimful.data.reader import SequenceReader
from brimful.data.rows import RowStream
from brimful.data.sources import Source
from brimful.data.streams import make_validation_batches, open_training_sources
from brimful.hf.folders import count_parameters
from brimful.hf.model_folder import ModelFolder
from brimful.model.encoder import Encoder
from brimful.model.heads import MaskedLMHead, PretrainingHead
from brimful.objectives.masked_lm import MaskedLM, MaskedLMAndPairs
from brimful.runs.job import RunPlan
from brimful.stages.pretrain_config import PretrainConfig
from brimful.start.initial import Initial, choose_head, new_model, trained_model
from brimful.train.objective import Objective, Runtime
from brimful.train.step_memory import (
    HeldBytes,
    choose_rows_on_cpu,
    compute_budget,
    list_row_counts,
    make_longest_batch,
    trace_pass,
)


@dataclass(frozen=True)
class PretrainPlan(RunPlan):
    """A pretraining before it starts.

    Attributes:
        config: resolved, but for the rows of a micro-batch.
        initial: the model before the first update.
        is_started: whether `initial` comes from the folder in which an interrupted run has kept it.
        epochs: passes over each source; empty where an interrupted run continues.
    """

    config: PretrainConfig
    corpora: dict[str, Corpus]
    reader: SequenceReader
    initial: Initial
    is_started: bool
    sources: list[Source]
    runtime: Runtime
    epochs: Numbers

    @property
    def decides(self) -> list[Any]:
        """The corpora."""
        return [(s.name, s.proportion, self.corpora[s.name].fingerprint) for s in self.sources]


def make_sources(
    config: PretrainConfig, corpora: Mapping[str, Corpus], directory: Path, *, ahead: bool
) -> list[Source]:
    """Open the run's training documents; see `open_training_sources`."""
    data, phases = parse_sources(config.data or ()), config.run_phases()
    return open_training_sources(data, corpora, phases, config.sequences, config.seed, directory, ahead=ahead)


def make_stream(
    config: PretrainConfig,
    sources: list[Source],
    reader: SequenceReader,
    *,
    fixed_shapes: bool = False,
    rank: int = 0,
    world: int = 1,
) -> RowStream:
    """Open the stream of the run's updates. Where `rows_per_micro_batch` is not yet known, it is 1."""
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
    """Make the modules of a run with weights of their own, to trace the memory of a step."""
    # No text is held out, so that nothing is written into the directory.
    config = replace(plan.config, validation_tokens=0)
    encoder = Encoder(plan.initial.encoder.config)
    head = choose_head(config.sequences)(encoder)
    return encoder, make_objective(replace(plan, config=config), head, directory)


def make_objective(plan: PretrainPlan, head: MaskedLMHead, directory: Path) -> MaskedLM:
    """Make the loss, and the held-out batches that evaluate it."""
    config, held_out = plan.config, {}
    for name, corpus in plan.corpora.items():
        held_out[name] = make_validation_batches(
            name,
            corpus.part("validation"),
            plan.reader,
            config.run_phases()[-1].packing,
            config.sequences,
            config.validation_tokens,
            directory / "validation",
        )
    if isinstance(head, PretrainingHead):
        return MaskedLMAndPairs(head, held_out, config.loss_mean)
    return MaskedLM(head, held_out, config.loss_mean)


def open_initial_model(config: PretrainConfig, tokenizer: Tokenizer, folder: Path | None = None) -> Initial:
    """Make or load the model that a run starts from, or that an interrupted run has kept in `folder`."""
    if folder is None and config.start_from is None:
        return new_model(config.encoder_config(tokenizer), tokenizer, config.sequences, config.seed)
    if folder is None:
        folder = ModelFolder.open(str(config.start_from), "encoder").path
    return trained_model(folder, tokenizer, config.sequences, config.longest_sequence(), config.seed)


def announce(config: PretrainConfig, sources: list[Source], initial: Initial) -> Numbers:
    """Say what a new run will do, and return the epochs of each source."""
    parameters = count_parameters(initial.encoder)
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
    whole = sum(source.proportion for source in sources)
    blocks_read = dict.fromkeys((source.name for source in sources), 0.0)
    max_length = 0
    for phase in config.run_phases():
        longest = phase.packing.max_length
        # The first block of each source stands for all.
        block_tokens, rows_per_token, sequences_per_token = {}, 0.0, 0.0
        for source in sources:
            sequences, plan = source.blocks[longest].preview()
            block_tokens[source.name] = plan.tokens
            rows = source.proportion / whole * plan.rows / plan.tokens
            rows_per_token += rows
            sequences_per_token += rows * plan.packing_factor
            if config.sequences.paired and not max_length and (sequences.pair == NO_PAIR).all():
                warn(f"{source.name} gives no pairs: it has one document, or every document has one sentence")
        tokens = phase.size / rows_per_token
        update = pluralise(phase.size, phase.unit.removesuffix("s"))
        say(
            f"{pluralise(phase.steps, 'update')} of {update}, about"
            f" {tokens * sequences_per_token:,.0f} sequences and {tokens:,.0f} tokens, sequences of at most"
            f" {longest}"
        )
        begins_block = False
        for source in sources:
            before = blocks_read[source.name]
            read = phase.steps * tokens * source.proportion / whole / block_tokens[source.name]
            blocks_read[source.name] = before + read
            begins_block |= int(before) < int(before + read)
        if max_length not in (0, longest) and not begins_block:
            warn(
                "the length of sequences does not change in this phase: it changes when a block of data"
                " begins, and no block is expected to begin here"
            )
        max_length = longest
    if config.trainer.hours:
        say(f"the run ends after {config.trainer.hours:g} hours of training at the latest")
    epochs = {}
    for source in sources:
        epochs[source.name] = blocks_read[source.name] / source.blocks[max_length].count
        say(f"{source.name}: {epochs[source.name]:.3g} epochs of {source.corpus.tokens:,} tokens")
    return epochs


GPU_GIGABYTES = (16, 32, 80)  # GPUs for which a dry run estimates the rows that fit
TRACED_TOKENS = 8192
"""Token slots of a traced pass, and of another twice as large: fewer do not fill the blocks of the loss."""
CONTEXT_BYTES = 1 << 30  # of a GPU, which CUDA and its libraries take


def estimate_costs(plan: PretrainPlan) -> Values:
    """Estimate the memory that a run takes. No files stay."""
    config, initial, runtime = plan.config, plan.initial, plan.runtime
    phase = config.run_phases()[-1]
    held = HeldBytes.of([initial.encoder, initial.head], config.optimizer, config.trainer, runtime.precision)
    with tempfile.TemporaryDirectory(prefix="brimful-") as made:
        sources = make_sources(config, plan.corpora, Path(made), ahead=False)
        memory = estimate_memory(plan, sources, partial(make_modules, plan, Path(made)), held)
    return {
        "dry_run": True,
        "update": {phase.unit: phase.size, "capacity": phase.packing.capacity},
        "learning_rate": config.optimizer.learning_rate,
        "schedule": to_dict(config.schedule),
        "documents": sum(corpus.documents for corpus in plan.corpora.values()),
        "tokens": sum(corpus.tokens for corpus in plan.corpora.values()),
        "parameters": count_parameters(initial.encoder),
        "memory": memory,
    }


def estimate_memory(
    plan: PretrainPlan, sources: list[Source], make: Callable[[], tuple[Encoder, Objective]], held: HeldBytes
) -> Values:
    """Return the bytes of one rank in the longest phase, and what GPUs hold; `make` as in `trace_pass`.

    Returns:
        `rows_per_micro_batch`: the run's own, or the most that the largest GPU holds where the run chooses.
        The fields of `HeldBytes`, the `pass` and the `total`, in bytes. `holds`: by the GB of a GPU, the most
        rows that it holds, also more than an update has, or 0.
    """
    config = plan.config
    few = max(1, TRACED_TOKENS // config.packing.capacity)
    update: Values = {"rows_per_update": 2 * few, "sequences_per_update": None, "rows_per_micro_batch": None}
    update["packing"] = replace(config.packing, max_length=config.longest_sequence())
    wide = replace(config, phases=(), **update)

    def open_stream(own: PretrainConfig) -> RowStream:
        return make_stream(own, sources, plan.reader, fixed_shapes=True, world=plan.runtime.world.size)

    def trace(own: PretrainConfig, rows: int) -> int:
        with closing(open_stream(own)) as stream:
            batch = make_longest_batch(stream, rows)
        return trace_pass(make, config.trainer, plan.runtime.precision, batch)

    # Shapes are fixed, so bytes grow in a straight line over rows.
    few_bytes, more_bytes = trace(wide, few), trace(wide, 2 * few)
    bytes_of_row, holds = (more_bytes - few_bytes) / few, {}
    for gigabytes in GPU_GIGABYTES:
        free = (gigabytes << 30) - CONTEXT_BYTES - (held.total - held.later)
        rows_beyond = (compute_budget(free, held.later) - few_bytes) // bytes_of_row
        holds[str(gigabytes)] = max(0, few + int(rows_beyond))
    rows = config.rows_per_micro_batch
    with closing(open_stream(config)) as stream:
        if rows is None:
            rows = choose_rows_on_cpu(stream, plan.initial.encoder.config.hidden_size)
        elif rows == "auto":
            sizes = list_row_counts(stream)
            rows = sizes[max(1, bisect(sizes, max(holds.values()))) - 1]
    parts = asdict(held) | {"pass": trace(config, rows)}
    return {"rows_per_micro_batch": rows, **parts, "total": sum(parts.values()), "holds": holds}


def summarise_costs(facts: Values, precision: Precision) -> Summary:
    """Summarise the result of `estimate_costs`, for a terminal."""
    memory, held = facts["memory"], list[str]()
    for gigabytes, rows in memory["holds"].items():
        held.append(f"of {gigabytes} GB {rows:,}" if rows else f"of {gigabytes} GB none")
    tokens = f"{facts['update']['capacity']:,} tokens"
    verdict = f"the most rows of {tokens} that a GPU holds at a time in {precision}: {', '.join(held)}."
    states = memory["total"] - memory["pass"]
    values = {
        "Learning rate": "{learning_rate:g}, {schedule[shape]}, warm-up {schedule[warmup]:g}".format(**facts),
        "Memory": f"{_format_gb(memory['total'])} with {memory['rows_per_micro_batch']} rows at a time:"
        f" a pass {_format_gb(memory['pass'])}; weights, gradients, optimizer {_format_gb(states)}",
    }
    return Summary("Dry run", verdict, make_facts_table("What the run takes", values))


def _format_gb(size: float) -> str:
    return f"{size / 1e9:.3g} GB"
