"""The work of a fine-tuning: a model for each seed and learning rate, of which the best is kept.

The learning rate that is best on dev trains each seed's model, and the best seed's model is kept.
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from brimful.base.console import say
from brimful.base.seals import seal
from brimful.base.summary import with_overview
from brimful.finetuning.finetune_summary import summarise_finetuning
from brimful.finetuning.ladder import Ladder
from brimful.finetuning.plan import FinetunePlan
from brimful.finetuning.start import starting_model
from brimful.finetuning.trainings import FEWEST, Finetuning, Trial
from brimful.hf.folders import load_pretrained
from brimful.runs.folder import RunFolder
from brimful.runs.job import Summary
from brimful.runs.places import START
from brimful.tasks.encoded import Encoded
from brimful.tasks.judging.comparison import Judged, fingerprint, over_seeds, write_predictions
from brimful.tasks.judging.review import review
from brimful.tasks.model import TaskModel
from brimful.tasks.task import Task
from brimful.train.metrics import read_metrics, training_loss


def work(plan: FinetunePlan, folder: RunFolder) -> Summary:
    """Train all, and save the model that is best on dev.

    Raises:
        StoppedError: a signal asked to stop.
    """
    config, data = plan.config, plan.data
    if folder.ranks.is_main and config.trainer.checkpoint_every and not (folder.path / START).exists():
        assert config.max_length is not None
        started = starting_model(config, config.seed[0], data.task)
        pairs = data.train.table.second is not None
        model = TaskModel(data.task, *started, config.max_length, config.overlap, pairs=pairs)
        model.save(folder.path / START)
        seal(folder.path / START)
    if folder.ranks.is_main and plan.held_out:
        assert config.train is not None
        plan.held_out.write(folder.path, config.train)
    folder.ranks.barrier()
    run = Finetuning(config, data, folder, plan.runtime)
    trials: list[Trial] = []
    chosen: list[Trial] = []
    fitted: list[Task] = []
    tests: list[dict[str, tuple[Any, dict[str, float]]]] = []
    tables = {"": data.test} | _by_name(data.more_tests)
    for seed in run.config.seed:
        trial, compared = run.train_seed(seed)
        trials += compared
        chosen.append(trial)
        model = run.fitted_model(trial, compared)
        fitted.append(model.task)
        tests.append({})
        for name, table in tables.items():
            if folder.ranks.is_main:
                say(f"test: {len(table):,} rows of {table.table.path.name}")
            tests[-1][name] = model.judge(table, run.runtime.precision)
    index = max(range(len(chosen)), key=lambda i: run.primary.score(chosen[i].dev))
    best = chosen[index]
    measured = {
        name: over_seeds([test[name][1] for test in tests]) | {"fingerprint": fingerprint(table.table)}
        for name, table in tables.items()
    }
    task = fitted[index]
    model = replace(run.model(best), task=task)
    answers = tests[index][""][0]
    judged = [Judged(task, test[""][0]) for task, test in zip(fitted, tests, strict=True)]
    reviewed: dict[str, Any] = {}
    if folder.ranks.is_main:
        if task.settings and task.calibrates and data.dev is None:
            say(f"no dev rows to fit {next(iter(task.settings))}: give --dev, or {FEWEST} rows of train")
        start = load_pretrained(run.config.encoder_folder)[0].to(run.runtime.device)
        say("calibrating, and looking for doubtful labels")
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
        **plan.told,
        **reviewed,
        "parameters": model.parameters,
        "leaked_test_texts": data.leaked,
        "precision": run.runtime.precision,
        "seconds": seconds,
        "examples_per_second": sum(r.examples for r in results.values()) / max(seconds, 1e-9),
    }
    if folder.ranks.is_main:  # before the ladder, which may take as long as the training
        model.save(folder.path / "model", token_types=data.train.examples.typed)
        for name, table in tables.items():
            path = folder.path / f"predictions{name and f'-{name}'}.jsonl"
            write_predictions(path, task, model.calibrated(tests[index][name][0]), table)
        metrics = folder.path / "metrics.jsonl"
        shutil.copyfile(best.result.directory / "metrics.jsonl", metrics)
        summary |= training_loss(read_metrics(metrics))
    summary |= Ladder(run, best, answers, model, judged).run()
    return with_overview(summary, summarise_finetuning(summary, task.metrics))


def _by_name(tables: Sequence[Encoded]) -> dict[str, Encoded]:
    """Tables by the names of their files, numbered where they are the same."""
    names: dict[str, Encoded] = {}
    for table in tables:
        stem = table.table.path.stem
        name = stem if stem not in names else f"{stem}-{len(names) + 1}"
        names[name] = table
    return names
