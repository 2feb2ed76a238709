"""The trainings of fine-tuning and distillation: one way to train, and what a fine-tuning starts from.

A stage has its encoder, its loss and its texts. How often they are read, in what updates, and what is left
for a resume is decided here alike.
"""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn

from brimful.base.console import say, warn
from brimful.base.distributed import SINGLE_RANK, World
from brimful.base.errors import BrimfulError
from brimful.base.types import Precision
from brimful.data.examples import Examples
from brimful.data.loader import Stream
from brimful.hf.folders import load_pretrained, named_tensors
from brimful.hf.model_folder import ModelFolder
from brimful.hf.tensor_names import classifier_weight, from_hf, to_hf
from brimful.model.encoder import Encoder
from brimful.model.heads import choose_pooling
from brimful.model.initial_weights import skip_initial_weights
from brimful.model.shape import EncoderConfig
from brimful.objectives.supervised import Supervised
from brimful.optim.schedule import ScheduleConfig
from brimful.runs.folder import Result, RunFolder
from brimful.stages.task_options import FinetuneConfig, TrainingOptions, default_rate
from brimful.tables.layouts import find_layout
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.registry import choose_task
from brimful.tasks.task import Metric, Task, TaskHead
from brimful.tasks.task_data import (
    TaskData,
    TooFewRowsError,
    hold_out,
    load_task_data,
    make_evaluation,
    make_stream,
)
from brimful.tasks.task_model import TaskModel, fold, load_task_model, reorder_outputs, take_weights
from brimful.train.objective import Objective, Runtime
from brimful.train.trainer import Trainer
from brimful.train.training import Training

CALIBRATION = 0.1
"""Of train, what is dev where there is nothing to choose, but probabilities to calibrate."""
FEWEST = 500
"""Rows of train from which it is held out: fewer would make too few errors on dev for a temperature."""


class OpenStream(Stream, Protocol):
    """A stream that holds files or threads."""

    def close(self) -> None: ...


class StreamedTexts(Protocol):
    """Texts that are no examples, such as prepared shards."""

    def __len__(self) -> int: ...
    def stream(self, runtime: Runtime) -> OpenStream: ...


@dataclass(frozen=True)
class Stage:
    """One training of a run.

    Attributes:
        title: of the progress bar.
        folder: of its metrics, its checkpoints and its result, in the run.
        epochs: passes over the texts.
        rate: the peak learning rate.
        trained: the modules whose weights it leaves, by name.
    """

    title: str
    folder: Path
    seed: int
    encoder: Encoder
    objective: Objective
    texts: Examples | StreamedTexts
    epochs: float
    rate: float
    trained: Mapping[str, nn.Module]


def train_stage(stage: Stage, options: TrainingOptions, run: RunFolder, runtime: Runtime) -> Result:
    """Train a stage to its end. A finished stage is not repeated, and an interrupted one goes on.

    Raises:
        BrimfulError: a loss spike, or the folder belongs to another run.
        StoppedError: a signal asked to stop.
    """
    texts = stage.texts
    steps = max(1, round(stage.epochs * len(texts) / options.batch))

    def open_stream() -> Stream:
        if not isinstance(texts, Examples):
            return opened.enter_context(closing(texts.stream(runtime)))
        return make_stream(texts, options.batch, options.micro_batch_tokens, stage.seed, runtime)

    def make_trainer() -> Trainer:
        training = Training(
            config=options.trainer.over(steps),
            optimizer=options.optimizer.at(stage.rate),
            schedule=ScheduleConfig(**vars(options.schedule)),
            seed=stage.seed,
            identity=run.identity,
        )
        return Trainer(stage.encoder, stage.objective, open_stream(), runtime, stage.folder, training)

    with ExitStack() as opened:
        return run.train(stage.folder, stage.title, make_trainer, stage.trained)


@dataclass(frozen=True)
class TaskStart:
    """What a folder gives a task: all its weights by their names in `transformers`, and the model whose head
    goes on, or why that cannot be read."""

    encoder: Encoder
    tensors: Mapping[str, Tensor]
    model: TaskModel | None = None
    unread: str = ""

    @classmethod
    def of(cls, folder: ModelFolder) -> Self:
        """What a folder gives; raises as `load_pretrained`."""
        encoder, model, unread = load_pretrained(folder)[0], None, ""
        if folder.has_task:
            try:
                model = load_task_model(folder)
            except BrimfulError as error:
                unread = str(error)
        return cls(encoder, named_tensors(folder, encoder)[0], model, unread)

    def why_new(self, head: TaskHead, task: Task) -> str:
        """Why the head of the folder's task does not go on in a new one; empty if it does or is absent."""
        if self.model is None:
            return self.unread
        theirs = self.model.task
        if type(theirs) is not type(task):
            return f"it is for {theirs.name}"
        if sorted(theirs.labels) != sorted(task.labels):
            return f"it has other labels than the table: {', '.join(theirs.labels[:9])}"
        ours, own = (getattr(each, "pooling", None) for each in (self.model.head, head))
        same = self.model.head.classifier.weight.shape == head.classifier.weight.shape
        return "" if same and ours == own else "it has another pooling or width"

    def fill(self, head: TaskHead, task: Task) -> bool:
        """Give a new head what the folder has of it, as `from_pretrained` does; say whether there is any."""
        if self.model is None or self.why_new(head, task):
            return start_transform(head, self.encoder.config, self.tensors)
        take_weights(head, self.model.head.state_dict())
        reorder_outputs(head, [self.model.task.labels.index(label) for label in task.labels])
        return True


def start_transform(head: TaskHead, config: EncoderConfig, tensors: Mapping[str, Tensor]) -> bool:
    """Copy into a new head what a folder has of it before the classifier: BERT's trained pooler, in modern
    the transform of a masked-LM head, that of any classifier. False where the head or the folder has none."""
    own, last = to_hf(head, config), classifier_weight(type(head), config).removesuffix("weight")
    names = [name for name in own if not name.startswith(last)]
    fits = (name in tensors and tensors[name].shape == own[name].shape for name in names)
    if not names or getattr(head, "linear", False) or not all(fits):
        return False
    from_hf(head, config, own | {name: tensors[name] for name in names})
    return True


def starting_model(
    config: FinetuneConfig, seed: int, task: Task, start: TaskStart | None = None
) -> tuple[Encoder, TaskHead]:
    """The model before training, which takes over the weights of `start`, what the encoder's folder holds; by
    default it is read."""
    start = start or TaskStart.of(config.encoder_folder)
    encoder = start.encoder
    if config.layers is not None:
        encoder = encoder.keep_layers(config.layers)
    torch.manual_seed(seed)
    rate = encoder.config.attention_dropout if config.dropout else 0.0
    # Drawn in any case, so that a seed gives the head the same weights.
    fresh = Encoder(replace(encoder.config, dropout=config.dropout, attention_dropout=rate))
    drawn = config.initialisation == "random"
    fresh.tokenizer = encoder.tokenizer
    fresh.pooling = encoder.pooling if config.pooling == "auto" else config.pooling
    if not drawn:
        fresh.load_state_dict(encoder.state_dict(), assign=True)
    head = task.new_head(fresh)
    if not drawn:
        start.fill(head, task)
    return fresh, head


def starting_task_model(config: FinetuneConfig, seed: int, data: TaskData) -> TaskModel:
    """The same, as a model that reads texts as the configuration says."""
    assert config.max_length is not None
    started = starting_model(config, seed, data.task)
    pairs = data.train.table.second is not None
    return TaskModel(data.task, *started, config.max_length, config.overlap, pairs=pairs)


def resolved(config: FinetuneConfig, encoder: Encoder, precision: Precision) -> FinetuneConfig:
    """The configuration with everything that it needs to mean the same elsewhere, but for its paths."""
    longest, hidden = encoder.config.max_length, encoder.config.hidden_size
    max_length = min(128, longest) if config.max_length is None else config.max_length
    kind = choose_task(config.task, find_layout(config))
    overlap = config.overlap
    if overlap is None and kind.overlap is not None:
        overlap = min(kind.overlap, max_length // 4)
    return replace(
        config,
        task=kind.name,
        max_length=max_length,
        overlap=overlap,
        pooling=choose_pooling(encoder) if config.pooling == "auto" else config.pooling,
        learning_rates=config.learning_rates or (default_rate(hidden),),
        precision=precision,
    )


def load_data(config: FinetuneConfig, encoder: Encoder, ranks: World = SINGLE_RANK) -> TaskData:
    """The rows that a run trains on, chooses on and is tested on.

    Args:
        config: with max_length and overlap, as config.yaml has them.
    """
    assert config.max_length is not None
    layout = find_layout(config)
    data = load_task_data(
        choose_task(config.task, layout),
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
    return data


@dataclass(frozen=True)
class Trial:
    """One training: its settings, its metrics on dev, and its result."""

    seed: int
    learning_rate: float
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
        rate: float,
        epochs: float,
        name: str,
    ) -> Trial:
        """Train one model from the start, and measure it on `held_out`. Its weights are kept.

        Args:
            name: of its folder.
        """
        config, task = self.config, self.data.task
        folder = self.run.path / self.trials / f"seed-{seed}" / name
        encoder, head = starting_model(config, seed, task)
        updates_of_epoch = max(1, round(len(training.examples) / config.batch))
        if config.trainer.keeps_best and not config.trainer.evaluate_every:
            config = replace(config, trainer=replace(config.trainer, evaluate_every=updates_of_epoch))
        stage = Stage(
            f"fine-tune, seed {seed}, rate {rate:g}",
            folder,
            seed,
            encoder,
            Supervised(task, head, make_evaluation(task, head, held_out)),
            training.examples,
            epochs,
            rate,
            {"encoder": encoder, "head": head},
        )
        result = train_stage(stage, config, self.run, self.runtime)
        return Trial(seed, rate, result.metrics, result)

    def train_seed(self, seed: int) -> tuple[Trial, list[Trial]]:
        """The training that gives the seed's model, and the trials that chose its learning rate."""
        data, config, is_main = self.data, self.config, self.runtime.world.is_main
        everything = data.fit is data.train
        passes = config.epochs if everything else config.trial_epochs or config.epochs
        trials: list[Trial] = []
        best: Trial | None = None
        for rate in config.learning_rates:
            trial = self.train(data.fit, data.dev, seed, rate, passes, f"rate-{rate}")
            trials.append(trial)
            better = best is None or self.primary.score(trial.dev) > self.primary.score(best.dev)
            worse = best if better else trial
            best = trial if better else best
            if worse and is_main:
                worse.result.forget_weights()
        assert best is not None
        if not everything:
            rate = best.learning_rate
            if is_main:
                count = f"{len(data.train):,}"
                say(f"learning rate {rate:g} is best on dev; training on all {count} examples with it")
            final = self.train(data.train, None, seed, rate, config.epochs, "final")
            best = replace(final, dev=best.dev)
        return best, trials

    def seed_model(self, seed: int, tables: Mapping[str, Encoded]) -> SeedModel:
        """Train a seed's model, fit its task's settings on dev, and measure it on tables."""
        trial, trials = self.train_seed(seed)
        model = self.model(trial)
        if model.task.settings and self.data.dev is not None:
            fitted = model.task.fit_settings(self.dev_answers(trial, trials), self.data.dev)
            model = replace(model, task=fitted)
        answers: dict[str, Any] = {}
        metrics: dict[str, dict[str, float]] = {}
        for name, table in tables.items():
            if self.runtime.world.is_main:
                say(f"test: {len(table):,} rows of {table.table.path.name}")
            answers[name], metrics[name] = model.judge(table, self.runtime.precision)
        return SeedModel(trial, trials, model.task, answers, metrics)

    def model(self, trial: Trial) -> TaskModel:
        """The model of a training."""
        with skip_initial_weights():
            model = starting_task_model(self.config, trial.seed, self.data)
        trial.result.load({"encoder": model.encoder, "head": model.head})
        fold(model.head)
        return model.to(self.runtime.device)

    def dev_answers(self, best: Trial, trials: list[Trial]) -> Any:
        """The answers for dev of the trial with the learning rate of `best`, which has not seen dev; None
        without dev."""
        chosen = (best.seed, best.learning_rate)
        trial = next(one for one in trials if (one.seed, one.learning_rate) == chosen)
        if self.data.dev is None:
            return None
        return self.model(trial).judge(self.data.dev, self.runtime.precision)[0]
