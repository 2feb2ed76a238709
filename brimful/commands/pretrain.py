"""The verb `brimful pretrain`: masked language modelling on packed rows."""

import math
import shlex
import shutil
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from tokenizers import Tokenizer

from brimful.commands.pretrain_recipe import Recipe, defaults
from brimful.commands.verdict import verdict_of_pretraining
from brimful.config import config_hash, identity, incidental, require_positive, require_seeds, to_dict, verb
from brimful.console import counted, say, warn
from brimful.corpus.shards import Corpus
from brimful.data.blocks import PackingConfig
from brimful.data.masking import MaskingConfig
from brimful.data.mixture import DataSource, open_sources, parse_sources
from brimful.data.pairs import NO_PAIR
from brimful.data.reader import SequenceReader
from brimful.data.rows import Phase, RowStream
from brimful.data.sequences import SequencesConfig
from brimful.data.sources import Source
from brimful.data.streams import training_sources, validation_batches
from brimful.distributed import World, world
from brimful.errors import BrimfulError
from brimful.nn.encoder import Encoder, preset, shape_advice
from brimful.nn.heads import MaskedLMHead, PretrainingHead
from brimful.nn.initial import Initial, InitialConfig, count_pieces, new_model, start_from_data, trained_model
from brimful.nn.interop import save_model
from brimful.nn.layers import EncoderConfig
from brimful.objectives.masked_lm import LossMean, MaskedLM, MaskedLMAndPairs
from brimful.optim.build import OptimizerConfig
from brimful.optim.schedule import Cycle, Schedule, ScheduleConfig
from brimful.packing.hyperparameters import Keep, suggest
from brimful.precision.policy import Precision
from brimful.runs.directory import START, absolute, find_model, finish_run, finished_run, open_run, start_run
from brimful.runs.restart import restarted
from brimful.text.tokenizer import load as load_tokenizer
from brimful.text.tokenizer import special_ids
from brimful.train.config import TrainerConfig, resolve_residual
from brimful.train.metrics import read_metrics
from brimful.train.micro_batch import MicroBatches
from brimful.train.objective import Runtime
from brimful.train.phases import PhaseConfig, data_phases, parse_phase, schedule_cycles
from brimful.train.probe import auto_rows
from brimful.train.sinks import require_wandb
from brimful.train.trainer import Trainer

SOURCES = tyro.constructors.PrimitiveConstructorSpec(
    nargs="*",
    metavar="PATH[:WEIGHT] ...",
    instance_from_str=lambda texts: tuple(texts) or None,
    is_instance=lambda value: value is None or isinstance(value, str | tuple),
    str_from_instance=lambda value: (
        ["None"] if value is None else [f"{source.path}:{source.weight:g}" for source in parse_sources(value)]
    ),
)
_PHASES = tyro.constructors.PrimitiveConstructorSpec(
    nargs="*",
    metavar="STEPS:MAX_LENGTH[:SIZE] ...",
    instance_from_str=lambda texts: tuple(map(parse_phase, texts)),
    is_instance=lambda value: isinstance(value, tuple),
    str_from_instance=lambda phases: list(map(str, phases)) or ["None"],
)

LARGEST_UPDATE = 1 << 24
"""Rows or sequences."""


@dataclass(frozen=True, kw_only=True)
class ShapeConfig:
    """Where a new model departs from its preset. In a --config file, this group is called shape."""

    layers: int | None = None
    """Number of layers."""
    hidden_size: int | None = None
    """Width of the hidden states: a multiple of heads, and best of 64."""
    heads: int | None = None
    """Attention heads. hidden_size / heads is best 64, and a multiple of 8."""
    intermediate_size: int | None = None
    """Width of the feed-forward layers, by default 2 * hidden_size (modern) or 4 * hidden_size; best a
    multiple of 64."""
    dropout: float | None = None
    """Dropout of hidden states in training, by default 0; exported with the model."""

    def changes(self) -> dict[str, Any]:
        """The fields that are given."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """Train an encoder on prepared shards, from random weights or from a trained model."""

    data: Annotated[str | tuple[str | DataSource, ...] | None, SOURCES] = incidental(None)
    """Folder made by `brimful prepare`; or several, each with its proportion of the tokens: web:9 mine:1.
    In a --config file, each has a path, a weight (its proportion) and a name (for metrics)."""
    out: str | None = incidental(None)
    """Run directory to create. The trained encoder is in RUN/encoder."""
    resume: str | None = incidental(None)
    """Run directory of an interrupted run, which continues with its own configuration."""
    start_from: str | None = None
    """A trained model to continue from, encoder and masked-LM head: a finished run or a Hugging Face folder.
    The data has the same tokenizer, or one that extends it (prepare's --extend)."""
    model: Literal["tiny", "mini", "small", "base", "large"] | None = None
    """Preset of a new model, layers x hidden size: tiny 2x128, mini 4x256, small 4x512, base 12x768, large
    24x1024 (modern: 22x768, 28x1024). By default mini."""
    architecture: Literal["modern", "bert", "prenorm"] | None = None
    """Architecture of a new model, by default modern. modern: ModernBERT (pre-LN, RoPE, GeGLU, no biases);
    bert: BERT (post-LN, learned positions); prenorm: BERT with pre-LN (Megatron-BERT)."""
    shape: Annotated[ShapeConfig, tyro.conf.arg(name="model")] = ShapeConfig()
    initial: InitialConfig = InitialConfig()
    recipe: Recipe | None = incidental(None)
    """Defaults of optimizer, masking and schedule. fast: Muon, rates of 2e-3 and 0.02, a mask rate of 0.3, a
    warm-up of 0.05; by default for a new modern tiny or mini, where it was measured. plain: AdamW,
    a rate of 1e-3, a mask rate of 0.15, a warm-up of 0.1; by default elsewhere. Who gives a rate or an
    optimizer without a recipe has the optimizer of plain."""
    seed: int = 0
    """Decides initial weights, the order of the data, which sequences share a row, and masks."""
    rows_per_update: int = 4
    """Rows in an update, over all ranks."""
    sequences_per_update: int | None = None
    """Sequences in an update, packed into as few rows as possible; in place of rows_per_update."""
    rows_per_micro_batch: Literal["auto"] | int | None = incidental(None)
    """Rows in one forward and backward pass; by default auto on a GPU, and 1 on a CPU. auto tries at the
    start: the most that fit in memory, or on a CPU the fastest number. If they don't fit later, the number is
    halved, once."""
    unpacked_batch_size: int | None = None
    """Batch size of a recipe without packing that this run follows; in place of rows_per_update."""
    unpacked_keep: Keep = "sequences"
    """How unpacked_batch_size is followed. sequences: an update has this many sequences, which sets
    rows_per_update. rows: an update has this many rows, and the betas of AdamW or LAMB are raised to the
    power of the packing factor."""
    loss_mean: LossMean = "tokens"
    """The loss is a mean over predictions (tokens), or over the means of sequences, so that each sequence
    counts the same (the Packed-BERT paper)."""
    precision: Precision = "auto"
    """Number format of the computation. auto: bf16 where the device is fast at it; else, on V100 and T4, fp16
    with loss scaling; else fp32."""
    validation_tokens: int = 100_000
    """The most validation tokens that an evaluation reads of each source; 0 = no evaluation."""
    phases: Annotated[tuple[PhaseConfig, ...], _PHASES] = ()
    """Phases of the run: updates, packing.max_length, and rows (or sequences) in an update. Their steps add
    up to trainer.steps. In a --config file, each has steps, max_length and update_size; a learning_rate or
    a warmup starts the schedule anew."""
    verify_data: bool = incidental(True)
    """Check every byte of the data before a new run; --no-verify-data skips the check."""
    sequences: SequencesConfig = SequencesConfig()
    packing: PackingConfig = PackingConfig()
    masking: MaskingConfig = MaskingConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    trainer: TrainerConfig = TrainerConfig(checkpoint_every=500)
    dry_run: bool = incidental(False)
    """Check everything, say what the run would do, and stop."""

    @classmethod
    def defaults(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults of options that a command line, a --config file or keywords leave out.

        Args:
            given: the options that they give, by name: `masking.rate`.
        """
        return defaults(given)

    def __post_init__(self) -> None:
        require_seeds(self.seed)
        require_positive(self, "rows_per_update")
        if isinstance(self.rows_per_micro_batch, int):
            require_positive(self, "rows_per_micro_batch")
        if self.validation_tokens < 0:
            raise BrimfulError(f"validation_tokens is {self.validation_tokens}: it must not be negative")
        self._check_phases()
        self._check_updates()
        new = [name for name in ("model", "architecture") if getattr(self, name) is not None]
        new += [f"model.{name}" for name in self.shape.changes()]
        new += [f"initial.{name}" for name, value in vars(self.initial).items() if value is not None]
        if self.start_from is None:
            self.encoder_config()  # checks it
        elif new:
            raise BrimfulError(f"{new[0]} is for a new model, and start_from has its own: leave out {new[0]}")
        if self.sequences.paired and self.start_from is None and self.architecture in (None, "modern"):
            raise BrimfulError(
                f"sequences.kind={self.sequences.kind} needs token types, and modern has none:"
                " choose architecture bert or prenorm"
            )
        if self.initial.attention == "neighbours" and self.architecture not in (None, "modern"):
            raise BrimfulError("initial.attention=neighbours is for architecture modern: leave it out")
        if self.unpacked_keep == "rows" and self.unpacked_batch_size is None:
            raise BrimfulError("unpacked_keep needs unpacked_batch_size, which is not given")
        if self.unpacked_keep == "rows" and self.optimizer.name == "muon":
            raise BrimfulError(
                "unpacked_keep=rows changes betas, and Muon has none for matrices: choose sequences"
            )

    def _check_phases(self) -> None:
        lengths = {
            self.packing.max_length if phase.max_length is None else phase.max_length for phase in self.phases
        }
        for length in lengths:
            replace(self.packing, max_length=length)  # checks it
        if self.unpacked_batch_size is not None and len(lengths) > 1:
            raise BrimfulError(
                "unpacked_batch_size follows a recipe of one length, and phases have several: give each phase"
                " its update_size"
            )
        steps = sum(phase.steps for phase in self.phases)
        if self.phases and steps != self.trainer.steps:
            raise BrimfulError(
                f"the steps of phases add up to {steps}, and trainer.steps is {self.trainer.steps}:"
                " make them equal"
            )
        Schedule(self.schedule, self.cycles(), self.trainer.hours)  # checks it

    def _check_updates(self) -> None:
        """The size of an update is given once, and micro-batches divide it."""
        phases = [phase.update_size for phase in self.phases]
        ways = [
            name
            for name in ("sequences_per_update", "unpacked_batch_size")
            if getattr(self, name) is not None
        ]
        require_positive(self, *ways)
        for size in (*(getattr(self, name) for name in ways), self.rows_per_update, *phases):
            if size is not None and size > LARGEST_UPDATE:
                raise BrimfulError(f"an update of {size:,} rows or sequences: the most is {LARGEST_UPDATE:,}")
        if self.rows_per_update != PretrainConfig.rows_per_update:
            ways.append("rows_per_update")
        if self.unpacked_batch_size is not None and any(phases):
            ways.append("phases.update_size")
        if len(ways) > 1:
            raise BrimfulError(f"{ways[0]} and {ways[1]} both say how large an update is: give one of them")
        if self.sequences_per_update is not None or self.unpacked_batch_size is not None:
            return
        if not isinstance(self.rows_per_micro_batch, int):
            return
        for rows in (self.rows_per_update, *phases):
            if rows and rows % self.rows_per_micro_batch:
                raise BrimfulError(
                    f"rows_per_micro_batch ({self.rows_per_micro_batch}) must divide the rows of an update"
                    f" ({rows})"
                )

    def run_phases(self) -> list[Phase]:
        """The phases of the data; a run without `phases` has one."""
        sequences = self.sequences_per_update
        size = sequences or self.rows_per_update
        return data_phases(self._phases(), self.packing, size, "sequences" if sequences else "rows")

    def cycles(self) -> list[Cycle]:
        """The cycles of the schedule; see `schedule_cycles`."""
        return schedule_cycles(self._phases(), self.optimizer.learning_rate)

    def _phases(self) -> tuple[PhaseConfig, ...]:
        return self.phases or (PhaseConfig(steps=self.trainer.steps),)

    def longest_sequence(self) -> int:
        """The largest number of tokens that a sequence of the run may have."""
        return max(phase.packing.max_length for phase in self.run_phases())

    def encoder_config(self, tokenizer: Tokenizer | None = None) -> EncoderConfig:
        """The shape of a new model, for the data of a tokenizer (without one: for checks)."""
        data = (
            {}
            if tokenizer is None
            else {"vocabulary_size": tokenizer.get_vocab_size(), "pad_id": special_ids(tokenizer).pad}
        )
        return preset(
            self.model or "mini",
            self.architecture or "modern",
            max_length=self.longest_sequence(),
            **data,
            **self.shape.changes(),
        )


@verb(PretrainConfig)
def pretrain(config: PretrainConfig) -> dict[str, Any]:
    """Train an encoder by masked language modelling on packed rows.

    Returns:
        The content of summary.json: `validation.loss`, `tokens_per_second`, `packing.efficiency` ...

    Raises:
        BrimfulError: no prepared data, an unusable run directory, a checkpoint of other data, a NaN loss.
    """
    dry_run = config.dry_run
    with world() as ranks:
        config = restarted(config, ranks)
        if (summary := finished_run(config, "pretrain", ranks)) is not None:
            return summary
        config, directory, resuming = _resolve(config, ranks)
        require_wandb(config.trainer.wandb)
        verify = config.verify_data and ranks.is_main and not resuming
        corpora = open_sources(parse_sources(config.data or ()), verify=verify)
        return _train(config, corpora, directory, ranks, resuming, dry_run)


def _resolve(config: PretrainConfig, ranks: World) -> tuple[PretrainConfig, Path, bool]:
    """The complete configuration, the run directory, and whether an interrupted run continues."""
    config, directory, resuming = open_run(config, "pretrain", ("data", "out"), ranks)
    if resuming:
        return config, directory, True
    assert config.data is not None
    precision = Runtime.of(ranks, config.precision, config.trainer).precision
    residual = resolve_residual(config.trainer.residual, precision, ranks.device)
    trainer = replace(config.trainer, residual=residual)
    config = replace(config, data=parse_sources(config.data), precision=precision, trainer=trainer)
    if config.rows_per_micro_batch is None:
        config = replace(config, rows_per_micro_batch="auto" if ranks.device.type == "cuda" else 1)
    if config.rows_per_micro_batch == "auto" and config.trainer.shard == "model":
        raise BrimfulError(
            "trainer.shard=model needs rows_per_micro_batch as a number: the ranks of a sharded model cannot"
            " try sizes one by one"
        )
    if config.start_from is not None:
        return replace(config, start_from=absolute(config.start_from)), directory, False
    model, architecture = config.model or "mini", config.architecture or "modern"
    initial = config.initial.resolved(architecture)
    return replace(config, model=model, architecture=architecture, initial=initial), directory, False


def _train(
    config: PretrainConfig,
    corpora: dict[str, Corpus],
    directory: Path,
    ranks: World,
    resuming: bool,
    dry_run: bool,
) -> dict[str, Any]:
    runtime = Runtime.of(ranks, config.precision, config.trainer)
    corpus = next(iter(corpora.values()))
    tokenizer = load_tokenizer(corpus.tokenizer_path)
    reader = SequenceReader(tokenizer, config.masking)
    started = ranks.from_main(resuming and (directory / START).is_dir())
    initial = initial_model(config, tokenizer, directory / START if started else None)
    encoder, head = initial.encoder, initial.head
    sources = make_sources(config, corpora, directory / "blocks", ahead=ranks.is_main)
    config = follow_unpacked(config, sources)
    if ranks.is_main and not resuming:
        _describe(config, sources, initial)
    if dry_run:
        documents = sum(corpus.documents for corpus in corpora.values())
        return {"dry_run": True, "documents": documents, "tokens": sum(c.tokens for c in corpora.values())}
    if config.start_from is None and not started:
        pieces = None
        if config.initial.vocabulary == "data":
            shares = {source.corpus: source.proportion for source in sources}
            width = encoder.config.embedding_width
            pieces = ranks.from_main(count_pieces(shares, width, config.seed) if ranks.is_main else None)
        start_from_data(initial, config.initial, pieces)
    if ranks.is_main:
        if not resuming:
            start_run(directory, config)
        if not (directory / START).exists():
            save_model(directory / START, encoder, head)
    ranks.barrier()

    stream = make_stream(
        config,
        sources,
        reader,
        fixed_shapes=ranks.device.type == "cuda" or config.trainer.compile is True,
        rank=ranks.rank,
        world=ranks.size,
    )
    objective = make_objective(config, initial.head, reader, corpora, directory)
    auto = config.rows_per_micro_batch == "auto"
    trainer = Trainer(
        encoder,
        objective,
        stream,
        runtime,
        directory,
        config=config.trainer,
        optimizer=config.optimizer,
        schedule=config.schedule,
        cycles=config.cycles(),
        seed=config.seed,
        micro_batches=MicroBatches(ranks, stream, auto=auto),
        identity=config_hash(
            [
                identity(config),
                [(s.name, s.proportion, corpora[s.name].fingerprint) for s in sources],
            ]
        ),
        about={"config": to_dict(config)},
        shows=f"brimful inspect {shlex.quote(str(directory))} --update",
    )
    if auto:
        rows = auto_rows(trainer, stream, config.optimizer)
        config = replace(config, rows_per_micro_batch=rows)
        trainer.about["config"] = to_dict(config)
        if ranks.is_main:
            start_run(directory, config)
    if resuming and not trainer.resume() and ranks.is_main:
        say("no usable checkpoint: starting over")
    with closing(stream):
        metrics = trainer.run("pretrain", evaluate_first=config.start_from is not None)
    summary = _summary(config, trainer, encoder, metrics, runtime)
    if ranks.is_main:
        summary["verdict"] = verdict_of_pretraining(directory, sources, corpora, metrics)
        if config.start_from is not None and metrics:
            summary["validation_at_start"] = _metrics_at_start(directory / "metrics.jsonl")
        save_model(directory / "encoder", encoder, head)
        for needed_to_resume in ("blocks", "validation", START):
            shutil.rmtree(directory / needed_to_resume, ignore_errors=True)
        finish_run(directory, summary)
    ranks.barrier()
    return summary


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


def _summary(
    config: PretrainConfig, trainer: Trainer, encoder: Encoder, metrics: dict[str, float], runtime: Runtime
) -> dict[str, Any]:
    """The content of summary.json; `metrics` are those of the last evaluation."""
    totals = trainer.totals
    return {
        "kind": "pretrain",
        "steps": trainer.step,
        "tokens": totals.tokens,
        "tokens_per_second": totals.tokens_per_second,
        "seconds": totals.seconds,
        "parameters": sum(p.numel() for p in encoder.parameters()),
        "precision": runtime.precision,
        "world_size": runtime.world.size,
        "validation": metrics | _perplexity(metrics),
        "packing": {
            "efficiency": totals.fill,
            "padded_efficiency": totals.tokens / totals.padded,
            "packing_factor": totals.sequences * config.packing.capacity / totals.slots,
            "capacity": config.packing.capacity,
            "max_length": config.longest_sequence(),
            "dropped_predictions": totals.dropped_predictions
            / max(1, totals.predictions + totals.dropped_predictions),
        },
        "phases": [
            {
                "steps": phase.steps,
                "max_length": phase.packing.max_length,
                f"{phase.counted}_per_update": phase.size,
            }
            for phase in config.run_phases()
        ],
    }


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
        folder = find_model(Path(config.start_from), "encoder")
    return trained_model(folder, tokenizer, config.sequences, config.longest_sequence(), config.seed)


def _metrics_at_start(path: Path) -> dict[str, float]:
    """The metrics of the evaluation before the first update, from metrics.jsonl."""
    line = next(line for line in read_metrics(path) if line["step"] == 0)
    return {name.removeprefix("validation."): value for name, value in line.items() if name != "step"}


def _describe(config: PretrainConfig, sources: list[Source], initial: Initial) -> None:
    """Say what a new run will do."""
    parameters = sum(p.numel() for p in initial.encoder.parameters())
    documents = sum(source.corpus.documents for source in sources)
    model = f"a {config.model} {config.architecture} encoder"
    if config.start_from is not None:
        pieces = counted(initial.new_pieces, "new piece")
        model = f"the {initial.encoder.config.architecture} encoder of {config.start_from}, {pieces}"
    say(
        f"pretraining {model} ({parameters / 1e6:.1f} M parameters) on {documents:,} documents"
        f" with {config.optimizer.summary}"
    )
    advice = shape_advice(initial.encoder.config) if config.start_from is None else []
    for warning in (*initial.warnings, *advice):
        warn(warning)
    read, max_length = np.zeros(len(sources)), 0
    for phase in config.run_phases():
        longest = phase.packing.max_length
        sequences, plans = zip(*(source.blocks[longest].preview() for source in sources), strict=True)
        for source, some in zip(sources, sequences, strict=True):
            if config.sequences.paired and not max_length and (some.pair == NO_PAIR).all():
                warn(f"{source.name} gives no pairs: it has one document, or every document has one sentence")
        rows = _proportions(sources) / [
            plan.tokens / plan.rows for plan in plans
        ]  # of each source, per token
        tokens = phase.size / rows.sum()
        packed = phase.size * float(np.dot(rows / rows.sum(), [plan.packing_factor for plan in plans]))
        what = counted(phase.size, phase.counted.removesuffix("s"))
        say(
            f"{counted(phase.steps, 'update')} of {what}, about {packed:,.0f} sequences and {tokens:,.0f}"
            f" tokens, sequences of at most {longest}"
        )
        blocks = phase.steps * tokens * _proportions(sources) / [plan.tokens for plan in plans]
        if max_length not in (0, longest) and (read.astype(int) == (read + blocks).astype(int)).all():
            warn(
                "the length of sequences does not change in this phase: it changes when a block of data"
                " begins, and no block is expected to begin here"
            )
        read, max_length = read + blocks, longest
    if config.trainer.hours:
        say(f"the run ends after {config.trainer.hours:g} hours of training at the latest")
    for source, blocks in zip(sources, read, strict=True):
        epochs = blocks / source.blocks[max_length].count
        say(f"{source.name}: {epochs:.3g} epochs of {source.corpus.tokens:,} tokens")


def _proportions(sources: list[Source]) -> np.ndarray:
    """float64: the fraction of the tokens that each source contributes."""
    proportions = np.array([source.proportion for source in sources])
    return proportions / proportions.sum()


def follow_unpacked(config: PretrainConfig, sources: list[Source]) -> PretrainConfig:
    """The configuration with `unpacked_batch_size`, if given, turned into rows and betas."""
    if config.unpacked_batch_size is None:
        return config
    optimizer, rows = config.optimizer, config.rows_per_micro_batch or 1
    first = config.run_phases()[0].packing.max_length
    factors = [source.blocks[first].preview()[1].packing_factor for source in sources]
    suggestion = partial(
        suggest,
        float(np.dot(_proportions(sources), factors)),
        config.unpacked_batch_size,
        (optimizer.beta1, optimizer.beta2),
        keep=config.unpacked_keep,
    )
    if rows == "auto":  # a power of two, so that there is a choice; the update is off by a sixteenth at most
        rows = 1 << (max(1, suggestion().rows_per_update // 8).bit_length() - 1)
    found = suggestion(multiple_of=rows)
    beta1, beta2 = found.betas
    return replace(
        config,
        unpacked_batch_size=None,
        unpacked_keep="sequences",
        rows_per_update=found.rows_per_update,
        optimizer=replace(optimizer, beta1=beta1, beta2=beta2),
    )


def _perplexity(metrics: dict[str, float]) -> dict[str, float]:
    """Of the mean over predictions: `token_loss` where there is one, else `loss`."""
    loss = metrics.get("token_loss", metrics.get("loss"))
    return {} if loss is None else {"perplexity": math.exp(min(loss, 50))}
