"""The verb `brimful pretrain`: masked language modelling on packed rows."""

import math
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from brimful.config import config_hash, identity, to_dict, verb
from brimful.console import counted, say, warn
from brimful.corpus.shards import Corpus
from brimful.data.mixture import open_sources, parse_sources
from brimful.data.pairs import NO_PAIR
from brimful.data.reader import SequenceReader
from brimful.data.rows import RowStream
from brimful.data.sources import Source
from brimful.data.streams import training_sources, validation_batches
from brimful.distributed import World, world
from brimful.folder_lock import FolderLock
from brimful.hf.folders import save_model
from brimful.hf.model_folder import ModelFolder
from brimful.model.encoder import Encoder, shape_advice
from brimful.model.heads import MaskedLMHead, PretrainingHead
from brimful.objectives.masked_lm import MaskedLM, MaskedLMAndPairs
from brimful.packing.hyperparameters import suggest
from brimful.precision.policy import resolve_residual
from brimful.pretraining.config import DryRun, PretrainConfig
from brimful.pretraining.outlook import disk, measured, memory, say_outlook
from brimful.pretraining.verdict import verdict_of_pretraining
from brimful.runs.directory import START, absolute, finish_run, finished_run, open_run, start_run
from brimful.runs.restart import restarted
from brimful.seals import seal
from brimful.start.initial import Initial, count_pieces, head_kind, new_model, start_from_data, trained_model
from brimful.text.tokenizer import load as load_tokenizer
from brimful.train.metrics import read_metrics
from brimful.train.micro_batch import MicroBatches
from brimful.train.objective import Runtime
from brimful.train.probe import auto_rows, rows_on_cpu
from brimful.train.sinks import require_wandb
from brimful.train.step_memory import Held
from brimful.train.trainer import Trainer


@verb(PretrainConfig)
def pretrain(config: PretrainConfig) -> dict[str, Any]:
    """Train an encoder by masked language modelling on packed rows.

    Returns:
        The content of summary.json: `validation.loss`, `tokens_per_second`, `packing.efficiency` ...
        A dry run: `documents`, `tokens`, `parameters`, `epochs` of each source, `disk` and `memory` in bytes,
        and where asked for, `measured`; on ranks other than the main one, that alone.

    Raises:
        BrimfulError: no prepared data, an unusable run directory, a checkpoint of other data, a NaN loss.
    """
    dry_run = config.dry_run
    with world() as ranks, FolderLock() as lock:
        config = restarted(config, ranks)
        if (summary := finished_run(config, "pretrain", ranks)) is not None:
            return summary
        config, directory, resuming = _resolve(config, ranks, lock)
        require_wandb(config.trainer.wandb)
        verify = config.verify_data and ranks.is_main
        corpora = open_sources(parse_sources(config.data or ()), verify=verify)
        return _train(config, corpora, directory, ranks, resuming, dry_run)


def _resolve(config: PretrainConfig, ranks: World, lock: FolderLock) -> tuple[PretrainConfig, Path, bool]:
    """The configuration, complete but for the rows of a micro-batch; the run directory; and whether an
    interrupted run continues."""
    config, directory, resuming = open_run(config, "pretrain", ("data", "out"), ranks, lock)
    if config.rows_per_micro_batch is None and ranks.device.type == "cuda":
        config = replace(config, rows_per_micro_batch="auto")
    if resuming:
        return config, directory, True
    assert config.data is not None
    precision = Runtime.of(ranks, config.precision, config.trainer).precision
    residual = resolve_residual(config.trainer.residual, precision, ranks.device)
    trainer = replace(config.trainer, residual=residual)
    config = replace(config, data=parse_sources(config.data), precision=precision, trainer=trainer)
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
    dry_run: DryRun,
) -> dict[str, Any]:
    runtime = Runtime.of(ranks, config.precision, config.trainer)
    corpus = next(iter(corpora.values()))
    tokenizer = load_tokenizer(corpus.tokenizer_path)
    reader = SequenceReader(tokenizer, config.masking)
    started = ranks.from_main(resuming and ranks.is_main and _has_start(directory / START))
    initial = initial_model(config, tokenizer, directory / START if started else None)
    encoder, head = initial.encoder, initial.head
    sources = make_sources(config, corpora, directory / "blocks", ahead=ranks.is_main)
    config = follow_unpacked(config, sources)
    epochs = {}
    if ranks.is_main and (dry_run or not resuming):
        epochs = _describe(config, sources, initial)
    if dry_run:
        outlook: dict[str, Any] = {}
        if ranks.is_main:
            outlook = _outlook(config, corpora, reader, initial, runtime) | {"epochs": epochs}
            say_outlook(outlook, runtime.precision)
        if dry_run == "measured":

            def train(brief: PretrainConfig, folder: Path) -> object:
                return _train(brief, corpora, folder, ranks, False, False)

            outlook["measured"] = measured(config, ranks, train)
        return outlook
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
            seal(directory / START)
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
    given = isinstance(config.rows_per_micro_batch, int)
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
        micro_batches=MicroBatches(ranks, stream, auto=not given),
        identity=config_hash(
            [
                identity(config),
                [(s.name, s.proportion, corpora[s.name].fingerprint) for s in sources],
            ]
        ),
        about={"config": to_dict(config)},
        shows=f"brimful inspect {shlex.quote(str(directory))} --update",
    )
    if not given:
        if config.rows_per_micro_batch == "auto":
            rows = auto_rows(trainer, stream, config.optimizer)
        else:
            rows = rows_on_cpu(stream, encoder.config.hidden_size)
        config = replace(config, rows_per_micro_batch=rows)
        trainer.about["config"] = to_dict(config)
        if ranks.is_main:
            start_run(directory, config)
    if resuming and not trainer.resume() and ranks.is_main:
        say("no usable checkpoint: starting over")
    if resuming and ranks.size > 1:
        micro_batches, _ = stream.micro_batches(trainer.cursor)
        if len(micro_batches) < ranks.size and ranks.is_main:
            warn(
                f"an update has work for {len(micro_batches)} of {ranks.size} ranks: lower"
                f" rows_per_micro_batch ({stream.rows_per_micro_batch}) in {directory / 'config.yaml'}"
            )
    with closing(stream):
        metrics = trainer.run("pretrain", evaluate_first=config.start_from is not None)
    summary = _summary(config, trainer, encoder, metrics, runtime)
    if ranks.is_main:
        summary["verdict"] = verdict_of_pretraining(directory, sources, corpora, metrics)
        if config.start_from is not None and metrics:
            summary["validation_at_start"] = _metrics_at_start(directory / "metrics.jsonl")
        save_model(directory / "encoder", encoder, head)
        finish_run(directory, summary, ("blocks", "validation", START))
    ranks.barrier()
    return summary


def _outlook(
    config: PretrainConfig,
    corpora: dict[str, Corpus],
    reader: SequenceReader,
    initial: Initial,
    runtime: Runtime,
) -> dict[str, Any]:
    """What a dry run says, but for its epochs. Plans are kept in a folder that is then removed."""
    held = Held.of([initial.encoder, initial.head], config.optimizer, config.trainer, runtime.precision)
    with tempfile.TemporaryDirectory(prefix="brimful-") as made:
        folder = Path(made)

        def make() -> tuple[Encoder, MaskedLM]:
            encoder = Encoder(initial.encoder.config)
            head = head_kind(config.sequences)(encoder)
            return encoder, make_objective(
                replace(config, validation_tokens=0), head, reader, corpora, folder
            )

        sources = make_sources(config, corpora, folder, ahead=False)
        with closing(
            make_stream(config, sources, reader, fixed_shapes=True, world=runtime.world.size)
        ) as stream:
            needed = memory(config, stream, make, initial.encoder.config, held, runtime.precision)
    return {
        "dry_run": True,
        "documents": sum(corpus.documents for corpus in corpora.values()),
        "tokens": sum(corpus.tokens for corpus in corpora.values()),
        "parameters": sum(p.numel() for p in initial.encoder.parameters()),
        "disk": disk(config, corpora, held),
        "memory": needed,
    }


def _has_start(folder: Path) -> bool:
    """Whether the model that a run starts from is kept. What is left of one is removed."""
    if all((folder / name).is_file() for name in ("config.json", "model.safetensors", "tokenizer.json")):
        return True
    shutil.rmtree(folder, ignore_errors=True)
    return False


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
        return MaskedLMAndPairs(head, held_out, config.loss_mean, config.sampled_softmax)
    return MaskedLM(head, held_out, config.loss_mean, config.sampled_softmax)


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
        folder = ModelFolder.open(config.start_from, "encoder").path
    return trained_model(folder, tokenizer, config.sequences, config.longest_sequence(), config.seed)


def _metrics_at_start(path: Path) -> dict[str, float]:
    """The metrics of the evaluation before the first update, from metrics.jsonl."""
    line = next((line for line in read_metrics(path) if line.get("step") == 0), {})
    return {name.removeprefix("validation."): value for name, value in line.items() if name != "step"}


def _describe(config: PretrainConfig, sources: list[Source], initial: Initial) -> dict[str, float]:
    """Say what a new run will do, and return the epochs of each source."""
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
    epochs = {}
    for source, blocks in zip(sources, read.tolist(), strict=True):
        epochs[source.name] = blocks / source.blocks[max_length].count
        say(f"{source.name}: {epochs[source.name]:.3g} epochs of {source.corpus.tokens:,} tokens")
    return epochs


def _proportions(sources: list[Source]) -> np.ndarray:
    """float64: the fraction of the tokens that each source contributes."""
    proportions = np.array([source.proportion for source in sources])
    return proportions / proportions.sum()


def follow_unpacked(config: PretrainConfig, sources: list[Source]) -> PretrainConfig:
    """The configuration with `unpacked_batch_size`, if given, turned into rows and betas."""
    if config.unpacked_batch_size is None:
        return config
    optimizer, rows = config.optimizer, config.rows_per_micro_batch
    first = config.run_phases()[0].packing.max_length
    factors = [source.blocks[first].preview()[1].packing_factor for source in sources]
    suggestion = partial(
        suggest,
        float(np.dot(_proportions(sources), factors)),
        config.unpacked_batch_size,
        (optimizer.beta1, optimizer.beta2),
        keep=config.unpacked_keep,
    )
    if not isinstance(rows, int):
        # A power of two, so that there is a choice; the update is off by a sixteenth at most.
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
