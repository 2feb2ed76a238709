"""The trainings of a fine-tuning: the model each starts from, its rows, and what it leaves."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from brimful.base.console import say, warn
from brimful.base.distributed import ALONE, World
from brimful.base.randomness import derive_key, permutation
from brimful.model.drawing import undrawn
from brimful.model.encoder import Encoder
from brimful.model.heads import pooling_of
from brimful.objectives.supervised import Supervised
from brimful.precision.formats import Precision
from brimful.runs.folder import Result, RunFolder
from brimful.stages.finetune_config import FinetuneConfig, default_rate
from brimful.stages.task_start import starting_model, starting_task_model
from brimful.stages.training import Stage, train_stage
from brimful.tables.layouts import find_layout
from brimful.tasks.classification import WEIGHT
from brimful.tasks.data import TaskData, TooFewRowsError, evaluation, hold_out, load_task_data
from brimful.tasks.encoded import Encoded
from brimful.tasks.model import TaskModel, fold
from brimful.tasks.registry import task_of
from brimful.tasks.task import Metric, Task
from brimful.train.objective import Runtime

CALIBRATION = 0.1
"""Of train, what is dev where there is nothing to choose, but probabilities to calibrate."""
FEWEST = 500
"""Rows of train from which it is held out: fewer would make too few errors on dev for a temperature."""


def resolved(config: FinetuneConfig, encoder: Encoder, precision: Precision) -> FinetuneConfig:
    """The configuration with everything that it needs to mean the same elsewhere, but for its paths."""
    longest, hidden = encoder.config.max_length, encoder.config.hidden_size
    max_length = min(128, longest) if config.max_length is None else config.max_length
    kind = task_of(config.task, find_layout(config.layout, config.columns))
    overlap = config.overlap
    if overlap is None and kind.overlap is not None:
        overlap = min(kind.overlap, max_length // 4)
    return replace(
        config,
        task=kind.name,
        max_length=max_length,
        overlap=overlap,
        pooling=pooling_of(encoder) if config.pooling == "auto" else config.pooling,
        learning_rates=config.learning_rates or (default_rate(hidden),),
        precision=precision,
    )


def load_data(config: FinetuneConfig, encoder: Encoder, ranks: World = ALONE) -> TaskData:
    """The rows that a run trains on, chooses on and is tested on.

    Args:
        config: with max_length and overlap, as config.yaml has them.
    """
    assert config.max_length is not None
    layout = find_layout(config.layout, config.columns)
    data = load_task_data(
        task_of(config.task, layout),
        encoder,
        *config.tables,
        max_length=config.max_length,
        overlap=config.overlap,
        more_tests=config.more_tests,
        layout=layout,
        metric=config.metric,
        ranks=ranks,
    )
    if config.dev is None and config.chooses:
        data = hold_out(data, ranks=ranks)
    elif config.dev is None and data.task.calibrates and len(data.train) >= FEWEST:
        try:
            data = hold_out(data, CALIBRATION, ranks)
        except TooFewRowsError as error:
            if ranks.is_main:
                warn(f"probabilities are not calibrated: {error}")
        else:
            data = replace(data, train=data.fit)
    if config.trainer.keeps_best:
        data = replace(data, train=data.fit)
    return _balanced(data) if config.class_weights else data


def curve_rows(data: TaskData, labels: int) -> Encoded:
    """The rows that a point of the label curve is trained on; with fewer labels, some of the same. Weights
    are those of their own classes."""
    train = data.train
    rows = train.take(np.sort(permutation(len(train), derive_key("label curve"))[:labels]))
    return data.task.balanced(rows) if WEIGHT in rows.targets else rows


def from_random(
    config: FinetuneConfig, data: TaskData, seed: int, ranks: World = ALONE
) -> tuple[FinetuneConfig, TaskData]:
    """What the ladder trains from random weights. They need a higher rate: 1e-3 is tried too."""
    rates = tuple(dict.fromkeys((*config.learning_rates, 1e-3)))
    config = replace(config, initialisation="random", reinit_top=0, seed=(seed,), learning_rates=rates)
    return config, hold_out(data, ranks=ranks) if data.dev is None else data


def _balanced(data: TaskData) -> TaskData:
    """The same rows with weights, for each training by its own classes."""
    train = data.task.balanced(data.train)
    return replace(data, train=train, fit=train if data.fit is data.train else data.task.balanced(data.fit))


@dataclass(frozen=True)
class Trial:
    """One training: its settings, its metrics on dev, and its result."""

    seed: int
    learning_rate: float
    epochs: float
    dev: dict[str, float]
    result: Result


@dataclass(frozen=True)
class SeedModel:
    """The model of a seed.

    Attributes:
        trial: the training that gives it.
        trials: those that chose its learning rate.
        task: with the settings that are best on dev.
        answers, metrics: for each table that it was measured on.
    """

    trial: Trial
    trials: list[Trial]
    task: Task
    answers: dict[str, Any]
    metrics: dict[str, dict[str, float]]

    @property
    def results(self) -> dict[Path, Result]:
        """What its trainings have left, by their folders."""
        return {trial.result.directory: trial.result for trial in (*self.trials, self.trial)}


@dataclass(frozen=True)
class Finetuning:
    """A run: a training for each seed and learning rate, and the choice among them."""

    config: FinetuneConfig
    data: TaskData
    run: RunFolder
    runtime: Runtime
    trials: str = "trials"
    """The folder of the trainings in the run."""

    @property
    def primary(self) -> Metric:
        """The metric that decides."""
        return self.data.task.metrics[0]

    def train(
        self,
        training: Encoded,
        held_out: Encoded | None,
        seed: int,
        setting: tuple[float, float],
        folder: Path,
    ) -> Trial:
        """Train one model from the start, and measure it on `held_out`. Its weights are kept.

        Args:
            setting: learning rate and epochs.
        """
        config, task = self.config, self.data.task
        rate, epochs = setting
        encoder, head = starting_model(config, seed, task)
        updates_of_epoch = max(1, round(len(training.examples) / config.batch))
        if config.trainer.keeps_best and not config.trainer.evaluate_every:
            config = replace(config, trainer=replace(config.trainer, evaluate_every=updates_of_epoch))
        title = f"fine-tune, seed {seed}, rate {rate:g}"
        if len(config.settings) > len(config.learning_rates):
            title += f", {epochs:g} epochs"
        stage = Stage(
            title,
            folder,
            seed,
            encoder,
            Supervised(task, head, evaluation(task, head, held_out)),
            training.examples,
            epochs,
            rate,
            {"encoder": encoder, "head": head},
        )
        result = train_stage(stage, config, self.run, self.runtime)
        return Trial(seed, rate, epochs, result.metrics, result)

    def folder(self, seed: int, name: str) -> Path:
        """Of a training of a seed."""
        return self.run.path / self.trials / f"seed-{seed}" / name

    def train_seed(self, seed: int) -> tuple[Trial, list[Trial]]:
        """The training that gives the seed's model, and the trials that chose its learning rate."""
        data = self.data
        trials: list[Trial] = []
        best: Trial | None = None
        everything = data.fit is data.train
        for rate, epochs in self.config.settings:
            passes = epochs if everything else self.config.trial_epochs or epochs
            folder = self.folder(seed, self.config.trial_name(rate, epochs))
            trial = self.train(data.fit, data.dev, seed, (rate, passes), folder)
            trial = replace(trial, epochs=epochs)
            trials.append(trial)
            better = best is None or self.primary.score(trial.dev) > self.primary.score(best.dev)
            worse = best if better else trial
            best = trial if better else best
            if worse and self.runtime.world.is_main:
                worse.result.forget_weights()
        assert best is not None
        if not everything:
            setting = best.learning_rate, best.epochs
            if self.runtime.world.is_main:
                chosen = f"learning rate {best.learning_rate:g}"
                if len(self.config.settings) > len(self.config.learning_rates):
                    chosen += f" with {best.epochs:g} epochs"
                say(f"{chosen} is best on dev; training on all {len(data.train):,} examples with it")
            final = self.train(data.train, None, seed, setting, self.folder(seed, "final"))
            best = replace(final, dev=best.dev)
        return best, trials

    def seed_model(self, seed: int, tables: Mapping[str, Encoded]) -> SeedModel:
        """Train a seed's model, fit its task's settings on dev, and measure it on tables."""
        trial, trials = self.train_seed(seed)
        model = self.fitted_model(trial, trials)
        answers: dict[str, Any] = {}
        metrics: dict[str, dict[str, float]] = {}
        for name, table in tables.items():
            if self.runtime.world.is_main:
                say(f"test: {len(table):,} rows of {table.table.path.name}")
            answers[name], metrics[name] = model.judge(table, self.runtime.precision)
        return SeedModel(trial, trials, model.task, answers, metrics)

    def model(self, trial: Trial) -> TaskModel:
        """The model of a training."""
        with undrawn():
            model = starting_task_model(self.config, trial.seed, self.data)
        trial.result.load({"encoder": model.encoder, "head": model.head})
        fold(model.head)
        return model.to(self.runtime.device)

    def fitted_model(self, trial: Trial, trials: list[Trial]) -> TaskModel:
        """The model of a training, with the settings of its task that are best on dev.

        Args:
            trials: those of the seed, as for `dev_answers`.
        """
        model = self.model(trial)
        answers = self.dev_answers(trial, trials) if model.task.settings else None
        if answers is None or self.data.dev is None:
            return model
        return replace(model, task=model.task.fitted(answers, self.data.dev))

    def dev_answers(self, best: Trial, trials: list[Trial]) -> Any:
        """The answers for dev of the trial with the settings of `best`, which has not seen dev; None without
        dev or without its weights (a trial that an earlier version of Brimful has finished)."""
        settings = (best.seed, best.learning_rate, best.epochs)
        trial = next(t for t in trials if (t.seed, t.learning_rate, t.epochs) == settings)
        if self.data.dev is None or not trial.result.has_weights:
            return None
        return self.model(trial).judge(self.data.dev, self.runtime.precision)[0]
