"""The verb `brimful finetune`: a model for each seed and learning rate, of which the best is kept.

The learning rate that is best on dev trains each seed's model, and the best seed's model is kept. The summary
has the model beside its baselines, its metrics, and what to look at.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from brimful.base.console import say, warn
from brimful.base.numbers import (
    capitalise,
    find_mapping,
    find_number,
    find_records,
    format_metric,
    format_percent,
    format_value,
)
from brimful.base.summary import (
    ModelResult,
    SummaryTable,
    judge_models,
    make_facts_table,
    make_table,
    with_overview,
)
from brimful.base.summary import Summary as Overview
from brimful.hf.folders import load_pretrained
from brimful.model.heads import SequenceHead
from brimful.model.initial_weights import skip_initial_weights
from brimful.runs.directory import model_files
from brimful.runs.folder import RunFolder
from brimful.runs.job import Job, RunPlan, Summary
from brimful.stages.run_tables import HELD_OUT_FILE, HeldOut, named_tables
from brimful.stages.task_options import FinetuneConfig, with_absolute_paths
from brimful.stages.task_trainings import (
    FEWEST,
    Finetuning,
    SeedModel,
    TaskStart,
    Trial,
    load_data,
    resolved,
    starting_model,
)
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.judging import baselines
from brimful.tasks.judging.checks import Finding, check_before, describe_tokens
from brimful.tasks.judging.comparison import (
    Judged,
    MethodComparison,
    average_seeds,
    describe_test,
    find_error,
    find_primary,
    fingerprint_rows,
    measure_speeds,
    read_costs,
    write_predictions,
)
from brimful.tasks.judging.review import review
from brimful.tasks.task import Metric, TaskHead
from brimful.tasks.task_data import TaskData
from brimful.tasks.task_model import TaskModel
from brimful.train.metrics import list_outcome, read_metrics, training_loss
from brimful.train.objective import Runtime

OWN = "Fine-tuned encoder"
BASELINES = {
    "majority": "Most frequent label",
    "tfidf": "TF-IDF + linear model",
    "frozen": "Frozen encoder + linear model",
}
"""The other models of the ladder, by their keys in a summary."""
MAX_ROWS = 20
"""Labels and rows of a table."""
SHARES = ("f1", "precision", "recall", "probability")
"""Columns that are shown in percent."""

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class FinetunePlan(RunPlan):
    """A fine-tuning before it starts.

    Attributes:
        config: resolved.
        told: what the checks found in the tables, for the summary; on the main rank.
        held_out: rows of train that are test or dev.
    """

    config: FinetuneConfig
    data: TaskData
    runtime: Runtime
    told: dict[str, Any]
    held_out: HeldOut

    @property
    def files(self) -> dict[str, Path]:
        """The tables and the encoder."""
        config = self.config
        train, dev, test = config.tables
        files = named_tables(train=train, dev=dev, test=test, more_tests=config.more_tests)
        return files | model_files("encoder", config.encoder_folder)

    @property
    def decides(self) -> list[Any]:
        """The rows that are held out; and when it is evaluated, where the best checkpoint is kept:
        evaluations then do more than measure."""
        trainer = self.config.trainer
        rows = [self.held_out.key] if self.held_out else []
        return [*rows, trainer.evaluate_every] if trainer.keeps_best else rows


class FinetuneJob(Job[FinetuneConfig, FinetunePlan]):
    """Trains a model for each seed and learning rate, and keeps the best one."""

    verb = "finetune"

    def plan(self, config: FinetuneConfig, folder: RunFolder) -> FinetunePlan:
        """Resolve a configuration, and say what a new run will do.

        Raises:
            BrimfulError: the encoder, a table or a setting is unusable.
        """
        ranks = folder.ranks
        runtime = Runtime.of(ranks, config.precision)
        start = TaskStart.of(config.encoder_folder)
        encoder, options = start.encoder, config
        config = resolved(config, encoder, runtime.precision)
        data = load_data(config, encoder, ranks)
        with skip_initial_weights():  # so that a wrong setting is refused now
            _, head = starting_model(config, config.seed[0], data.task, start)
        if not folder.resuming:
            options.refuse_unread(pools=isinstance(head, SequenceHead))
        held_out = HeldOut.of(config, data)
        if folder.announces:
            _announce(options, data, start, head)
            if held_out:
                say(_held_out_line(config, held_out, data))
        table_facts: dict[str, Any] = {}
        if ranks.is_main:  # the others read the summary that it writes
            findings, table_facts = check_before(data, encoder, own_dev=config.dev_table is not None)
            if not folder.resuming:
                _tell(findings, data)
                limits = f"an example has at most {config.max_length:,}, the encoder takes"
                say(
                    f"{describe_tokens(table_facts['train']['tokens'])}; {limits}"
                    f" {encoder.config.max_length:,}"
                )
            if held_out:
                table_facts["held_out"] = held_out.counts
        return FinetunePlan(with_absolute_paths(config), data, runtime, table_facts, held_out)

    def outlook(self, plan: FinetunePlan) -> Summary:
        """What a dry run returns."""
        data = plan.data
        sizes = {"train": len(data.train), "test": len(data.test), **plan.held_out.counts}
        return {"dry_run": True, **sizes, **data.task.facts}

    def work(self, plan: FinetunePlan, folder: RunFolder) -> Summary:
        """Train all, and save the model that is best on dev.

        Raises:
            StoppedError: a signal asked to stop.
        """
        config, data, is_main = plan.config, plan.data, folder.ranks.is_main
        if is_main and plan.held_out:
            assert config.train is not None
            plan.held_out.write(folder.path, config.train)
        folder.ranks.barrier()
        run = Finetuning(config, data, folder, plan.runtime)
        tables = {"": data.test} | _by_name(data.more_tests)
        models = [run.seed_model(seed, tables) for seed in config.seed]
        best = max(models, key=lambda model: run.primary.score(model.trial.dev))
        measured = {
            name: average_seeds([model.metrics[name] for model in models])
            | {"fingerprint": fingerprint_rows(table.table)}
            for name, table in tables.items()
        }
        model = replace(run.model(best.trial), task=best.task)
        reviewed: dict[str, Any] = {}
        if is_main:
            reviewed, model = _reviewed(run, best, model)
        results = [result for each in models for result in each.results.values()]
        seconds = sum(result.seconds for result in results)
        examples = sum(result.examples for result in results)
        summary = {
            "kind": "finetune",
            "task": best.task.name,
            "primary_metric": run.primary.name,
            "test": measured.pop(""),
            **({"tests": measured} if measured else {}),
            "dev": best.trial.dev,
            "learning_rate": best.trial.learning_rate,
            "epochs": config.epochs,
            "trials": [_facts_of(trial, run.primary.name) for each in models for trial in each.trials],
            **best.task.facts,
            **plan.told,
            **reviewed,
            "parameters": model.parameters,
            "leaked_test_texts": data.leaked,
            "precision": run.runtime.precision,
            "seconds": seconds,
            "examples_per_second": examples / max(seconds, 1e-9),
        }
        if is_main:  # before the ladder, which may take as long as the training
            model.save(folder.path / "model", token_types=data.train.examples.typed)
            for name, table in tables.items():
                path = folder.path / f"predictions{name and f'-{name}'}.jsonl"
                write_predictions(path, best.task, model.calibrate(best.answers[name]), table)
            metrics = folder.path / "metrics.jsonl"
            shutil.copyfile(best.trial.result.directory / "metrics.jsonl", metrics)
            summary |= training_loss(read_metrics(metrics))
        if is_main and config.ladder != "none":
            judged = [Judged(each.task, each.answers[""]) for each in models]
            summary |= _ladder(run, judged, model)
        return with_overview(summary, summarise_finetuning(summary, best.task.metrics))


def _reviewed(run: Finetuning, best: SeedModel, model: TaskModel) -> tuple[dict[str, Any], TaskModel]:
    """What the answers say of the tables, for the summary; and the model with its temperature."""
    task, data = best.task, run.data
    if task.settings and task.calibrates and data.dev is None:
        say(f"no dev rows to fit {next(iter(task.settings))}: give --dev, or {FEWEST} rows of train")
    say("calibrating")
    of_dev = run.dev_answers(best.trial, best.trials)
    facts, temperature = review(replace(data, task=task), best.answers[""], of_dev)
    return facts, replace(model, temperature=temperature)


def _facts_of(trial: Trial, metric: str) -> dict[str, Any]:
    """What summary.json says of a trial."""
    return {
        "seed": trial.seed,
        "learning_rate": trial.learning_rate,
        f"dev_{metric}": trial.dev.get(metric),
    }


def _ladder(run: Finetuning, judged: Sequence[Judged], model: TaskModel) -> dict[str, Any]:
    """What else the labels give beside the models of all seeds: `baselines`, and the `Speed` of the kept one.
    Empty where the task has no ladder."""
    data, task, runtime = run.data, run.data.task, run.runtime
    if (why := baselines.find_obstacle(task)) is not None:
        say(f"no ladder: {why}")
        return {}
    say("TF-IDF and the frozen encoder on the same rows (--ladder none leaves this out)")
    encoder, _ = load_pretrained(run.config.encoder_folder)
    longest = data.train.examples.max_length
    vectors = baselines.Frozen(encoder, task, longest, run.config.overlap, runtime)
    made = {
        "majority": baselines.fit_majority(task, data),
        "tfidf": baselines.fit_linear(task, data, baselines.Tfidf()),
        "frozen": baselines.fit_linear(task, data, vectors),
    }
    rungs = {name: rung for name, rung in made.items() if rung is not None}
    others = {name: [Judged(task, rung.answers)] for name, rung in rungs.items()}
    comparison = MethodComparison({"": judged} | others, data.test)
    say("ladder: the time of one text")
    timed = {name: rung.answer for name, rung in rungs.items() if rung.answer}
    timed[""] = lambda table: model.answers(model.encode(table), runtime.precision)
    speeds = measure_speeds(timed, data.test.table)
    rung_facts = {}
    for name, rung in rungs.items():
        rung_facts[name] = {
            **comparison.scores(name),
            **comparison.difference("", name),
            "seconds": rung.seconds,
            **(speeds[name]._asdict() if name in speeds else {}),
            "rows": rung.rows,
            **({} if rung.reads is None else {"reads": rung.reads}),
        }
    return {"baselines": rung_facts, **speeds[""]._asdict()}


def _held_out_line(config: FinetuneConfig, held_out: HeldOut, data: TaskData) -> str:
    """Which rows of train are test and dev, and how one finds them."""
    parts = [f"{n:,} {name}" for name, n in held_out.counts.items()]
    both = "dev" in held_out.parts and held_out.dev_in_train
    use_of_dev = "; the final training reads dev too" if both else ""
    return (
        f"held out of {config.train}: {' and '.join(parts)} rows; alike texts stay together, labels keep"
        f" their proportions{use_of_dev}. {HELD_OUT_FILE} in the run names them"
    )


def _announce(asked: FinetuneConfig, data: TaskData, start: TaskStart, head: TaskHead) -> None:
    """Say what a new run does; `asked` is as the user gave it."""
    units, task = len(data.train.examples), data.task
    say(f"fine-tuning on {len(data.train):,} examples of {task.description}, test {len(data.test):,}")
    if asked.batch > units:
        warn(
            f"batch is {asked.batch:,} and train has {units:,} examples: one update shows them"
            f" {asked.batch / units:.1f} times"
        )
    drawn = asked.initialisation == "random"
    why = "" if drawn else start.why_new(head, task)
    if why:
        say(f"the head is new, since that of {asked.encoder} does not fit: {why}")
    elif start.model is not None and not drawn:
        say(f"{asked.encoder} is trained for these labels: its head goes on, too")
        return
    guessed = asked.pooling == "auto" and start.encoder.pooling is None and not start.encoder.config.modern
    if guessed and isinstance(head, SequenceHead) and not head.linear:
        layer = "a new dense layer" if drawn or not start.fill(head, task) else "its trained dense layer"
        say(
            f"{asked.encoder} says no pooling: {layer} reads the first token; an encoder that was trained"
            " with the mean needs --pooling mean"
        )


def _tell(findings: Sequence[Finding], data: TaskData) -> None:
    """Warn of what was found, but for rows of test in train of which `load_task_data` has warned."""
    for finding in findings:
        if not (data.leaked and (finding.kind, finding.file) == ("leakage", str(data.test.table.path))):
            warn(f"{finding.file}: {finding.message}")


def _by_name(tables: Sequence[Encoded]) -> dict[str, Encoded]:
    """Tables by the names of their files, numbered where they are the same."""
    names: dict[str, Encoded] = {}
    for table in tables:
        stem = table.table.path.stem
        name = stem if stem not in names else f"{stem}-{len(names) + 1}"
        names[name] = table
    return names


def summarise_finetuning(facts: Facts, metrics: Sequence[Metric]) -> Overview:
    """What came out of a fine-tuning.

    Args:
        facts: what summary.json holds.
        metrics: of the task.
    """
    primary = find_primary(facts, metrics)
    test = describe_test(facts, primary)
    models = _list_models(facts, primary)
    tables = [
        *make_facts_table("Result", _list_result(facts)),
        *_make_metrics_table(facts, metrics),
    ]
    details = {
        "by_label": ("F1 of each label", ("label", "support", "f1", "precision", "recall")),
        "findings": ("Noticed in the tables", ("message", "table", "kind")),
        "confused": ("Confused labels", ("label", "prediction", "rows")),
        "errors": ("Largest errors on test", ("text", "row", "label", "prediction", "probability")),
        "trials": ("Trials", ("seed", "learning_rate", f"dev_{primary.name}")),
    }
    for key, (name, columns) in details.items():
        tables += _make_row_table(facts, key, name, columns)
    title = f"Fine-tuned for {facts['task']}"
    return Overview(title, judge_models(test, models), tables, test=test, models=models)


def _list_models(facts: Facts, primary: Metric) -> list[ModelResult]:
    """The model and its baselines."""
    test, baselines = find_mapping(facts, "test"), find_mapping(facts, "baselines")
    n = find_number(test, "n")
    names = {}
    for key, rung in baselines.items():
        reads = f" ({rung['reads']})" if "reads" in rung else ""
        names[key] = BASELINES.get(key, capitalise(key)) + reads
    pairs = {names[key]: find_number(rung, "standard_error") for key, rung in baselines.items()}
    own = ModelResult(
        name=OWN,
        value=find_number(test, primary.name) or 0.0,
        error=find_error(test, primary, n),
        pairs={name: error for name, error in pairs.items() if error is not None},
        is_own=True,
        **read_costs(facts),
    )
    models = [own]
    for key, rung in baselines.items():
        value = find_number(rung, primary.name)
        if value is not None:
            role: Any = "guess" if key == "majority" else "baseline"
            error, costs = find_error(rung, primary, n), read_costs(rung)
            models.append(ModelResult(name=names[key], value=value, error=error, role=role, **costs))
    return models


def _list_result(facts: Facts) -> dict[str, str | None]:
    """What one must know beside the metrics."""
    error, leaked = find_number(facts, "calibration.ece_calibrated"), find_number(facts, "leaked_test_texts")
    before, held_out = find_number(facts, "calibration.ece"), find_number(facts, "held_out.test")
    never = facts.get("never_predicted")
    return {
        "Test texts that are also in train": f"{leaked:,.0f}" if leaked else None,
        "Test rows held out of train": f"{held_out:,.0f} (held_out_rows.json)" if held_out else None,
        "Never predicted on test": format_value(never[:MAX_ROWS]) if isinstance(never, list) else None,
        "Calibration error": None if error is None else format_percent(error),
        "Calibration error, no temperature": None if before is None else format_percent(before),
        **list_outcome(facts, find_number(facts, "test.loss")),
    }


def _make_metrics_table(facts: Facts, metrics: Sequence[Metric]) -> list[SummaryTable]:
    """All metrics on each test table and on dev; ± is the deviation over seeds."""
    parts = {
        "test": find_mapping(facts, "test"),
        "dev": find_mapping(facts, "dev"),
        **find_mapping(facts, "tests"),
    }
    parts = {name: measured for name, measured in parts.items() if measured}
    rows = []
    for one in metrics:
        cells = []
        for measured in parts.values():
            value, spread = find_number(measured, one.name), find_number(measured, f"{one.name}_std")
            cells.append("" if value is None else format_metric(value, spread, share=one.percent))
        rows.append([capitalise(one.title), *cells])
    sizes = [find_number(measured, "n") for measured in parts.values()]
    heads = [name if n is None else f"{name}, {n:,.0f} rows" for name, n in zip(parts, sizes, strict=True)]
    has_seeds = any(key.endswith("_runs") for key in find_mapping(facts, "test"))
    note = "± is the deviation over seeds." if has_seeds else ""
    rows = [row for row in rows if any(row[1:])]
    return make_table("Metrics", ["Metric", *heads], rows, note)


def _make_row_table(facts: Facts, key: str, title: str, columns: Sequence[str]) -> list[SummaryTable]:
    """The first records of a list, of labels those with the lowest F1; shares in percent."""
    every_record = find_records(facts, key)
    if "f1" in columns:
        every_record = sorted(every_record, key=lambda record: record["f1"])
    rows = []
    for record in every_record[:MAX_ROWS]:
        row = []
        for name in columns:
            value = "" if record.get(name) is None else record[name]
            if name in SHARES and isinstance(value, int | float):
                row.append(format_percent(value))
            else:
                row.append(format_value(value))
        rows.append(row)
    note = f"The first {MAX_ROWS} of {len(every_record)}." if len(every_record) > MAX_ROWS else ""
    return make_table(title, [capitalise(name) for name in columns], rows, note, is_detail=True)
