"""The verb `brimful finetune`: an encoder and labelled tables become a task model.

A run trains one model for each seed and learning rate. The learning rate that is best on dev trains each
seed's model, and the best seed's model is kept.
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from brimful.config import config_hash, identity, verb
from brimful.console import say, warn
from brimful.distributed import world
from brimful.errors import BrimfulError
from brimful.finetuning.config import FinetuneConfig, default_rate
from brimful.finetuning.ladder import Ladder
from brimful.finetuning.trainings import Finetuning, Trial, load_data, starting_model
from brimful.folder_lock import FolderLock
from brimful.hf.folders import load_pretrained
from brimful.judging.baselines import available
from brimful.judging.checks import Finding, described
from brimful.judging.review import check_before, review
from brimful.judging.uncertainty import over_seeds
from brimful.model.attention import choose_backend
from brimful.model.drawing import undrawn
from brimful.model.heads import SequenceHead, pooling_of
from brimful.precision.policy import Precision
from brimful.runs.directory import (
    START,
    SUMMARY,
    absolute,
    check_inputs,
    finished_run,
    model_files,
    named_files,
    open_run,
    start_run,
)
from brimful.runs.restart import restarted
from brimful.runs.stages import Stages, finish_stages
from brimful.seals import seal
from brimful.storage import read_json
from brimful.tables.layouts import find_layout
from brimful.tasks.data import TaskData
from brimful.tasks.encoded import Encoded
from brimful.tasks.model import TaskModel
from brimful.tasks.output import write_rows
from brimful.tasks.registry import task_of
from brimful.tasks.task import Task
from brimful.train.objective import Runtime
from brimful.train.verdict import verdict_of_trainings


@verb(FinetuneConfig)
def finetune(config: FinetuneConfig) -> dict[str, Any]:
    """Train an encoder for a task, with the learning rate that is best on held-out examples.

    Returns:
        the content of summary.json: `test.METRIC`, `test.n`, `dev.METRIC`, the trials ...

    Raises:
        BrimfulError: the encoder, a table or the run directory is unusable; or one of them has changed since
            the run that is resumed began.
        StoppedError: a signal asked the run to stop.
    """
    dry_run = config.dry_run
    with world() as ranks, FolderLock() as lock:
        config = restarted(config, ranks)
        if (summary := finished_run(config, "finetune", ranks)) is not None:
            return summary
        config, directory, resuming = open_run(
            config, "finetune", ("encoder", "train", "test", "out"), ranks, lock
        )
        runtime = Runtime.of(ranks, config.precision, config.trainer)
        if config.attention_dropout and not choose_backend(ranks.device, runtime.dtype).drops:
            raise BrimfulError("attention_dropout works on CPUs only: leave it out, or set it to 0")
        source = load_pretrained(config.encoder_folder)
        encoder = source[0]
        max_length = config.max_length
        if max_length is None:
            max_length = min(128, encoder.config.max_length)
        kind = task_of(config.task, find_layout(config.layout, config.columns))
        overlap = config.overlap
        if overlap is None and kind.overlap is not None:
            overlap = min(kind.overlap, max_length // 4)
        asked = config
        pooling = pooling_of(encoder) if config.pooling == "auto" else config.pooling
        guessed = config.pooling == "auto" and encoder.pooling is None
        seed = config.seed
        if config.seeds is not None:
            seed = tuple(range(seed[0], seed[0] + config.seeds))
        config = replace(
            config,
            task=kind.name,
            seed=seed,
            seeds=None,
            max_length=max_length,
            overlap=overlap,
            pooling=pooling,
            learning_rates=config.learning_rates or (default_rate(encoder.config.hidden_size),),
        )
        data = load_data(config, encoder, ranks)
        if any(labels > len(data.train) for labels in config.label_curve):
            raise BrimfulError(
                f"label_curve is {list(config.label_curve)}, and there are {len(data.train)} labels"
            )
        with undrawn():  # so that a wrong setting is refused now
            _, head = starting_model(config, config.seed[0], data.task, source)
        if not resuming:
            asked.refuse_unread(pools=isinstance(head, SequenceHead))
            if config.label_curve and (why := available(data.task)) is not None:
                raise BrimfulError(f"label_curve draws the ladder's models too: {why}")
        inputs = check_inputs(directory, _inputs(config))
        if ranks.is_main and not resuming:
            say(
                f"fine-tuning on {len(data.train):,} examples of {data.task.description},"
                f" test {len(data.test):,}"
            )
            if config.batch > data.train.examples.units:
                times = config.batch / data.train.examples.units
                warn(
                    f"batch is {config.batch:,} and train has {data.train.examples.units:,} examples:"
                    f" one update shows them {times:.1f} times"
                )
            if guessed and isinstance(head, SequenceHead) and not head.linear and not encoder.config.modern:
                say(
                    f"{config.encoder} says no pooling: a new dense layer reads the first token; an encoder"
                    " that was trained with the mean needs --pooling mean"
                )
        told: dict[str, Any] = {}
        if ranks.is_main:  # the others read the summary that it writes
            findings, told = check_before(data, encoder, own_dev=config.dev is not None)
            if not resuming:
                _tell(findings, data)
                limits = (
                    f"an example has at most {max_length:,}, the encoder takes {encoder.config.max_length:,}"
                )
                say(f"{described(told['train']['tokens'])}; {limits}")
        if dry_run:
            return {"dry_run": True, "train": len(data.train), "test": len(data.test), **data.task.facts}
        config = _resolved(config, runtime.precision)
        if ranks.is_main:
            start_run(directory, config, inputs)
            if config.trainer.checkpoint_every and not (directory / START).exists():
                started = starting_model(config, config.seed[0], data.task)
                pairs = data.train.table.second is not None
                TaskModel(data.task, *started, max_length, overlap, pairs=pairs).save(directory / START)
                seal(directory / START)
        ranks.barrier()
        decides = [identity(config), inputs]
        if config.trainer.keeps_best:  # then evaluations decide too, and not only measure
            decides.append(config.trainer.evaluate_every)
        stages = Stages(directory, config_hash(decides), ranks)
        return _finish(Finetuning(config, data, stages, runtime), told)


def _tell(findings: Sequence[Finding], data: TaskData) -> None:
    """Warn of what was found, but for rows of test in train of which `load_task_data` has warned."""
    for finding in findings:
        if not (data.leaked and (finding.kind, finding.file) == ("leakage", str(data.test.table.path))):
            warn(f"{finding.file}: {finding.message}")


def _inputs(config: FinetuneConfig) -> dict[str, Path]:
    """The files that decide the result of a run."""
    train, dev, test = config.tables
    files = named_files(train=train, dev=dev, test=test, more_tests=config.more_tests)
    return files | model_files("encoder", config.encoder_folder)


def _resolved(config: FinetuneConfig, precision: Precision) -> FinetuneConfig:
    """The configuration with everything that it needs to mean the same elsewhere."""
    train, dev, test = (path and absolute(path) for path in config.tables)
    encoder = config.encoder and absolute(config.encoder)
    more = tuple(map(absolute, config.more_tests))
    config = replace(config, encoder=encoder, train=train, dev=dev, test=test, more_tests=more)
    return replace(config, precision=precision)


def _finish(run: Finetuning, told: dict[str, Any]) -> dict[str, Any]:
    """Train all, keep the model that is best on dev, and return the summary."""
    data, directory, ranks = run.data, run.stages.run, run.runtime.world
    trials: list[Trial] = []
    chosen: list[Trial] = []
    fitted: list[Task] = []
    tests: list[dict[str, tuple[Any, dict[str, float]]]] = []
    tables = {"": data.test} | _by_name(data.more_tests)
    for seed in run.config.seed:
        trial, compared = run.train_seed(seed)
        trials += compared
        chosen.append(trial)
        judged = run.fitted_model(trial, compared)
        fitted.append(judged.task)
        tests.append({name: judged.judge(table, run.runtime.precision) for name, table in tables.items()})
    index = max(range(len(chosen)), key=lambda i: run.primary.score(chosen[i].dev))
    best = chosen[index]
    measured = {name: over_seeds([test[name][1] for test in tests]) for name in tables}
    task = fitted[index]
    model = replace(run.model(best), task=task)
    answers = tests[index][""][0]
    reviewed: dict[str, Any] = {}
    if ranks.is_main:
        if task.settings and data.dev is None:
            say(f"no dev rows to fit {', '.join(task.settings)} (give --dev, or several rates)")
        start = load_pretrained(run.config.encoder_folder)[0].to(run.runtime.device)
        of_dev = run.dev_answers(best, trials)
        reviewed, temperature = review(replace(data, task=task), answers, of_dev, start, run.runtime)
        model = replace(model, temperature=temperature)
    results = {trial.result.directory: trial.result for trial in (*trials, *chosen)}
    seconds = sum(result.seconds for result in results.values())
    summary = {
        "kind": "finetune",
        "task": task.name,
        "primary_metric": run.primary.name,
        "test": measured.pop(""),
        **({"tests": measured} if measured else {}),
        "dev": best.dev,
        "learning_rate": best.learning_rate,
        "epochs": best.epochs,
        "trials": [
            {
                "seed": trial.seed,
                "learning_rate": trial.learning_rate,
                "epochs": trial.epochs,
                f"dev_{run.primary.name}": trial.dev.get(run.primary.name),
            }
            for trial in trials
        ],
        **task.facts,
        **told,
        **reviewed,
        "parameters": model.parameters,
        "leaked_test_texts": data.leaked,
        "precision": run.runtime.precision,
        "seconds": seconds,
        "examples_per_second": sum(r.examples for r in results.values()) / max(seconds, 1e-9),
    }
    if ranks.is_main:  # before the ladder, which may take as long as the training
        summary |= verdict_of_trainings(results)
        model.save(directory / "model", token_types=data.train.examples.typed)
        for name, table in tables.items():
            path = directory / f"predictions{name and f'-{name}'}.jsonl"
            calibrated = model.calibrated(tests[index][name][0])
            write_rows(path, task.compared_rows(calibrated, table))
        shutil.copyfile(best.result.directory / "metrics.jsonl", directory / "metrics.jsonl")
    summary |= Ladder(run, best, answers, model, seconds).run()
    ranks.barrier()  # every rank has read the kept weights
    if ranks.is_main:
        finish_stages(directory, summary, (START,))
    ranks.barrier()
    return summary if ranks.is_main else read_json(directory / SUMMARY)


def _by_name(tables: Sequence[Encoded]) -> dict[str, Encoded]:
    """Tables by the names of their files, numbered where they are the same."""
    names: dict[str, Encoded] = {}
    for table in tables:
        stem = table.table.path.stem
        name = stem if stem not in names else f"{stem}-{len(names) + 1}"
        names[name] = table
    return names
