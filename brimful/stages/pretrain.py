"""The verb `brimful pretrain`: masked language modelling on packed rows."""

import math
import shlex
import shutil
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from brimful.base.config import to_dict, write_yaml
from brimful.base.console import say, warn
from brimful.base.errors import BrimfulError
from brimful.base.numbers import find_mapping, find_number, format_duration, format_percent, format_short
from brimful.base.seals import CONFIG, SUMMARY, seal
from brimful.base.storage import read_object
from brimful.base.summary import Summary, make_facts_table, with_overview
from brimful.base.types import Facts, Numbers, Values
from brimful.corpus.frequencies import entropy, piece_frequencies
from brimful.corpus.text.tokenizer import load as load_tokenizer
from brimful.data.mixture import open_sources, parse_sources
from brimful.data.reader import SequenceReader
from brimful.data.rows import RowStream
from brimful.hf.folders import count_parameters, save_model
from brimful.model.encoder import Encoder
from brimful.optim.schedule import Schedule
from brimful.precision.policy import resolve_residual
from brimful.runs.checkpoint import list_steps
from brimful.runs.folder import RunFolder
from brimful.runs.job import Job
from brimful.runs.start_checks import START
from brimful.stages.pretrain_config import PretrainConfig
from brimful.stages.pretrain_data import (
    PretrainPlan,
    announce,
    estimate_costs,
    make_modules,
    make_objective,
    make_sources,
    make_stream,
    open_initial_model,
    summarise_costs,
)
from brimful.start.initial_weights import look_at_neighbours, start_from_neighbourhoods
from brimful.start.neighbourhoods import piece_vectors
from brimful.train.metrics import FactRows, average_last_losses, list_outcome, read_metrics
from brimful.train.objective import Runtime
from brimful.train.step_memory import choose_rows, choose_rows_on_cpu
from brimful.train.trainer import Trainer
from brimful.train.training import Training

START_FILES = ("config.json", "model.safetensors", "tokenizer.json")  # of the model that a run starts from
ENTROPY_MARGIN_NATS = 0.1  # by which a loss must be below the unigram entropy to count as normal


class PretrainJob(Job[PretrainConfig, PretrainPlan]):
    """Trains an encoder on prepared data."""

    verb = "pretrain"
    temporary = ("blocks", "validation", START)
    ends = ("steps", "hours")

    def plan(self, config: PretrainConfig, folder: RunFolder) -> PretrainPlan:
        """Resolve a configuration, and say what a new run will do."""
        ranks = folder.ranks
        config = resolve_pretraining(config, folder)
        if folder.resuming and (folder.path / SUMMARY).is_file():
            _require_later_end(config, folder.path)
        corpora = open_sources(parse_sources(config.data or ()), verify=config.verify_data and ranks.is_main)
        has_held_out = config.validation_tokens and any(
            corpus.part("validation") for corpus in corpora.values()
        )
        if config.trainer.evaluate_every and not has_held_out and folder.announces:
            warn(
                "trainer.evaluate_every does nothing: validation_tokens is 0, or the data has no validation"
                " part"
            )
        tokenizer = load_tokenizer(next(iter(corpora.values())).tokenizer_path)
        # The main rank decides: on a network file system, others may not see the folder yet.
        start = folder.path / START
        may_start = folder.resuming and ranks.is_main
        is_started = ranks.from_main(may_start and all((start / name).is_file() for name in START_FILES))
        initial = open_initial_model(config, tokenizer, start if is_started else None)
        sources = make_sources(config, corpora, folder.path / "blocks", ahead=ranks.is_main)
        epochs: Numbers = {}
        if ranks.is_main and (config.dry_run or not folder.resuming):
            epochs = announce(config, sources, initial)
        return PretrainPlan(
            config=config,
            corpora=corpora,
            reader=SequenceReader(tokenizer, config.masking),
            initial=initial,
            is_started=is_started,
            sources=sources,
            runtime=Runtime.of(ranks, config.precision, config.trainer),
            epochs=epochs,
        )

    def describe_plan(self, plan: PretrainPlan) -> Values:
        """Return what the run takes, and its summary, on the main rank."""
        if not plan.runtime.world.is_main:
            return {}
        facts = estimate_costs(plan) | {"epochs": plan.epochs}
        return with_overview(facts, summarise_costs(facts, plan.runtime.precision))

    def work(self, plan: PretrainPlan, folder: RunFolder) -> Values:
        """Train as planned, and save the encoder."""
        config, ranks, directory = plan.config, folder.ranks, folder.path
        encoder, head = plan.initial.encoder, plan.initial.head
        if config.start_from is None and not plan.is_started:
            _start_from_data(plan, folder)
        if ranks.is_main and not plan.is_started:
            shutil.rmtree(directory / START, ignore_errors=True)  # a kill may have left a part of it
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
        trainer = Trainer(
            encoder,
            make_objective(plan, head, directory),
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
        if not isinstance(config.rows_per_micro_batch, int):
            # Only now is it known how many rows fit: the optimizer's state takes its memory first.
            if ranks.device.type == "cuda":
                make = partial(make_modules, plan, directory)
                rows = choose_rows(trainer.state, trainer.training, plan.runtime, stream, make)
            else:
                rows = choose_rows_on_cpu(stream, encoder.config.hidden_size)
            config = replace(config, rows_per_micro_batch=rows)
            trainer.training.about["config"] = to_dict(config)
            if ranks.is_main:
                write_yaml(directory / CONFIG, config)
        if folder.resuming:
            _resume(trainer, stream, folder)
        with closing(stream):
            metrics = trainer.run("pretrain", evaluate_first=config.start_from is not None)
        facts = _collect_facts(config, trainer, encoder, metrics, plan)
        if ranks.is_main:
            facts["verdict"] = _judge_loss(plan, metrics)
            lines = read_metrics(directory / "metrics.jsonl")
            facts |= average_last_losses(lines)
            if config.start_from is not None and metrics:
                facts["validation_at_start"] = _metrics_at_start(lines)
            save_model(directory / "encoder", encoder, head)
        return with_overview(facts, summarise_pretraining(facts))


def _require_later_end(config: PretrainConfig, run: Path) -> None:
    """Refuse to continue a finished run that its new end does not lengthen, or that has no checkpoint."""
    facts = read_object(run / SUMMARY)
    schedule = Schedule(config.schedule, config.cycles(), config.trainer.hours)
    if schedule.over(facts["steps"], facts["seconds"]) or not list_steps(run / "checkpoints"):
        raise BrimfulError(
            f"{run} is finished, after {facts['steps']} updates: to go on, it needs a later end, and a"
            " checkpoint"
        )


def _resume(trainer: Trainer, stream: RowStream, folder: RunFolder) -> None:
    """Load the newest checkpoint, and warn of ranks that have nothing to do."""
    ranks = folder.ranks
    if not trainer.resume() and ranks.is_main:
        say("no usable checkpoint: starting over")
    if ranks.size == 1:
        return
    # The interrupted run may have had fewer ranks, and has fixed the size of its micro-batches.
    micro_batches = stream.micro_batches(trainer.progress.cursor)
    if len(micro_batches) < ranks.size and ranks.is_main:
        warn(
            f"an update has work for {len(micro_batches)} of {ranks.size} ranks: lower rows_per_micro_batch"
            f" ({stream.rows_per_micro_batch}) in {folder.path / CONFIG}"
        )


def resolve_pretraining(config: PretrainConfig, folder: RunFolder) -> PretrainConfig:
    """Return the configuration, complete but for the rows of a micro-batch."""
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
        return replace(config, start_from=str(Path(config.start_from).absolute()))
    model, architecture = config.model or "mini", config.architecture or "modern"
    initial = config.initial.resolved(architecture)
    return replace(config, model=model, architecture=architecture, initial=initial)


def _start_from_data(plan: PretrainPlan, folder: RunFolder) -> None:
    """Set the initial weights that come from the data. The main rank counts pieces for all."""
    config, ranks, encoder = plan.config, folder.ranks, plan.initial.encoder
    if config.initial.vocabulary == "data":
        pieces = None
        if ranks.is_main:
            shares = {source.corpus: source.proportion for source in plan.sources}
            vectors = piece_vectors(shares, encoder.config.embedding_width, config.seed)
            pieces = vectors, piece_frequencies(shares)
        vectors, frequencies = ranks.from_main(pieces)
        start_from_neighbourhoods(encoder, plan.initial.head, vectors, frequencies)
    if config.initial.attention == "neighbours":
        look_at_neighbours(encoder)


def _collect_facts(
    config: PretrainConfig, trainer: Trainer, encoder: Encoder, metrics: Numbers, plan: PretrainPlan
) -> Values:
    """Return the facts that every rank knows; `metrics` come from the last evaluation."""
    totals, loss, phases = trainer.progress.totals, _mean_loss(metrics), []
    if loss is not None:
        metrics = metrics | {"perplexity": math.exp(min(loss, 50))}  # the loss of a broken model may overflow
    for phase in config.run_phases():
        size = {f"{phase.unit}_per_update": phase.size}
        phases.append({"steps": phase.steps, "max_length": phase.packing.max_length, **size})
    return {
        "kind": "pretrain",
        "steps": trainer.progress.step,
        "tokens": totals.tokens,
        "tokens_per_second": totals.tokens_per_second,
        "seconds": totals.seconds,
        "parameters": count_parameters(encoder),
        "precision": plan.runtime.precision,
        "world_size": plan.runtime.world.size,
        "validation": metrics,
        "packing": {
            "efficiency": totals.fill,
            "padded_efficiency": totals.tokens / totals.padded,
            "packing_factor": totals.sequences * config.packing.capacity / totals.slots,
            "capacity": config.packing.capacity,
            "max_length": config.longest_sequence(),
            "dropped_predictions": totals.dropped_predictions
            / max(1, totals.predictions + totals.dropped_predictions),
        },
        "phases": phases,
    }


def _metrics_at_start(lines: Iterable[Facts]) -> Numbers:
    """Return the metrics of the evaluation before the first update, from metrics.jsonl."""
    for line in lines:
        if line.get("step") == 0:
            return {name.removeprefix("validation."): value for name, value in line.items() if name != "step"}
    return {}


def _mean_loss(metrics: Numbers) -> float | None:
    """The mean over predictions: `token_loss` where the loss is a mean over sequences, else `loss`."""
    return metrics.get("token_loss", metrics.get("loss"))


def _judge_loss(plan: PretrainPlan, metrics: Numbers) -> Values:
    """Return `unigram_entropy` (nats) and, with the metrics of an evaluation, `loss_is_normal`."""
    # A model that knows only how often each piece of the vocabulary occurs reaches the unigram entropy.
    unigram = entropy(piece_frequencies({plan.corpora[s.name]: s.proportion for s in plan.sources}))
    verdict: Values = {"unigram_entropy": unigram}
    loss = _mean_loss(metrics)
    if loss is not None:
        verdict["loss_is_normal"] = loss <= unigram - ENTROPY_MARGIN_NATS
    return verdict


def summarise_pretraining(facts: Values) -> Summary:
    """Summarise a pretraining from the facts of summary.json: its loss, and how full its rows were."""
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
    figures = (
        ("Perplexity on held-out text", "validation.perplexity", format_short),
        ("Masked tokens found", "validation.accuracy", format_percent),
        ("Real tokens a second", "tokens_per_second", format_short),
        ("Parameters", "parameters", format_short),
        ("Real tokens in a row", "packing.efficiency", format_percent),
        ("Real tokens in a row, if padded", "packing.padded_efficiency", format_percent),
    )
    result: FactRows = {}
    for name, path, form in figures:
        value = find_number(facts, path)
        if value is not None:
            result[name] = form(value)
    tables = make_facts_table("Result", result | list_outcome(facts, loss))
    return Summary("Pretrained encoder", f"{verdict}.", tables)
