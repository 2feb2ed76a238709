"""Pretraining: masked language modelling on packed rows, and the verb `brimful pretrain`."""

import math
import shlex
import shutil
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from brimful.commands.initial import Initial, figures_at_start, initial_model
from brimful.commands.pretrain_config import PretrainConfig, schedule_cycles
from brimful.commands.pretrain_data import (
    longest_sequence,
    make_sources,
    make_stream,
    run_phases,
    validation_batches,
)
from brimful.config import config_hash, identity, to_dict, verb
from brimful.console import counted, say, warn
from brimful.corpus.shards import Corpus
from brimful.data.mixture import open_sources, parse_sources
from brimful.data.pairs import NO_PAIR
from brimful.data.reader import SequenceReader
from brimful.data.sources import Source
from brimful.distributed import World, world
from brimful.nn.heads import PretrainingHead
from brimful.nn.interop import save_model
from brimful.objectives.masked_lm import MaskedLM, MaskedLMAndPairs
from brimful.packing.hyperparameters import suggest
from brimful.runs.directory import START, absolute, finish_run, finished_run, open_run, start_run
from brimful.train.micro_batch import MicroBatches
from brimful.train.objective import Runtime
from brimful.train.probe import auto_rows
from brimful.train.sinks import require_wandb
from brimful.train.trainer import Trainer


def _resolve(config: PretrainConfig, ranks: World) -> tuple[PretrainConfig, Path, bool]:
    """The configuration to run, its directory, and whether it may hold a checkpoint."""
    config, directory, resuming = open_run(config, "pretrain", ("data", "out"), ranks)
    if resuming:
        return config, directory, True
    assert config.data is not None
    precision = Runtime.of(ranks, config.precision, config.trainer).precision
    config = replace(config, data=parse_sources(config.data), precision=precision)
    if config.start_from is not None:
        return replace(config, start_from=absolute(config.start_from)), directory, False
    model, architecture = config.model or "mini", config.architecture or "modern"
    return replace(config, model=model, architecture=architecture), directory, False


def _describe(config: PretrainConfig, sources: list[Source], initial: Initial) -> None:
    """Say what a new run will do."""
    parameters = sum(p.numel() for p in initial.encoder.parameters())
    documents = sum(source.corpus.documents for source in sources)
    model = f"a {config.model} {config.architecture} encoder"
    if config.start_from is not None:
        pieces = counted(initial.new_pieces, "new piece")
        model = f"the {initial.encoder.config.architecture} encoder of {config.start_from}, {pieces}"
    say(
        f"pretraining {model} ({parameters / 1e6:.1f} M parameters) on {documents:,} documents, betas"
        f" {config.optimizer.beta1:g} and {config.optimizer.beta2:g}"
    )
    for warning in initial.warnings:
        warn(warning)
    read, max_length = np.zeros(len(sources)), 0
    for phase in run_phases(config):
        longest = phase.packing.max_length
        sequences, plans = zip(*(source.blocks[longest].preview() for source in sources), strict=True)
        for source, some in zip(sources, sequences, strict=True):
            if config.sequences.paired and not max_length and (some.pair == NO_PAIR).all():
                warn(
                    f"{source.name} gives no pair of segments: it has one document, or each has one sentence"
                )
        rows = _shares(sources) / [plan.tokens / plan.rows for plan in plans]  # of each, for one token
        tokens = phase.size / rows.sum()
        packed = phase.size * float(np.dot(rows / rows.sum(), [plan.packing_factor for plan in plans]))
        what = counted(phase.size, phase.counted.removesuffix("s"))
        say(
            f"{counted(phase.steps, 'update')} of {what}, about {packed:,.0f} sequences and {tokens:,.0f}"
            f" tokens, sequences of at most {longest}"
        )
        blocks = phase.steps * tokens * _shares(sources) / [plan.tokens for plan in plans]
        if max_length not in (0, longest) and (read.astype(int) == (read + blocks).astype(int)).all():
            warn(
                "these updates see sequences as long as those before: lengths change with a block of data,"
                " and no block seems to begin in this phase"
            )
        read, max_length = read + blocks, longest
    if config.trainer.hours:
        say(f"at the latest after {config.trainer.hours:g} hours of training the run ends, wherever it is")
    for source, blocks in zip(sources, read, strict=True):
        epochs = blocks / source.blocks[max_length].count
        say(f"{source.name}: {epochs:.3g} epochs of {source.corpus.tokens:,} tokens")


def _shares(sources: list[Source]) -> np.ndarray:
    """float64: each source's share of the tokens."""
    weights = np.array([source.weight for source in sources])
    return weights / weights.sum()


def follow_unpacked(config: PretrainConfig, sources: list[Source]) -> PretrainConfig:
    """The configuration that follows the recipe of `unpacked_batch_size`, if there is one."""
    if config.unpacked_batch_size is None:
        return config
    optimizer, rows = config.optimizer, config.rows_per_micro_batch
    first = run_phases(config)[0].packing.max_length
    factors = [source.blocks[first].preview()[1].packing_factor for source in sources]
    suggestion = partial(
        suggest,
        float(np.dot(_shares(sources), factors)),
        config.unpacked_batch_size,
        (optimizer.beta1, optimizer.beta2),
        keep=config.unpacked_keep,
    )
    if rows == "auto":  # a power of two, to leave a choice; the update's size is off by a sixteenth at most
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


def _perplexity(figures: dict[str, float]) -> dict[str, float]:
    """From the mean over predictions, which `loss` is unless there is a `token_loss`."""
    loss = figures.get("token_loss", figures.get("loss"))
    return {} if loss is None else {"perplexity": math.exp(min(loss, 50))}


@verb(PretrainConfig)
def pretrain(config: PretrainConfig) -> dict[str, Any]:
    """Train an encoder by masked language modelling on packed rows.

    Returns:
        what summary.json holds: `validation.loss`, `tokens_per_second`, `packing.efficiency` ...

    Raises:
        BrimfulError: no prepared data, an unusable run directory, a checkpoint of other data, a NaN loss.
    """
    dry_run = config.dry_run
    with world() as ranks:
        if (summary := finished_run(config, "pretrain", ranks)) is not None:
            return summary
        config, directory, resuming = _resolve(config, ranks)
        require_wandb(config.trainer.wandb)
        verify = config.verify_data and ranks.is_main and not resuming
        corpora = open_sources(parse_sources(config.data or ()), verify=verify)
        return _train(config, corpora, directory, ranks, resuming, dry_run)


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
    tokenizer = Tokenizer.from_file(str(corpus.tokenizer_path))
    reader = SequenceReader(tokenizer, config.masking)
    initial = initial_model(config, tokenizer, directory / START if resuming else None)
    encoder, head = initial.encoder, initial.head
    sources = make_sources(config, corpora, directory / "blocks", ahead=ranks.is_main)
    config = follow_unpacked(config, sources)
    if ranks.is_main and not resuming:
        _describe(config, sources, initial)
    if dry_run:
        documents = sum(corpus.documents for corpus in corpora.values())
        return {"dry_run": True, "documents": documents, "tokens": sum(c.tokens for c in corpora.values())}
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
    held_out = {
        name: validation_batches(name, corpus.part("validation"), reader, config, directory / "validation")
        for name, corpus in corpora.items()
    }
    objective: MaskedLM
    if isinstance(head, PretrainingHead):
        objective = MaskedLMAndPairs(head, held_out, config.loss_mean)
    else:
        objective = MaskedLM(head, held_out, config.loss_mean)
    auto = config.rows_per_micro_batch == "auto"
    if auto:
        rows = auto_rows(stream, encoder, objective, runtime, config.optimizer)
        config = replace(config, rows_per_micro_batch=rows)
        if ranks.is_main:
            start_run(directory, config)
    trainer = Trainer(
        encoder,
        objective,
        stream,
        runtime,
        directory,
        config=config.trainer,
        optimizer=config.optimizer,
        schedule=config.schedule,
        cycles=schedule_cycles(config),
        seed=config.seed,
        micro_batches=MicroBatches(ranks, stream, auto=auto),
        identity=config_hash(
            [
                identity(config),
                [(s.name, s.weight, corpora[s.name].fingerprint) for s in sources],
            ]
        ),
        about={"config": to_dict(config)},
        shows=f"brimful inspect {shlex.quote(str(directory))} --update",
    )
    if resuming and not trainer.resume() and ranks.is_main:
        say("no usable checkpoint: starting over")
    with closing(stream):
        figures = trainer.run("pretrain", evaluate_first=config.start_from is not None)
    totals = trainer.totals
    summary = {
        "kind": "pretrain",
        "steps": trainer.step,
        "tokens": totals.tokens,
        "tokens_per_second": totals.tokens_per_second,
        "seconds": totals.seconds,
        "parameters": sum(p.numel() for p in encoder.parameters()),
        "precision": runtime.precision,
        "world_size": ranks.size,
        "validation": figures | _perplexity(figures),
        "packing": {
            "efficiency": totals.fill,
            "padded_efficiency": totals.tokens / totals.padded,
            "packing_factor": totals.sequences * config.packing.capacity / totals.slots,
            "capacity": config.packing.capacity,
            "max_length": longest_sequence(config),
            "dropped_predictions": totals.dropped_predictions
            / max(1, totals.predictions + totals.dropped_predictions),
        },
        "phases": [
            {
                "steps": phase.steps,
                "max_length": phase.packing.max_length,
                f"{phase.counted}_per_update": phase.size,
            }
            for phase in run_phases(config)
        ],
    }
    if ranks.is_main:
        if config.start_from is not None and figures:
            summary["validation_at_start"] = figures_at_start(directory / "metrics.jsonl")
        save_model(directory / "encoder", encoder, head)
        for needed_to_go_on in ("blocks", "validation", START):
            shutil.rmtree(directory / needed_to_go_on, ignore_errors=True)
        finish_run(directory, summary)
    ranks.barrier()
    return summary
