"""The verb `brimful pretrain`: masked language modelling on packed rows."""

import math
import shlex
import shutil
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from brimful.base.config import to_dict, write_yaml
from brimful.base.console import say, warn
from brimful.base.numbers import find_mapping, find_number, format_duration, format_percent, format_short
from brimful.base.seals import seal
from brimful.base.summary import Summary as Overview
from brimful.base.summary import make_facts_table, with_overview
from brimful.corpus.frequencies import entropy, piece_frequencies
from brimful.corpus.text.tokenizer import load as load_tokenizer
from brimful.data.mixture import open_sources, parse_sources
from brimful.data.reader import SequenceReader
from brimful.hf.folders import save_model
from brimful.model.encoder import Encoder
from brimful.precision.policy import resolve_residual
from brimful.runs.directory import absolute
from brimful.runs.folder import RunFolder
from brimful.runs.job import Job, Summary
from brimful.runs.places import CONFIG, START
from brimful.stages.pretrain_config import PretrainConfig
from brimful.stages.pretrain_data import (
    PretrainPlan,
    describe,
    expected,
    initial_model,
    make_modules,
    make_objective,
    make_sources,
    make_stream,
    say_outlook,
)
from brimful.start.initial import count_pieces, start_from_data
from brimful.train.metrics import list_outcome, read_metrics, training_loss
from brimful.train.objective import Runtime
from brimful.train.step_memory import auto_rows, rows_on_cpu
from brimful.train.trainer import Trainer
from brimful.train.training import Training

NEAR_NATS = 0.1
"""Nats around the unigram entropy within which a loss counts as equal to it."""


class PretrainJob(Job[PretrainConfig, PretrainPlan]):
    """Trains an encoder on prepared data."""

    verb = "pretrain"
    temporary = ("blocks", "validation", START)

    def plan(self, config: PretrainConfig, folder: RunFolder) -> PretrainPlan:
        """Resolve a configuration, and say what a new run will do.

        Raises:
            BrimfulError: no prepared data, or what the run starts from cannot be used.
        """
        config = resolved(config, folder)
        verify = config.verify_data and folder.ranks.is_main
        corpora = open_sources(parse_sources(config.data or ()), verify=verify)
        held_out = config.validation_tokens and any(corpus.part("validation") for corpus in corpora.values())
        if config.trainer.evaluate_every and not held_out and folder.announces:
            warn(
                "trainer.evaluate_every does nothing: validation_tokens is 0, or the data has no validation"
                " part"
            )
        ranks = folder.ranks
        says = ranks.is_main and (config.dry_run or not folder.resuming)
        tokenizer = load_tokenizer(next(iter(corpora.values())).tokenizer_path)
        is_started = ranks.from_main(folder.resuming and ranks.is_main and _has_start(folder.path / START))
        initial = initial_model(config, tokenizer, folder.path / START if is_started else None)
        sources = make_sources(config, corpora, folder.path / "blocks", ahead=ranks.is_main)
        epochs = describe(config, sources, initial) if says else {}
        return PretrainPlan(
            config,
            corpora,
            SequenceReader(tokenizer, config.masking),
            initial,
            is_started,
            sources,
            Runtime.of(ranks, config.precision, config.trainer),
            epochs,
        )

    def outlook(self, plan: PretrainPlan) -> Summary:
        """What a dry run says and returns, on the main rank."""
        if not plan.runtime.world.is_main:
            return {}
        outlook = expected(plan) | {"epochs": plan.epochs}
        say_outlook(outlook, plan.runtime.precision)
        return outlook

    def work(self, plan: PretrainPlan, folder: RunFolder) -> Summary:
        """Train as planned, and save the encoder.

        Raises:
            BrimfulError: a checkpoint of other data, a NaN loss.
            StoppedError: a signal asked to stop.
        """
        config, ranks, directory = plan.config, folder.ranks, folder.path
        encoder, head = plan.initial.encoder, plan.initial.head
        if config.start_from is None and not plan.is_started:
            _start_from_data(plan, folder)
        if ranks.is_main and not plan.is_started:
            shutil.rmtree(directory / START, ignore_errors=True)  # what a kill has left of one
            save_model(directory / START, encoder, head)
            seal(directory / START)
        ranks.barrier()
        stream = make_stream(
            config,
            plan.sources,
            plan.reader,
            fixed_shapes=ranks.device.type == "cuda" or config.trainer.compile is True,
            rank=ranks.rank,
            world=ranks.size,
        )
        given = isinstance(config.rows_per_micro_batch, int)
        trainer = Trainer(
            encoder,
            make_objective(config, head, plan.reader, plan.corpora, directory),
            stream,
            plan.runtime,
            directory,
            Training(
                config=config.trainer,
                optimizer=config.optimizer,
                schedule=config.schedule,
                cycles=config.cycles(),
                seed=config.seed,
                identity=folder.identity,
                about={"config": to_dict(config)},
                shows=f"brimful inspect {shlex.quote(str(directory))} --update",
            ),
        )
        if not given:
            if ranks.device.type == "cuda":
                make = partial(make_modules, plan, directory)
                rows = auto_rows(trainer.state, trainer.training, plan.runtime, stream, make)
            else:
                rows = rows_on_cpu(stream, encoder.config.hidden_size)
            config = replace(config, rows_per_micro_batch=rows)
            trainer.training.about["config"] = to_dict(config)
            if ranks.is_main:
                write_yaml(directory / CONFIG, config)
        if folder.resuming and not trainer.resume() and ranks.is_main:
            say("no usable checkpoint: starting over")
        if folder.resuming and ranks.size > 1:
            micro_batches, _ = stream.micro_batches(trainer.progress.cursor)
            if len(micro_batches) < ranks.size and ranks.is_main:
                warn(
                    f"an update has work for {len(micro_batches)} of {ranks.size} ranks: lower"
                    f" rows_per_micro_batch ({stream.rows_per_micro_batch}) in {directory / 'config.yaml'}"
                )
        with closing(stream):
            metrics = trainer.run("pretrain", evaluate_first=config.start_from is not None)
        summary = _summary(config, trainer, encoder, metrics, plan)
        if ranks.is_main:
            summary["verdict"] = _judge_loss(plan, metrics)
            summary |= training_loss(read_metrics(directory / "metrics.jsonl"))
            if config.start_from is not None and metrics:
                summary["validation_at_start"] = _metrics_at_start(directory / "metrics.jsonl")
            save_model(directory / "encoder", encoder, head)
        return with_overview(summary, summarise_pretraining(summary))


def resolved(config: PretrainConfig, folder: RunFolder) -> PretrainConfig:
    """The configuration, complete but for the rows of a micro-batch."""
    ranks = folder.ranks
    if config.rows_per_micro_batch is None and ranks.device.type == "cuda":
        config = replace(config, rows_per_micro_batch="auto")
    if folder.resuming:
        return config
    assert config.data is not None
    precision = Runtime.of(ranks, config.precision, config.trainer).precision
    residual = resolve_residual(config.trainer.residual, precision, ranks.device)
    trainer = replace(config.trainer, residual=residual)
    config = replace(config, data=parse_sources(config.data), precision=precision, trainer=trainer)
    if config.start_from is not None:
        return replace(config, start_from=absolute(config.start_from))
    model, architecture = config.model or "mini", config.architecture or "modern"
    initial = config.initial.resolved(architecture)
    return replace(config, model=model, architecture=architecture, initial=initial)


def _has_start(folder: Path) -> bool:
    """Whether the model that a run starts from is kept, whole."""
    names = ("config.json", "model.safetensors", "tokenizer.json")
    return all((folder / name).is_file() for name in names)


def _start_from_data(plan: PretrainPlan, folder: RunFolder) -> None:
    """Set what the data says of the initial weights; the main rank counts, for all."""
    initial, config, ranks = plan.initial, plan.config, folder.ranks
    pieces = None
    if config.initial.vocabulary == "data":
        shares = {source.corpus: source.proportion for source in plan.sources}
        width = initial.encoder.config.embedding_width
        pieces = ranks.from_main(count_pieces(shares, width, config.seed) if ranks.is_main else None)
    start_from_data(initial, config.initial, pieces)


def _summary(
    config: PretrainConfig, trainer: Trainer, encoder: Encoder, metrics: dict[str, float], plan: PretrainPlan
) -> Summary:
    """The content of summary.json; `metrics` are those of the last evaluation."""
    totals = trainer.progress.totals
    return {
        "kind": "pretrain",
        "steps": trainer.progress.step,
        "tokens": totals.tokens,
        "tokens_per_second": totals.tokens_per_second,
        "seconds": totals.seconds,
        "parameters": sum(p.numel() for p in encoder.parameters()),
        "precision": plan.runtime.precision,
        "world_size": plan.runtime.world.size,
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


def _metrics_at_start(path: Path) -> dict[str, float]:
    """The metrics of the evaluation before the first update, from metrics.jsonl."""
    line = next((line for line in read_metrics(path) if line.get("step") == 0), {})
    return {name.removeprefix("validation."): value for name, value in line.items() if name != "step"}


def _perplexity(metrics: dict[str, float]) -> dict[str, float]:
    """Of the mean over predictions: `token_loss` where there is one, else `loss`."""
    loss = metrics.get("token_loss", metrics.get("loss"))
    return {} if loss is None else {"perplexity": math.exp(min(loss, 50))}


def _judge_loss(plan: PretrainPlan, metrics: Mapping[str, float]) -> dict[str, Any]:
    """Whether the loss is normal: a model that knows only how often each piece of the vocabulary occurs
    reaches the unigram entropy.

    Args:
        metrics: of the last evaluation, with the loss in nats a prediction; empty without one.

    Returns:
        `unigram_entropy` (nats); with metrics, `loss_is_normal`.
    """
    unigram = entropy(piece_frequencies({plan.corpora[s.name]: s.proportion for s in plan.sources}))
    loss = metrics.get("token_loss", metrics.get("loss"))
    judged = {} if loss is None else {"loss_is_normal": loss <= unigram - NEAR_NATS}
    return {"unigram_entropy": unigram} | judged


def summarise_pretraining(facts: Mapping[str, Any]) -> Overview:
    """What came out of a pretraining: its loss, and how full its rows were.

    Args:
        facts: what summary.json holds.
    """
    loss, entropy = find_number(facts, "validation.loss"), find_number(facts, "verdict.unigram_entropy")
    tokens, seconds = find_number(facts, "tokens") or 0, find_number(facts, "seconds") or 0
    verdict = f"Trained on {format_short(tokens)} real tokens in {format_duration(seconds)}"
    if loss is not None:
        verdict += f"; the loss on held-out text is {loss:.2f}"
    is_normal = find_mapping(facts, "verdict").get("loss_is_normal")
    if is_normal is True:
        verdict += f", which is normal (guessing by frequency: {entropy:.2f})"
    elif is_normal is False:
        verdict += (
            f", no better than guessing by frequency ({entropy:.2f}): train longer, or change"
            " optimizer.learning_rate"
        )
    perplexity, accuracy = (
        find_number(facts, "validation.perplexity"),
        find_number(facts, "validation.accuracy"),
    )
    packed, padded = find_number(facts, "packing.efficiency"), find_number(facts, "packing.padded_efficiency")
    result = {
        "Perplexity on held-out text": None if perplexity is None else format_short(perplexity),
        "Masked tokens found": None if accuracy is None else format_percent(accuracy),
        "Real tokens a second": format_short(find_number(facts, "tokens_per_second") or 0),
        "Parameters": format_short(find_number(facts, "parameters") or 0),
        "Real tokens in a row": None if packed is None else format_percent(packed),
        "Real tokens in a row, if padded": None if padded is None else format_percent(padded),
    }
    tables = make_facts_table("Result", result | list_outcome(facts, loss))
    return Overview("Pretrained encoder", f"{verdict}.", tables)
