"""The verb `brimful estimate`: what a pretraining run will take, before it is started."""

import shlex
import tempfile
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from brimful.commands.estimate_config import ANY_STEPS, EstimateConfig, check
from brimful.commands.estimate_fit import Fit
from brimful.commands.estimate_measure import measured
from brimful.commands.estimate_run import Run
from brimful.commands.estimate_table import show_estimate
from brimful.commands.estimate_time import Course, Times
from brimful.commands.pretrain import follow_unpacked, make_sources
from brimful.config import verb
from brimful.corpus.shards import PARTS, token_dtype
from brimful.data.mixture import open_sources, parse_sources
from brimful.data.sources import Source
from brimful.estimates.memory import held
from brimful.estimates.sample import Sample, assumed, sampled
from brimful.estimates.scaling import scaling
from brimful.machine.host import usable_cores
from brimful.train.config import TrainerConfig


@verb(EstimateConfig, show=show_estimate)
def estimate(config: EstimateConfig) -> dict[str, Any]:
    """Say what a pretraining run will take before it is started: time, memory, traffic, disk.

    Returns:
        `model`, `device`, `data`, `update`, `memory` (bytes of the rank that holds most), `time` of an
        update, `run`, `stages`, `links` (bytes that a rank sends in an update), `scaling` from 1 to 1,024
        ranks, `disk`, `assumptions` by name, `advice`, and `command`, which starts the run.

    Raises:
        BrimfulError: neither GPUs nor a measurement, an unknown GPU, no data and no tokens, neither hours nor
            steps, or a micro-batch that does not fit in memory.
    """
    check(config)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="brimful-estimate-")))
        corpora = open_sources(parse_sources(config.data), verify=False) if config.data else {}
        sources = make_sources(config, corpora, folder / "plans", ahead=False) if corpora else []
        for source in sources:
            stack.enter_context(closing(source))
        if sources:
            followed = follow_unpacked(config, sources)
            assert isinstance(followed, EstimateConfig)
            config = followed
        run = Run(config, corpora, _samples(config, sources))
        found = measured(config, run.phases[0], run.rows_of(0), folder) if config.measure else None
    fit = Fit(run)
    rows = int(found["rows_per_micro_batch"]) if found else fit.rows()
    return _result(run, fit, Times(run, rows, found))


def _samples(config: EstimateConfig, sources: list[Source]) -> list[Sample]:
    """The rows of each phase."""
    phases = config.run_phases()
    if sources:
        return [sampled(sources, phase) for phase in phases]
    length, fill = config.assume.length, config.assume.fill
    return [
        assumed(phase, length or phase.packing.max_length, fill, config.tokens or 0.0) for phase in phases
    ]


def _result(run: Run, fit: Fit, times: Times) -> dict[str, Any]:
    last, each = run.longest, times.rows
    rows, sample = run.rows_of(last), run.samples[last]
    time = times.of_update(run.ranks, rows, last)
    work = run.work(each, last)
    flops = work.model_flops(run.shape) / work.tokens
    tokens = sample.tokens * rows
    course = times.course()
    peak = run.sheet and run.sheet.peak(run.precision)
    if rows < run.ranks:
        run.advice.append(
            f"an update of {rows} rows keeps {rows} of {run.ranks} GPUs busy: raise rows_per_update"
        )
    if course.ends_by == "hours" and run.config.trainer.steps == ANY_STEPS:
        run.advice.append(
            f"give pretrain trainer.steps {course.updates}: its default of {TrainerConfig.steps:,} ends"
            " earlier"
        )
    # `assumptions` is last: the other parts name what they use.
    return {
        "predicted": "measured rate" if times.measured else "by data sheet, not measured",
        "model": {
            "name": run.config.start_from or f"{run.config.model or 'mini'}",
            "architecture": run.shape.architecture,
            "parameters": run.model.parameters,
            "encoder_parameters": run.model.encoder,
            "vocabulary": run.shape.vocabulary_size,
            "flops_per_token": flops,
        },
        "device": {
            "name": run.sheet.name if run.sheet else "CPU",
            "ranks": run.ranks,
            "precision": run.precision,
            "source": run.sheet.source if run.sheet else "this machine",
        },
        "data": _data(run),
        "update": {
            "rows": rows,
            "tokens": tokens,
            "sequences": sample.sequences * rows,
            "rows_per_micro_batch": each,
            "micro_batches_per_rank": time.micro_batches,
        },
        "memory": fit.memory(each, time.micro_batches),
        "time": {
            "update_seconds": time.seconds,
            "compute_seconds": time.compute,
            "exposed_seconds": time.exposed,
            "pass_seconds": {k: v for k, v in times.pass_parts(each, last).items() if k != "all"},
            "tokens_per_second": tokens / time.seconds,
            "tokens_per_second_per_rank": tokens / time.seconds / run.ranks,
            "mfu": flops * tokens / time.seconds / (run.ranks * peak) if peak else None,
        },
        "measured": times.measured,
        "run": {
            "updates": course.updates,
            "tokens": course.tokens,
            "epochs": {
                name: course.tokens * share / size if size else None
                for name, (size, share) in run.samples[-1].epochs.items()
            },
            "hours": course.seconds / 3600,
            "ends_by": course.ends_by,
        },
        "stages": _stages(run, times, course),
        "links": asdict(time.traffic) | {"total": time.traffic.hidden},
        "scaling": scaling(
            lambda ranks, rows: times.of_update(ranks, rows, last), run.ranks, rows, sample.tokens
        ),
        "disk": _disk(run),
        "assumptions": dict(sorted(run.used.items())),
        "advice": run.advice,
        "command": _command(run, times, course.updates),
    }


def _data(run: Run) -> dict[str, Any]:
    sample = run.samples[run.longest]
    return {
        "given": bool(run.corpora),
        "documents": sum(corpus.documents for corpus in run.corpora.values()),
        "tokens": sum(tokens for tokens, _ in sample.epochs.values()),
        "fill": sample.tokens / sample.capacity,
        "sequences_per_row": sample.sequences,
        "mean_length": sample.tokens / sample.sequences,
    }


def _stages(run: Run, times: Times, course: Course) -> list[dict[str, Any]]:
    """Preparation where there is no data yet, each phase, and fine-tuning where asked for; in hours."""
    unit = "gpu_hours" if run.sheet else "core_hours"
    cores = 1 if run.sheet else usable_cores()
    stages: list[dict[str, Any]] = []
    if not run.corpora:
        run.used |= run.assume.named("text_bytes", "prepare_mb", "prepare_cores")
        text = (run.config.tokens or 0.0) * run.assume.text_bytes
        hours = text / (1e6 * run.assume.prepare_mb) / 3600
        stages.append({"stage": "prepare", "hours": hours / run.assume.prepare_cores, "core_hours": hours})
    for length, seconds, updates in course.phases:
        hours = seconds / 3600
        stage = {"stage": f"pretrain, sequences of {length}", "hours": hours, "updates": updates}
        stages.append(stage | {unit: hours * run.ranks * cores})
    if run.config.finetune_examples:
        hours = times.finetuning() / 3600
        stages.append({"stage": "finetune, one rank", "hours": hours, unit: hours * cores})
    return [{"gpu_hours": 0.0} | stage for stage in stages]


def _disk(run: Run) -> dict[str, Any]:
    """Bytes."""
    files = 0
    for corpus in run.corpora.values():
        for shard in corpus.shards:
            paths = [corpus.directory / "shards" / f"{shard.name}.{part}" for part in PARTS]
            files += sum(path.stat().st_size for path in paths)
    width = token_dtype(run.shape.vocabulary_size).itemsize + 2 / 8  # two bits beside each token
    shards = files or int((run.config.tokens or 0) * width)
    trainer, optimizer = run.trainer, run.config.optimizer
    alone = held(run.model, optimizer, trainer, run.precision)
    one = alone.weights + alone.states + (alone.other if optimizer.ema else 0)
    kept = (trainer.keep_checkpoints + 1 + trainer.keeps_best) * one if trainer.checkpoint_every else 0
    models = 2 * 4 * run.model.parameters
    return {
        "shards": shards,
        "checkpoint": one,
        "checkpoints": kept,
        "models": models,
        "total": shards + kept + models,
    }


def _command(run: Run, times: Times, updates: int) -> str:
    """The command line of the run, with what the estimate has chosen."""
    config = run.config
    words = ["brimful", "pretrain"]
    if run.ranks > 1:
        per_host = times.links.per_host
        hosts = -(-run.ranks // per_host)
        words = ["torchrun", "--nproc-per-node", str(min(run.ranks, per_host))]
        words += ["--nnodes", str(hosts)] if hosts > 1 else ["--standalone"]
        words += ["-m", "brimful", "pretrain"]
    words += ["..."]
    if run.phases[0].size != config.run_phases()[0].size:
        words += ["--rows-per-update", str(run.phases[0].size)]
    if config.trainer.steps == ANY_STEPS:
        words += ["--trainer.steps", str(updates)]
    return " ".join(word if word == "..." else shlex.quote(word) for word in words)
