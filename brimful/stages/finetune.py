"""The verb `brimful finetune`: a model for each seed and learning rate, of which the best is kept.

Each seed's model has the learning rate that is best on dev, and the best seed's model is kept. The summary
compares it with its baselines, and shows its metrics and the rows to look at.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    Summary,
    SummaryTable,
    judge_models,
    make_facts_table,
    make_table,
    with_overview,
)
from brimful.base.types import Numbers, Values
from brimful.hf.folders import load_pretrained
from brimful.model.heads import SequenceHead
from brimful.model.initial_weights import skip_initial_weights
from brimful.runs.folder import RunFolder
from brimful.runs.inputs import RunFiles, model_files
from brimful.runs.job import Job, RunPlan
from brimful.stages.held_out import HELD_OUT_FILE, HeldOut
from brimful.stages.task_options import FinetuneConfig, with_absolute_paths
from brimful.stages.task_trainings import (
    MIN_CALIBRATION_ROWS,
    Finetuning,
    SeedModel,
    TaskStart,
    load_data,
    make_result,
    name_table_files,
    resolve_finetuning,
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
from brimful.train.metrics import FactRows, average_last_losses, list_outcome, read_metrics
from brimful.train.objective import Runtime

OWN_NAME = "Fine-tuned encoder"
BASELINES = {
    "majority": "Most frequent label",
    "tfidf": "TF-IDF + linear model",
    "frozen": "Frozen encoder + linear model",
}
"""The names of the baselines, by their keys in a summary."""
MAX_ROWS = 20
"""The most labels and rows of a table that are shown."""
SHARES = ("f1", "precision", "recall", "probability")
"""Columns that are shown in percent."""


@dataclass(frozen=True)
class FinetunePlan(RunPlan):
    """A fine-tuning before it starts.

    Attributes:
        table_facts: facts of the tables for the summary, from the checks of the main rank; empty elsewhere.
        held_out: rows of train that are test or dev.
    """

    config: FinetuneConfig
    data: TaskData
    runtime: Runtime
    table_facts: Values
    held_out: HeldOut

    @property
    def files(self) -> RunFiles:
        """The tables and the encoder."""
        config = self.config
        train, dev, test = config.tables
        files = name_table_files(train=train, dev=dev, test=test, more_tests=config.more_tests)
        return files | model_files("encoder", config.encoder_folder)

    @property
    def decides(self) -> list[Any]:
        """The rows that are held out, and the interval of evaluations where they choose a checkpoint."""
        decisive: list[Any] = []
        if self.held_out:
            decisive.append(self.held_out.key)
        if self.config.trainer.keeps_best:
            decisive.append(self.config.trainer.evaluate_every)
        return decisive


class FinetuneJob(Job[FinetuneConfig, FinetunePlan]):
    """Trains a model for each seed and learning rate, and keeps the best one."""

    verb = "finetune"

    def plan(self, config: FinetuneConfig, folder: RunFolder) -> FinetunePlan:
        """Resolve a configuration, and say what a new run will do."""
        ranks = folder.ranks
        runtime = Runtime.of(ranks, config.precision)
        start = TaskStart.read(config.encoder_folder)
        options, config = config, resolve_finetuning(config, start.encoder, runtime.precision)
        data = load_data(config, start.encoder, ranks)
        # Made only so that a wrong setting is refused now, and not after the first training.
        with skip_initial_weights():
            _, head = starting_model(config, config.seed[0], data.task, start)
        if not folder.resuming:
            options.refuse_unread(pools=isinstance(head, SequenceHead))
        held_out = HeldOut.from_data(config, data)
        if folder.announces:
            _announce(options, data, start, head)
            if held_out:
                _announce_held_out(config, held_out, data)
            # Said now: whoever wants the ladder would otherwise learn it when the training is over.
            obstacle = baselines.find_obstacle(data.task)
            if obstacle is not None and config.ladder != "none":
                later = "; then brimful report RUN --ladder adds it" if "pip install" in obstacle else ""
                say(f"no ladder: {obstacle}{later}")
        table_facts: Values = {}
        if ranks.is_main:  # other ranks read the summary that this rank writes
            has_dev_table = config.dev_table is not None
            findings, table_facts = check_before(data, start.encoder, own_dev=has_dev_table)
            if not folder.resuming:
                _warn_of_findings(findings, data)
                tokens = describe_tokens(table_facts["train"]["tokens"])
                longest = start.encoder.config.max_length
                say(f"{tokens}; an example has at most {config.max_length:,}, the encoder takes {longest:,}")
            if held_out:
                table_facts["held_out"] = held_out.counts
        return FinetunePlan(with_absolute_paths(config), data, runtime, table_facts, held_out)

    def describe_plan(self, plan: FinetunePlan) -> Values:
        data = plan.data
        sizes = {"train": len(data.train), "test": len(data.test), **plan.held_out.counts}
        return {"dry_run": True, **sizes, **data.task.facts}

    def work(self, plan: FinetunePlan, folder: RunFolder) -> Values:
        """Train all models, and save the one that is best on dev."""
        config, data, is_main = plan.config, plan.data, folder.ranks.is_main
        if is_main and plan.held_out:
            assert config.train is not None
            plan.held_out.write(folder.path, config.train)
        folder.ranks.barrier()
        run = Finetuning(config, data, folder, plan.runtime)
        tables = {"": data.test, **_name_tables(data.more_tests)}
        models = [run.train_seed_model(seed, tables) for seed in config.seed]
        # Without dev, the scores are equal and the first seed's model is kept.
        best = max(models, key=lambda model: run.primary.score(model.trial.dev))
        model = replace(run.load_model(best.trial), task=best.task)
        reviewed: Values = {}
        if is_main:
            reviewed, model = _review(run, best, model)
        facts = {
            "kind": "finetune",
            "task": best.task.name,
            "primary_metric": run.primary.name,
            **_measure_tables(models, tables),
            "dev": best.trial.dev,
            "learning_rate": best.trial.learning_rate,
            "epochs": config.epochs,
            "trials": _describe_trials(models, run.primary.name),
            **best.task.facts,
            **plan.table_facts,
            **reviewed,
            "parameters": model.parameters,
            "leaked_test_texts": data.leaked,
            "precision": run.runtime.precision,
            **_measure_training(models),
        }
        if is_main:
            # Saved before the baselines, which may take as long as the training.
            model.save(folder.path / "model", token_types=data.train.examples.typed)
            for name, table in tables.items():
                file = f"predictions-{name}.jsonl" if name else "predictions.jsonl"
                write_predictions(folder.path / file, best.task, model.calibrate(best.answers[name]), table)
            metrics = folder.path / "metrics.jsonl"
            shutil.copyfile(best.trial.result.directory / "metrics.jsonl", metrics)
            facts |= average_last_losses(read_metrics(metrics))
        if is_main and config.ladder != "none":
            judged = [Judged(each.task, each.answers[""]) for each in models]
            facts |= measure_baselines(config, data, run.runtime, judged, model)
        return with_overview(facts, summarise_finetuning(facts, best.task.metrics))


def _announce(options: FinetuneConfig, data: TaskData, start: TaskStart, head: TaskHead) -> None:
    """Say what a new run does with the options that the user gave."""
    examples, task = len(data.train.examples), data.task
    say(f"fine-tuning on {len(data.train):,} examples of {task.description}, test {len(data.test):,}")
    if options.batch > examples:
        warn(
            f"batch is {options.batch:,} and train has {examples:,} examples: one update shows them"
            f" {options.batch / examples:.1f} times"
        )
    is_drawn = options.initialisation == "random"
    if not is_drawn:
        reason = start.explain_new_head(head, task)
        if reason:
            say(f"the head is new, since that of {options.encoder} does not fit: {reason}")
        elif start.model is not None:
            say(f"{options.encoder} is trained for these labels: its head goes on, too")
            return
    # Models of earlier architectures read the first token by default, which may be wrong for this encoder.
    guesses_pooling = options.pooling == "auto" and start.encoder.pooling is None
    if guesses_pooling and not start.encoder.config.modern and isinstance(head, SequenceHead):
        if head.linear:
            return
        has_layer = not is_drawn and start.fill_head(head, task)
        layer = "its trained dense layer" if has_layer else "a new dense layer"
        say(
            f"{options.encoder} says no pooling: {layer} reads the first token; an encoder that was trained"
            " with the mean needs --pooling mean"
        )


def _announce_held_out(config: FinetuneConfig, held_out: HeldOut, data: TaskData) -> None:
    """Say which rows of train are test and dev, and where the run names them."""
    parts = " and ".join(f"{count:,} {name}" for name, count in held_out.counts.items())
    together = "alike texts stay together, labels keep their proportions"
    if config.group:
        together = f"rows with the same {config.group} stay together"
    line = f"held out of {config.train}: {parts} rows; {together}"
    if "dev" in held_out.parts and held_out.dev_in_train:
        line += "; the final training reads dev too"
    line += f". {HELD_OUT_FILE} in the run names them"
    if not config.group:
        line += "; rows of one source may stand on both sides (--group COLUMN keeps them together)"
    say(line)


def _warn_of_findings(findings: Sequence[Finding], data: TaskData) -> None:
    test_file = str(data.test.table.path)
    for finding in findings:
        # `load_task_data` has warned of rows of test that are in train.
        if data.leaked and finding.kind == "leakage" and finding.file == test_file:
            continue
        warn(f"{finding.file}: {finding.message}")


def _name_tables(tables: Sequence[Encoded]) -> dict[str, Encoded]:
    """Tables by the names of their files, numbered where names repeat."""
    names: dict[str, Encoded] = {}
    for table in tables:
        name = table.table.path.stem
        if name in names:
            name = f"{name}-{len(names) + 1}"
        names[name] = table
    return names


def _review(run: Finetuning, best: SeedModel, model: TaskModel) -> tuple[Values, TaskModel]:
    """Return facts from the answers, such as confused labels, and the model with its temperature."""
    task, data = best.task, run.data
    if task.settings and task.calibrates and data.dev is None:
        setting = next(iter(task.settings))
        say(f"no dev rows to fit {setting}: give --dev, or {MIN_CALIBRATION_ROWS} rows of train")
    say("calibrating")
    dev_answers = run.answer_dev(best.trial, best.trials)
    facts, temperature = review(replace(data, task=task), best.answers[""], dev_answers)
    return facts, replace(model, temperature=temperature)


def _measure_tables(models: Sequence[SeedModel], tables: dict[str, Encoded]) -> Values:
    """Return the metrics over seeds on each table: `test`, and `tests` where there are more."""
    measured = {}
    for name, table in tables.items():
        measured[name] = average_seeds([model.metrics[name] for model in models])
        measured[name]["fingerprint"] = fingerprint_rows(table.table)
    facts: Values = {"test": measured.pop("")}
    if measured:
        facts["tests"] = measured
    return facts


def _describe_trials(models: Sequence[SeedModel], metric: str) -> list[Values]:
    """Return the settings of each trial, and the metric that it reached on dev."""
    trials: list[Values] = []
    for model in models:
        for trial in model.trials:
            settings = {"seed": trial.seed, "learning_rate": trial.learning_rate}
            trials.append({**settings, f"dev_{metric}": trial.dev.get(metric)})
    return trials


def _measure_training(models: Sequence[SeedModel]) -> Values:
    """Return the time of all trainings, and their speed."""
    seconds, examples = 0.0, 0
    for model in models:
        for result in model.results:
            seconds += result.seconds
            examples += result.examples
    return {"seconds": seconds, "examples_per_second": examples / max(seconds, 1e-9)}


def measure_baselines(
    config: FinetuneConfig, data: TaskData, runtime: Runtime, judged: Sequence[Judged], model: TaskModel
) -> Values:
    """Train the baselines on the same rows, and compare them with the judged models of all seeds.

    Returns:
        `baselines`, and the `Speed` of `model`, which is kept; empty where the task has no baselines.
    """
    task = data.task
    if baselines.find_obstacle(task) is not None:
        return {}
    say("TF-IDF and the frozen encoder on the same rows (--ladder none leaves this out)")
    encoder, _ = load_pretrained(config.encoder_folder)
    longest = data.train.examples.max_length
    features = baselines.Frozen(encoder, task, longest, config.overlap, runtime)
    rungs: dict[str, baselines.Rung] = {}
    methods: dict[str, Sequence[Judged]] = {"": judged}
    timed: Values = {}
    for name, rung in (
        ("majority", baselines.fit_majority(data)),
        ("tfidf", baselines.fit_linear(data, baselines.Tfidf())),
        ("frozen", baselines.fit_linear(data, features)),
    ):
        if rung is not None:
            rungs[name], methods[name] = rung, [Judged(task, rung.answers)]
            if rung.answer:
                timed[name] = rung.answer
    timed[""] = lambda table: model.answers(model.encode(table), runtime.precision)
    comparison = MethodComparison(methods, data.test)
    say("ladder: the time of one text")
    speeds = measure_speeds(timed, data.test.table)
    facts = {}
    for name, rung in rungs.items():
        measured: Values = {**comparison.scores(name), **comparison.difference("", name)}
        measured["seconds"] = rung.seconds
        if name in speeds:
            measured |= speeds[name]._asdict()
        measured["rows"] = rung.rows
        if rung.reads is not None:
            measured["reads"] = rung.reads
        facts[name] = measured
    return {"baselines": facts, **speeds[""]._asdict()}


def summarise_finetuning(facts: Values, metrics: Sequence[Metric]) -> Summary:
    """Summarise a fine-tuning from the facts of summary.json and the metrics of the task."""
    primary = find_primary(facts, metrics)
    test = describe_test(facts, primary)
    models = _list_models(facts, primary)
    tables = make_facts_table("Result", _list_result(facts)) + _make_metrics_table(facts, metrics)
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
    return Summary(title, judge_models(test, models), tables, test=test, models=models)


def _list_models(facts: Values, primary: Metric) -> list[ModelResult]:
    """The model and its baselines."""
    test = find_mapping(facts, "test")
    n = find_number(test, "n")
    pairs: Numbers = {}
    rungs = []
    for key, rung in find_mapping(facts, "baselines").items():
        name = BASELINES.get(key, capitalise(key))
        if "reads" in rung:
            name += f" ({rung['reads']})"
        pair_error = find_number(rung, "standard_error")
        if pair_error is not None:
            pairs[name] = pair_error
        role = "guess" if key == "majority" else "baseline"
        rungs.append(make_result(name, rung, primary, n, role=role, **read_costs(rung)))
    # Built last: it has the paired errors of the differences from all baselines.
    own = make_result(OWN_NAME, test, primary, n, pairs=pairs, is_own=True, **read_costs(facts))
    return [own, *rungs]


def _list_result(facts: Values) -> FactRows:
    """The facts that a reader must know besides the metrics."""
    values: FactRows = {}
    leaked = find_number(facts, "leaked_test_texts")
    if leaked:
        values["Test texts that are also in train"] = f"{leaked:,.0f}"
    held_out = find_number(facts, "held_out.test")
    if held_out:
        values["Test rows held out of train"] = f"{held_out:,.0f} ({HELD_OUT_FILE})"
    never_predicted = facts.get("never_predicted")
    if isinstance(never_predicted, list):
        values["Never predicted on test"] = format_value(never_predicted[:MAX_ROWS])
    calibration = {
        "Calibration error": "calibration.ece_calibrated",
        "Calibration error, no temperature": "calibration.ece",
    }
    for name, path in calibration.items():
        error = find_number(facts, path)
        if error is not None:
            values[name] = format_percent(error)
    return values | list_outcome(facts, find_number(facts, "test.loss"))


def _make_metrics_table(facts: Values, metrics: Sequence[Metric]) -> list[SummaryTable]:
    """Make a table of all metrics on each test table and on dev; ± is the deviation over seeds."""
    tables = {"test": find_mapping(facts, "test"), "dev": find_mapping(facts, "dev")}
    tables |= find_mapping(facts, "tests")
    columns, parts = ["Metric"], []
    for name, measured in tables.items():
        if measured:
            n = find_number(measured, "n")
            columns.append(name if n is None else f"{name}, {n:,.0f} rows")
            parts.append(measured)
    rows = []
    for one in metrics:
        row = [capitalise(one.title)]
        for measured in parts:
            value = find_number(measured, one.name)
            deviation = find_number(measured, f"{one.name}_std")
            row.append("" if value is None else format_metric(value, deviation, share=one.percent))
        if any(row[1:]):
            rows.append(row)
    has_seeds = any(key.endswith("_runs") for key in tables["test"])
    return make_table("Metrics", columns, rows, "± is the deviation over seeds." if has_seeds else "")


def _make_row_table(facts: Values, key: str, title: str, columns: Sequence[str]) -> list[SummaryTable]:
    """Make a table of the first records of a list, with shares in percent; the lowest F1 of labels first."""
    records = find_records(facts, key)
    if "f1" in columns:
        records = sorted(records, key=lambda record: record["f1"])
    rows = []
    for record in records[:MAX_ROWS]:
        row = []
        for name in columns:
            value = record.get(name)
            if value is None:
                row.append("")
            elif name in SHARES and isinstance(value, int | float):
                row.append(format_percent(value))
            else:
                row.append(format_value(value))
        rows.append(row)
    note = f"The first {MAX_ROWS} of {len(records)}." if len(records) > MAX_ROWS else ""
    return make_table(title, [capitalise(name) for name in columns], rows, note, is_detail=True)
