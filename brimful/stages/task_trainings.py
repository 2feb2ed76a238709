"""The trainings of fine-tuning and distillation, and the weights that a fine-tuning starts from."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from brimful.base.console import say, warn
from brimful.base.distributed import SINGLE_RANK, World
from brimful.base.errors import BrimfulError
from brimful.base.numbers import find_number
from brimful.base.summary import ModelResult
from brimful.base.types import Numbers, Precision, Values
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
from brimful.runs.folder import NamedModules, Result, RunFolder
from brimful.runs.inputs import RunFiles
from brimful.stages.task_options import FinetuneConfig, TrainingOptions, default_rate
from brimful.tables.layouts import find_layout
from brimful.tables.text_files import files_of_table
from brimful.tasks.cached_tables import TaskFiles
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.judging.comparison import find_error
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

CALIBRATION_SHARE = 0.1
"""The share of train that becomes dev where there is nothing to choose, but probabilities to calibrate."""
MIN_CALIBRATION_ROWS = 500
"""The fewest rows of train for that share: in fewer, there are too few errors to fit a temperature."""


class OpenStream(Stream, Protocol):
    """A stream that holds files or threads."""

    def close(self) -> None: ...


class StreamedTexts(Protocol):
    """Texts that are read as a stream, such as prepared shards."""

    def __len__(self) -> int: ...
    def stream(self, runtime: Runtime) -> OpenStream: ...


@dataclass(frozen=True)
class Stage:
    """One training of a run.

    Attributes:
        title: the title of the progress bar.
        folder: the folder in the run for its metrics, its checkpoints and its result.
        epochs: passes over the texts.
        rate: the peak learning rate.
        trained: the modules whose weights are its result, by name.
    """

    title: str
    folder: Path
    seed: int
    encoder: Encoder
    objective: Objective
    texts: Examples | StreamedTexts
    epochs: float
    rate: float
    trained: NamedModules


def train_stage(stage: Stage, options: TrainingOptions, run: RunFolder, runtime: Runtime) -> Result:
    """Train a stage to its end. A finished stage is not repeated, and an interrupted one goes on.

    Raises:
        BrimfulError: a loss spike, or the folder belongs to another run.
        StoppedError: a signal asked to stop.
    """
    texts = stage.texts
    steps = max(1, round(stage.epochs * len(texts) / options.batch))
    training = Training(
        config=options.trainer.over(steps),
        optimizer=options.optimizer.at(stage.rate),
        schedule=ScheduleConfig(**vars(options.schedule)),
        seed=stage.seed,
        identity=run.identity,
    )

    def make_trainer() -> Trainer:
        # The stream is made only here, so that a finished stage opens no files.
        stream: Stream
        if isinstance(texts, Examples):
            stream = make_stream(texts, options.batch, options.micro_batch_tokens, stage.seed, runtime)
        else:
            stream = opened.enter_context(closing(texts.stream(runtime)))
        return Trainer(stage.encoder, stage.objective, stream, runtime, stage.folder, training)

    with ExitStack() as opened:
        return run.train(stage.folder, stage.title, make_trainer, stage.trained)


@dataclass(frozen=True)
class TaskStart:
    """The weights of a folder that a task starts from.

    Attributes:
        tensors: all weights by their names in `transformers`.
        model: the folder's task model, whose head a new model may take over.
        load_error: why the task model cannot be loaded; empty if it can, or without one.
    """

    encoder: Encoder
    tensors: Mapping[str, Tensor]
    model: TaskModel | None = None
    load_error: str = ""

    @classmethod
    def read(cls, folder: ModelFolder) -> Self:
        """Read a folder; raises as `load_pretrained`."""
        encoder, _ = load_pretrained(folder)
        model, load_error = None, ""
        if folder.has_task:
            try:
                model = load_task_model(folder)
            except BrimfulError as error:
                load_error = str(error)
        return cls(encoder, named_tensors(folder, encoder)[0], model, load_error)

    def explain_new_head(self, head: TaskHead, task: Task) -> str:
        """Say why a new model cannot take over the folder's head; empty if it can, or if there is no head."""
        if self.model is None:
            return self.load_error
        folder_task, folder_head = self.model.task, self.model.head
        if type(folder_task) is not type(task):
            return f"it is for {folder_task.name}"
        if sorted(folder_task.labels) != sorted(task.labels):
            return f"it has other labels than the table: {', '.join(folder_task.labels[:9])}"
        has_same_pooling = getattr(folder_head, "pooling", None) == getattr(head, "pooling", None)
        if has_same_pooling and folder_head.classifier.weight.shape == head.classifier.weight.shape:
            return ""
        return "it has another pooling or width"

    def fill_head(self, head: TaskHead, task: Task) -> bool:
        """Copy the folder's weights into a new head, as `from_pretrained` does; return whether any fit."""
        if self.model is None or self.explain_new_head(head, task):
            return start_transform(head, self.encoder.config, self.tensors)
        take_weights(head, self.model.head.state_dict())
        # The labels are the same, but the table may have them in another order.
        reorder_outputs(head, [self.model.task.labels.index(label) for label in task.labels])
        return True


def start_transform(head: TaskHead, config: EncoderConfig, tensors: Mapping[str, Tensor]) -> bool:
    """Copy the layer before a classifier from a folder's tensors into a new head.

    The layer is the trained pooler of BERT. In the modern architecture, it is the transform of a masked-LM
    head or of any classifier.

    Returns:
        False where the head or the folder has no such layer.
    """
    if getattr(head, "linear", False):
        return False
    weights = to_hf(head, config)
    classifier = classifier_weight(type(head), config).removesuffix("weight")
    transform = [name for name in weights if not name.startswith(classifier)]
    for name in transform:
        if name not in tensors or tensors[name].shape != weights[name].shape:
            return False
        weights[name] = tensors[name]
    from_hf(head, config, weights)
    return bool(transform)


def starting_model(
    config: FinetuneConfig, seed: int, task: Task, start: TaskStart | None = None
) -> tuple[Encoder, TaskHead]:
    """Make the model before training, with the weights of `start` or of the encoder's folder."""
    start = start or TaskStart.read(config.encoder_folder)
    encoder = start.encoder
    if config.layers is not None:
        encoder = encoder.keep_layers(config.layers)
    torch.manual_seed(seed)
    attention_dropout = encoder.config.attention_dropout if config.dropout else 0.0
    # Weights are drawn even if trained ones replace them, so that a seed gives the head the same weights.
    fresh = Encoder(replace(encoder.config, dropout=config.dropout, attention_dropout=attention_dropout))
    fresh.tokenizer = encoder.tokenizer
    fresh.pooling = encoder.pooling if config.pooling == "auto" else config.pooling
    if config.initialisation == "random":
        return fresh, task.new_head(fresh)
    fresh.load_state_dict(encoder.state_dict(), assign=True)
    head = task.new_head(fresh)
    start.fill_head(head, task)
    return fresh, head


def resolve_finetuning(config: FinetuneConfig, encoder: Encoder, precision: Precision) -> FinetuneConfig:
    """Return the configuration with all defaults filled in, so that it means the same elsewhere.

    Its paths stay as they are; see `with_absolute_paths`.
    """
    max_length = config.max_length
    if max_length is None:
        max_length = min(128, encoder.config.max_length)
    task = choose_task(config.task, find_layout(config))
    overlap = config.overlap
    if overlap is None and task.overlap is not None:
        overlap = min(task.overlap, max_length // 4)
    return replace(
        config,
        task=task.name,
        max_length=max_length,
        overlap=overlap,
        pooling=choose_pooling(encoder) if config.pooling == "auto" else config.pooling,
        learning_rates=config.learning_rates or (default_rate(encoder.config.hidden_size),),
        precision=precision,
    )


def load_data(config: FinetuneConfig, encoder: Encoder, ranks: World = SINGLE_RANK) -> TaskData:
    """Load the rows that a run with this resolved configuration trains on, chooses on and is tested on."""
    assert config.max_length is not None
    layout = find_layout(config)
    data = load_task_data(
        TaskFiles(choose_task(config.task, layout), layout, ranks),
        encoder,
        config.tables,
        max_length=config.max_length,
        overlap=config.overlap,
        more_tests=config.more_tests,
        metric=config.metric,
        group=config.group,
    )
    if config.dev is None and config.chooses:
        data = hold_out(data, ranks=ranks)
    elif config.dev is None and data.task.calibrates and len(data.train) >= MIN_CALIBRATION_ROWS:
        try:
            data = hold_out(data, CALIBRATION_SHARE, ranks)
        except TooFewRowsError as error:
            if ranks.is_main:
                warn(f"probabilities are not calibrated: {error}")
        else:
            # There is nothing to choose, so no final training follows that could read dev too.
            data = replace(data, train=data.fit)
    if config.trainer.keeps_best:
        # Checkpoints of the final training are compared on dev, so that training must not read dev.
        data = replace(data, train=data.fit)
    return data


def name_table_files(**options: str | Sequence[str] | None) -> RunFiles:
    """Name the files of tables for `check_inputs`. Several files of one option are numbered from 0."""
    files = {}
    for option, value in options.items():
        tables = [value] if isinstance(value, str) else value or ()
        paths = [Path(path) for table in tables for path in files_of_table(table)]
        if isinstance(value, str) and len(paths) == 1:
            files[option] = paths[0]
        else:
            files |= {f"{option}[{number}]": path for number, path in enumerate(paths)}
    return files


def make_result(
    name: str, measured: Any, primary: Metric, test_rows: float | None, **facts: Any
) -> ModelResult:
    """Make the result of a model from its metrics on the test rows, and further fields of ModelResult."""
    value = find_number(measured, primary.name) or 0.0
    return ModelResult(name=name, value=value, error=find_error(measured, primary, test_rows), **facts)


@dataclass(frozen=True)
class Trial:
    """One training: its settings, its metrics on dev, and its result."""

    seed: int
    learning_rate: float
    dev: Numbers
    result: Result


@dataclass(frozen=True)
class SeedModel:
    """The model of a seed.

    Attributes:
        trial: the training that gives it.
        trials: the trainings that chose its learning rate.
        task: the task with the settings that are best on dev.
        answers, metrics: answers and metrics for each table that it was measured on.
    """

    trial: Trial
    trials: list[Trial]
    task: Task
    answers: Values
    metrics: dict[str, Numbers]

    @property
    def results(self) -> list[Result]:
        """The results of its trainings, each once."""
        results = [trial.result for trial in self.trials]
        if self.trial not in self.trials:
            results.append(self.trial.result)
        return results


@dataclass(frozen=True)
class Finetuning:
    """A training for each seed and learning rate, and the choice among them.

    Attributes:
        trials: the folder of the trainings in the run.
    """

    config: FinetuneConfig
    data: TaskData
    run: RunFolder
    runtime: Runtime
    trials: str = "trials"

    @property
    def primary(self) -> Metric:
        """The metric that decides."""
        return self.data.task.metrics[0]

    def train(
        self, training: Encoded, held_out: Encoded | None, seed: int, rate: float, epochs: float, name: str
    ) -> Trial:
        """Train one model from the start, and measure it on `held_out`. Its weights stay in folder `name`."""
        config, task = self.config, self.data.task
        encoder, head = starting_model(config, seed, task)
        if config.trainer.keeps_best and not config.trainer.evaluate_every:
            updates_of_epoch = max(1, round(len(training.examples) / config.batch))
            config = replace(config, trainer=replace(config.trainer, evaluate_every=updates_of_epoch))
        stage = Stage(
            title=f"fine-tune, seed {seed}, rate {rate:g}",
            folder=self.run.path / self.trials / f"seed-{seed}" / name,
            seed=seed,
            encoder=encoder,
            objective=Supervised(task, head, make_evaluation(task, head, held_out)),
            texts=training.examples,
            epochs=epochs,
            rate=rate,
            trained={"encoder": encoder, "head": head},
        )
        result = train_stage(stage, config, self.run, self.runtime)
        return Trial(seed, rate, result.metrics, result)

    def train_seed(self, seed: int) -> tuple[Trial, list[Trial]]:
        """Return the training that gives the seed's model, and the trials that chose its learning rate."""
        data, config, is_main = self.data, self.config, self.runtime.world.is_main
        # With rows of train held out as dev, a final training on all of train follows the trials.
        needs_final = data.fit is not data.train
        epochs = config.epochs
        if needs_final and config.trial_epochs:
            epochs = config.trial_epochs
        trials: list[Trial] = []
        best: Trial | None = None
        for rate in config.learning_rates:
            trial = self.train(data.fit, data.dev, seed, rate, epochs, f"rate-{rate}")
            trials.append(trial)
            if best is None:
                best = trial
                continue
            worse = trial
            if self.primary.score(trial.dev) > self.primary.score(best.dev):
                best, worse = trial, best
            if is_main:  # the weights of many trials would fill the disk
                worse.result.forget_weights()
        assert best is not None
        if needs_final:
            rate = best.learning_rate
            if is_main:
                count = f"{len(data.train):,}"
                say(f"learning rate {rate:g} is best on dev; training on all {count} examples with it")
            final = self.train(data.train, None, seed, rate, config.epochs, "final")
            best = replace(final, dev=best.dev)
        return best, trials

    def train_seed_model(self, seed: int, tables: Mapping[str, Encoded]) -> SeedModel:
        """Train a seed's model, fit its task's settings on dev, and measure it on tables."""
        trial, trials = self.train_seed(seed)
        model = self.load_model(trial)
        if model.task.settings and self.data.dev is not None:
            fitted = model.task.fit_settings(self.answer_dev(trial, trials), self.data.dev)
            model = replace(model, task=fitted)
        answers: Values = {}
        metrics: dict[str, Numbers] = {}
        for name, table in tables.items():
            if self.runtime.world.is_main:
                say(f"test: {len(table):,} rows of {table.table.path.name}")
            answers[name], metrics[name] = model.judge(table, self.runtime.precision)
        return SeedModel(trial, trials, model.task, answers, metrics)

    def load_model(self, trial: Trial) -> TaskModel:
        """Load the model that a training has left."""
        config, data = self.config, self.data
        assert config.max_length is not None
        with skip_initial_weights():
            encoder, head = starting_model(config, trial.seed, data.task)
        trial.result.load({"encoder": encoder, "head": head})
        fold(head)
        pairs = data.train.table.second is not None
        model = TaskModel(data.task, encoder, head, config.max_length, config.overlap, pairs=pairs)
        return model.to(self.runtime.device)

    def answer_dev(self, best: Trial, trials: list[Trial]) -> Any:
        """Return the answers for dev of the trial with the best learning rate, which has not read dev."""
        if self.data.dev is None:
            return None
        rates = [trial.learning_rate for trial in trials]
        trial = trials[rates.index(best.learning_rate)]
        answers, _ = self.load_model(trial).judge(self.data.dev, self.runtime.precision)
        return answers
