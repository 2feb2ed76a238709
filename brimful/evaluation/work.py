"""The work of an evaluation: encoders side by side, on held-out text and on a task."""

from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from brimful.base.console import say
from brimful.base.summary import with_overview
from brimful.evaluation.evaluate_summary import summarise_evaluation
from brimful.evaluation.held_out_text import evaluate_text
from brimful.evaluation.plan import EvaluatePlan
from brimful.finetuning.trainings import Finetuning, load_data
from brimful.hf.folders import load_pretrained
from brimful.runs.folder import RunFolder
from brimful.runs.job import Summary
from brimful.tasks.data import TaskData
from brimful.tasks.judging import baselines
from brimful.tasks.judging.comparison import Judged, fingerprint, measure_methods, over_seeds
from brimful.tasks.registry import task_of
from brimful.tasks.task import Task

PREPARED = "text"
"""The folder of prepared text, kept until the evaluation is finished."""


def work(plan: EvaluatePlan, folder: RunFolder) -> Summary:
    """Score the encoders on text, then probe and fine-tune them.

    Raises:
        StoppedError: a signal asked to stop.
    """
    config = plan.config
    found: Summary = {}
    assert config.max_length is not None
    if config.text:
        found |= evaluate_text(
            plan.folders,
            config.text,
            folder.path / PREPARED,
            max_length=config.max_length,
            tokens=config.text_tokens,
            runtime=plan.runtime,
        )
    if config.train is not None:
        found |= _evaluate_task(plan, folder)
    facts = {"kind": "evaluate", "encoders": plan.facts, **found, "precision": plan.runtime.precision}
    return with_overview(facts, summarise_evaluation(facts, task_of(config.task).metrics))


@dataclass(frozen=True)
class _Model:
    """A way to solve the task: its answers and metrics of each seed, and the seconds of training."""

    judged: list[Judged]
    metrics: list[dict[str, float]]
    seconds: float


def _evaluate_task(plan: EvaluatePlan, run: RunFolder) -> dict[str, Any]:
    """Probe and fine-tune every encoder on the same rows."""
    config, runtime = plan.config, plan.runtime
    models: dict[str, _Model] = {}
    data: TaskData | None = None
    for number, (name, folder) in enumerate(plan.folders.items(), 1):
        encoder, _ = load_pretrained(folder)
        kind = task_of(config.task)
        overlap = config.overlap
        if overlap is None and kind.overlap is not None:
            assert config.max_length is not None
            overlap = min(kind.overlap, config.max_length // 4)
        asked = replace(config.finetuning(str(folder)), overlap=overlap)
        data = load_data(asked, encoder)
        probed = baselines.available(data.task)
        if probed is None:
            if number == 1:
                models["majority"] = _linear(data.task, baselines.majority(data.task, data))
                if rung := baselines.linear(data.task, data, baselines.Tfidf(), timed=False):
                    models["TF-IDF + linear"] = _linear(data.task, rung)
            say(f"{name}: frozen, under a linear model")
            features = baselines.frozen(encoder, data.task, data, overlap, runtime)
            if rung := baselines.linear(data.task, data, features, timed=False):
                models[f"{name}, frozen"] = _linear(data.task, rung)
        elif number == 1:
            say(f"no probe: {probed}")
        if config.seeds:
            trials = f"trials/{number}-{folder.path.name}"
            models[f"{name}, fine-tuned"] = _fine_tuned(Finetuning(asked, data, run, runtime, trials))
    assert data is not None
    return _compared(models, data)


def _linear(task: Task, rung: baselines.Rung) -> _Model:
    return _Model([Judged(task, rung.answers)], [rung.metrics], rung.seconds)


def _fine_tuned(run: Finetuning) -> _Model:
    """A training for each seed, with its own choice of the learning rate and of its task's settings."""
    found, metrics, seconds = [], [], 0.0
    for seed in run.config.seed:
        trial, trials = run.train_seed(seed)
        results = {one.result.directory: one.result for one in (*trials, trial)}
        seconds += sum(result.seconds for result in results.values())
        model = run.fitted_model(trial, trials)
        answers, measured = model.judge(run.data.test, run.runtime.precision)
        found.append(Judged(model.task, answers))
        metrics.append(measured)
    return _Model(found, metrics, seconds)


def _compared(models: dict[str, _Model], data: TaskData) -> dict[str, Any]:
    """`models`, each with its metrics and how far it is behind the best, and `differences` of all pairs."""
    task = data.task
    primary = task.metrics[0]
    measured = measure_methods([model.judged for model in models.values()], data.test)
    sign = 1 if primary.best == "highest" else -1
    best = int((sign * measured.values).argmax())
    records = []
    for number, (name, model) in enumerate(models.items()):
        known = [metric.name for metric in task.metrics if metric.name in model.metrics[0]]
        found = over_seeds([{key: metrics[key] for key in known} for metrics in model.metrics])
        if number != best:
            difference, error = measured.difference(best, number)
            found |= {"behind": abs(difference), "standard_error": error}
        records.append({"model": name, **found, "seconds": model.seconds})
    return {
        "task": task.name,
        "primary_metric": primary.name,
        "train": {"n": len(data.train)},
        "test": {"n": len(data.test), "fingerprint": fingerprint(data.test.table)},
        "leaked_test_texts": data.leaked,
        "models": records,
        "differences": [
            {"first": first, "second": second}
            | dict(zip(("difference", "standard_error"), measured.difference(i, j), strict=True))
            for (i, first), (j, second) in combinations(enumerate(models), 2)
        ],
    }
