"""The verb `brimful finetune`: an encoder and labelled tables become a task model.

A run trains one model for each seed and learning rate. The learning rate that is best on dev trains each
seed's model, and the best seed's model is kept.
"""

import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import tyro
from rich.table import Table as RichTable

from brimful.config import config_hash, identity, incidental, require_positive, require_seeds, verb
from brimful.console import console, say, warn
from brimful.distributed import ALONE, World, world
from brimful.errors import BrimfulError
from brimful.nn.attention import choose_backend
from brimful.nn.drawing import discarded, undrawn
from brimful.nn.encoder import Encoder
from brimful.nn.heads import MaskedLMHead, pooling_of
from brimful.nn.interop import load_model
from brimful.objectives.supervised import Supervised
from brimful.optim.build import OptimizerConfig
from brimful.optim.schedule import ScheduleConfig
from brimful.precision.policy import Precision
from brimful.randomness import derive_key, permutation
from brimful.runs.directory import (
    START,
    SUMMARY,
    absolute,
    check_inputs,
    find_model,
    finished_run,
    model_files,
    open_run,
    start_run,
)
from brimful.runs.stages import Result, Stages, finish_stages
from brimful.storage import read_json
from brimful.tasks import baselines
from brimful.tasks.data import TaskData, example_stream, hold_out, load_task_data
from brimful.tasks.encoded import Encoded
from brimful.tasks.layouts import OWN, Columns, find_layout, require_task
from brimful.tasks.model import TaskModel, evaluation
from brimful.tasks.output import write_rows
from brimful.tasks.registry import DEFAULT, find_task, tasks
from brimful.tasks.review import check_before, review
from brimful.tasks.table import Table
from brimful.tasks.task import Metric, Task, TaskHead
from brimful.train.config import TrainerConfig, check_trainer
from brimful.train.objective import Runtime
from brimful.train.trainer import Trainer

TASK_TRAINER = TrainerConfig(checkpoint_every=200, deterministic=True)
"""Fine-tuning and distillation are short and their metrics are compared: the same bits are worth the time."""
RUNGS = {
    "majority": "majority",
    "tfidf": "TF-IDF + linear",
    "frozen": "frozen encoder + linear",
    "random": "encoder from random weights",
    "finetuned": "fine-tuned encoder",
}

_NUMBERS = tyro.constructors.PrimitiveConstructorSpec(
    nargs="*",
    metavar="INT ...",
    instance_from_str=lambda texts: tuple(int(part) for text in texts for part in text.split(",") if part),
    is_instance=lambda value: isinstance(value, tuple),
    str_from_instance=lambda values: list(map(str, values)),
)
"""Whole numbers, with spaces or commas between them."""


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """Train an encoder for a task on texts or pairs of texts."""

    encoder: str | None = incidental(None)
    """Folder of an encoder: RUN/encoder, the RUN itself, or a Hugging Face folder."""
    task: Annotated[str, tyro.conf.arg(help=f"What to predict: {' or '.join(sorted(tasks()))}.")] = DEFAULT
    train: str | None = incidental(None)
    """TSV, CSV, JSONL or Parquet with the columns text, text_b (optional) and label."""
    test: str | None = incidental(None)
    """A table of the same columns, on which the finished model is measured once."""
    more_tests: tuple[str, ...] = incidental(())
    """More tables to measure the finished model on, such as those of another domain."""
    columns: Columns = OWN
    """Other names of the columns."""
    layout: str | None = None
    """How the files are laid out: glue/mnli, clue/ocnli, squad ... It says what the columns, the labels, the
    task and the primary metric are."""
    metric: str | None = None
    """The metric that learning rates and checkpoints are compared by, such as f1 (macro-averaged), matthews
    or spearman. By default the first of the task, or the one of the layout."""
    out: str | None = incidental(None)
    """Run directory to create; the model ends up in RUN/model."""
    resume: str | None = incidental(None)
    """Run directory of an interrupted run: continue it with its own configuration."""
    dev: str | None = incidental(None)
    """A table of the same columns, to choose the learning rate on. By default a fifth of train, which the
    final training uses as well."""
    seed: tuple[int, ...] = (0,)
    """Each seed trains its own model. Metrics of several seeds are means, with their standard deviation and
    the value of each."""
    seeds: int | None = incidental(None)
    """How many seeds to train, from seed on: --seeds 5 is --seed 0 1 2 3 4."""
    learning_rates: tuple[float, ...] = (3e-4,)
    """Peak learning rates to try; the best on dev is kept."""
    epochs: float | tuple[float, ...] = 6.0
    """Passes over train. Several values are tried with each learning rate, and the best pair is kept."""
    trial_epochs: float | None = None
    """Passes while learning rates are compared on held-out rows of train; by default the same as epochs."""
    class_weights: Literal["balanced"] | None = None
    """balanced: every class has the same part in the loss of a classification, however rare it is."""
    reinit_top: int = 0
    """Start this many of the encoder's last layers from new weights (Zhang et al. 2021, on few labels)."""
    ladder: Literal["quick", "full", "none"] = incidental("quick")
    """Baselines on the same rows, where scikit-learn is installed: the majority, TF-IDF and the frozen
    encoder under linear models; full: the encoder from random weights too, which takes as long as the run."""
    label_curve: Annotated[tuple[int, ...], _NUMBERS] = incidental(())
    """Numbers of labels with which TF-IDF, the frozen encoder and the fine-tuned one are compared."""
    batch: int = 16
    """Examples in an update."""
    max_length: int | None = None
    """The most tokens of an example. By default 128, or the encoder's maximum if less."""
    overlap: int | None = None
    """Longer texts become windows that share this many tokens, and their answers are merged. By default tasks
    of whole texts cut them, and tasks of tokens read them in windows."""
    initialisation: Literal["pretrained", "random"] = "pretrained"
    """random: the encoder's shape and tokenizer with new weights, to measure what pretraining is worth."""
    pooling: Literal["auto", "mean", "first"] = "auto"
    """What a classifier or regression reads of a text: the mean over its tokens, or its first token. auto: as
    the encoder was trained, where its folder says it; else the mean in modern, the first token in others."""
    layers: tuple[int, ...] | None = None
    """Keep only these layers of the encoder (0-based), in this order."""
    dropout: float = 0.1
    """Dropout of hidden states and before the last layer of the head."""
    attention_dropout: float | None = None
    """Dropout of attention probabilities, on CPUs only (attention backend sdpa); by default the
    encoder's own."""
    micro_batch_tokens: int = 4096
    """The most tokens of one forward and backward pass."""
    precision: Precision = "auto"
    """Number format of the computation. auto: bf16 where the device is fast at it; else, on V100 and T4, fp16
    with loss scaling; else fp32."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """learning_rate is set from learning_rates."""
    schedule: ScheduleConfig = ScheduleConfig()
    trainer: TrainerConfig = TASK_TRAINER
    """steps is set from epochs. With keep or patience, dev is evaluated once an epoch, or as evaluate_every
    says, and the final training leaves dev out."""
    dry_run: bool = incidental(False)
    """Resolve and check everything, and do nothing."""

    def __post_init__(self) -> None:
        find_task(self.task)
        require_seeds(*self.seed)
        require_positive(self, "batch", "micro_batch_tokens")
        check_trainer(self.trainer)
        if self.seeds is not None:
            require_positive(self, "seeds")
            if len(self.seed) > 1:
                raise BrimfulError(f"seed is {list(self.seed)} and seeds {self.seeds}: give one of them")
        for name in ("epochs", "trial_epochs"):
            for value in _several(getattr(self, name)):
                if value is not None and not value > 0:
                    raise BrimfulError(f"{name} is {value}: it must be above 0")
        for name in ("seed", "learning_rates", "epochs"):
            values = _several(getattr(self, name))
            if not values or len(set(values)) < len(values):
                raise BrimfulError(f"{name} is {list(values)}: give at least one value, and no value twice")
        if self.trial_epochs and len(self.settings) > len(self.learning_rates):
            raise BrimfulError("trial_epochs does not go with several values of epochs: leave it out")
        if self.reinit_top < 0 or (self.reinit_top and self.initialisation == "random"):
            raise BrimfulError(
                f"reinit_top is {self.reinit_top}: it must not be negative, and random has no trained layers"
            )
        if any(labels < 2 for labels in self.label_curve):
            raise BrimfulError(f"label_curve is {list(self.label_curve)}: give numbers of labels, at least 2")

    @property
    def settings(self) -> list[tuple[float, float]]:
        """The learning rate and the epochs of each trial."""
        return list(product(self.learning_rates, _several(self.epochs)))

    def trial_name(self, rate: float, epochs: float) -> str:
        """The name of the folder of a trial."""
        several = len(self.settings) > len(self.learning_rates)
        return f"rate-{rate}-epochs-{epochs:g}" if several else f"rate-{rate}"

    @property
    def encoder_folder(self) -> Path:
        """The Hugging Face folder of the encoder.

        Raises:
            BrimfulError: there is no model.
        """
        assert self.encoder is not None
        return find_model(Path(self.encoder), "encoder")

    @property
    def tables(self) -> tuple[str, str | None, str]:
        """Paths of train, dev and test."""
        assert self.train is not None
        assert self.test is not None
        return self.train, self.dev, self.test


def _several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def starting_model(config: FinetuneConfig, seed: int, task: Task) -> tuple[Encoder, TaskHead]:
    """The model before training. The transform of a pretrained masked-LM head starts the new head, as when
    `transformers` loads a ModernBERT checkpoint: the tensors have the same name."""
    encoder, pretraining_head, _ = load_model(config.encoder_folder)
    if config.layers is not None:
        encoder = encoder.keep_layers(config.layers)
    torch.manual_seed(seed)
    rate = config.attention_dropout
    rate = encoder.config.attention_dropout if rate is None else rate
    # A seed gives the head the same weights whether or not the encoder's are drawn before them.
    drawn = config.initialisation == "random" or config.reinit_top
    with nullcontext() if drawn else discarded():
        fresh = Encoder(replace(encoder.config, dropout=config.dropout, attention_dropout=rate))
    fresh.tokenizer = encoder.tokenizer
    fresh.pooling = encoder.pooling if config.pooling == "auto" else config.pooling
    if config.initialisation == "pretrained":
        kept = encoder.config.layers - config.reinit_top
        if kept < 0:
            raise BrimfulError(
                f"reinit_top is {config.reinit_top}, and the encoder has {encoder.config.layers} layers"
            )
        new = tuple(f"layers.{index}." for index in range(kept, encoder.config.layers))
        tensors = {name: value for name, value in encoder.state_dict().items() if not name.startswith(new)}
        fresh.load_state_dict(tensors, strict=not new, assign=True)
    head = task.new_head(fresh)
    if config.initialisation == "pretrained" and isinstance(pretraining_head, MaskedLMHead):
        head.start_from(pretraining_head)
    return fresh, head


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
    with world() as ranks:
        if (summary := finished_run(config, "finetune", ranks)) is not None:
            return summary
        config, directory, resuming = open_run(config, "finetune", ("encoder", "train", "test", "out"), ranks)
        runtime = Runtime.of(ranks, config.precision, config.trainer)
        if config.attention_dropout and not choose_backend(ranks.device, runtime.dtype).drops:
            raise BrimfulError("attention_dropout works on CPUs only: leave it out, or set it to 0")
        encoder, *_ = load_model(config.encoder_folder)
        max_length = config.max_length
        if max_length is None:
            max_length = min(128, encoder.config.max_length)
        layout = find_layout(config.layout, config.columns)
        if config.task == DEFAULT and layout.task:
            config = replace(config, task=layout.task)
        require_task(layout, config.task)
        kind = find_task(config.task)
        overlap = config.overlap
        if overlap is None and kind.overlap is not None:
            overlap = min(kind.overlap, max_length // 4)
        pooling = pooling_of(encoder) if config.pooling == "auto" else config.pooling
        seed = config.seed
        if config.seeds is not None:
            seed = tuple(range(seed[0], seed[0] + config.seeds))
        config = replace(
            config, seed=seed, seeds=None, max_length=max_length, overlap=overlap, pooling=pooling
        )
        data = load_data(config, encoder, ranks)
        if any(labels > len(data.train) for labels in config.label_curve):
            raise BrimfulError(
                f"label_curve is {list(config.label_curve)}, and there are {len(data.train)} labels"
            )
        with undrawn():
            starting_model(config, config.seed[0], data.task)  # so that a wrong setting is refused now
        inputs = check_inputs(directory, _inputs(config))
        if ranks.is_main and not resuming:
            say(
                f"fine-tuning on {len(data.train):,} examples of {data.task.description},"
                f" test {len(data.test):,}"
            )
        told: dict[str, Any] = {}
        if ranks.is_main:  # the others read the summary that it writes
            findings, told = check_before(data, encoder, own_dev=config.dev is not None)
            for finding in [] if resuming else findings:
                if finding.kind != "leakage":  # load_task_data has warned of it
                    warn(f"{finding.file}: {finding.message}")
        if dry_run:
            return {"dry_run": True, "train": len(data.train), "test": len(data.test), **data.task.facts}
        config = _resolved(config, runtime.precision)
        if ranks.is_main:
            start_run(directory, config, inputs)
            if config.trainer.checkpoint_every and not (directory / START).exists():
                encoder, head = starting_model(config, config.seed[0], data.task)
                TaskModel(data.task, encoder, head, max_length, overlap).save(directory / START)
        ranks.barrier()
        decides = [identity(config), inputs]
        if config.trainer.keeps_best:  # then evaluations decide too, and not only measure
            decides.append(config.trainer.evaluate_every)
        stages = Stages(directory, config_hash(decides), ranks)
        return Finetuning(config, data, stages, runtime, told).run()


def load_data(config: FinetuneConfig, encoder: Encoder, ranks: World = ALONE) -> TaskData:
    """The rows that a run trains on, chooses on and is tested on.

    Args:
        config: with max_length and overlap, as config.yaml has them.
    """
    assert config.max_length is not None
    data = load_task_data(
        find_task(config.task),
        encoder,
        *config.tables,
        max_length=config.max_length,
        overlap=config.overlap,
        split=len(config.settings) > 1 or config.trainer.keeps_best,
        more_tests=config.more_tests,
        layout=find_layout(config.layout, config.columns),
        metric=config.metric,
        ranks=ranks,
    )
    if config.trainer.keeps_best:
        data = replace(data, train=data.fit)
    return _balanced(data) if config.class_weights else data


def curve_rows(train: Encoded, labels: int) -> Encoded:
    """The rows that a point of the label curve is trained on; with fewer labels, some of the same."""
    return train.take(np.sort(permutation(len(train), derive_key("label curve"))[:labels]))


def trainings(config: FinetuneConfig, data: TaskData) -> dict[str, tuple[int, Encoded]]:
    """The seed and the rows of each training of a run, by the name of its folder."""
    found: dict[str, tuple[int, Encoded]] = {}
    for seed in config.seed:
        rows = {config.trial_name(*setting): data.fit for setting in config.settings} | {"final": data.train}
        rows |= {f"labels-{n}": curve_rows(data.train, n) for n in config.label_curve}
        found |= {f"trials/seed-{seed}/{name}": (seed, some) for name, some in rows.items()}
    return found


def _balanced(data: TaskData) -> TaskData:
    """The same rows with weights, for each training by its own classes."""
    train = data.task.balanced(data.train)
    return replace(data, train=train, fit=train if data.fit is data.train else data.task.balanced(data.fit))


def _inputs(config: FinetuneConfig) -> dict[str, Path]:
    """The files that decide the result of a run."""
    tables = zip(("train", "dev", "test"), config.tables, strict=True)
    more = {f"more_tests[{i}]": Path(path) for i, path in enumerate(config.more_tests)}
    files = {name: Path(path) for name, path in tables if path}
    return files | more | model_files("encoder", config.encoder_folder)


def _resolved(config: FinetuneConfig, precision: Precision) -> FinetuneConfig:
    """The configuration with everything that it needs to mean the same elsewhere."""
    train, dev, test = (path and absolute(path) for path in config.tables)
    encoder = config.encoder and absolute(config.encoder)
    more = tuple(map(absolute, config.more_tests))
    config = replace(config, encoder=encoder, train=train, dev=dev, test=test, more_tests=more)
    return replace(config, precision=precision)


@dataclass(frozen=True)
class Trial:
    """One training: its settings, its metrics on dev, and its result."""

    seed: int
    learning_rate: float
    epochs: float
    dev: dict[str, float]
    result: Result


@dataclass(frozen=True)
class Finetuning:
    """A run: a training for each seed and learning rate, and the choice among them.

    Attributes:
        told: what summary.json says of the tables (`tasks.review.check_before`).
    """

    config: FinetuneConfig
    data: TaskData
    stages: Stages
    runtime: Runtime
    told: dict[str, Any]
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
        examples = training.examples
        steps = max(1, round(epochs * len(examples) / config.batch))
        loop = replace(config.trainer, steps=steps)
        if loop.keeps_best and not loop.evaluate_every:
            loop = replace(loop, evaluate_every=max(1, round(len(examples) / config.batch)))

        def trainer() -> Trainer:
            return Trainer(
                encoder,
                Supervised(task, head, evaluation(task, head, held_out)),
                example_stream(examples, config.batch, config.micro_batch_tokens, seed, self.runtime),
                self.runtime,
                folder,
                config=loop,
                optimizer=replace(config.optimizer, learning_rate=rate),
                schedule=config.schedule,
                seed=seed,
                identity=self.stages.identity,
                shows=f"brimful inspect {shlex.quote(str(folder))} --update",
            )

        title = f"fine-tune, seed {seed}, rate {rate:g}"
        if len(config.settings) > len(config.learning_rates):
            title += f", {epochs:g} epochs"
        result = self.stages.train(folder, title, trainer, {"encoder": encoder, "head": head})
        return Trial(seed, rate, epochs, result.metrics, result)

    def folder(self, seed: int, name: str) -> Path:
        """Of a training of a seed."""
        return self.stages.run / self.trials / f"seed-{seed}" / name

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

    def model(self, trial: Trial) -> TaskModel:
        """The model of a training."""
        with undrawn():
            encoder, head = starting_model(self.config, trial.seed, self.data.task)
        trial.result.load({"encoder": encoder, "head": head})
        assert self.config.max_length is not None
        return TaskModel(self.data.task, encoder, head, self.config.max_length, self.config.overlap).to(
            self.runtime.device
        )

    def dev_answers(self, best: Trial, trials: list[Trial]) -> Any:
        """The answers for dev of the trial with the settings of `best`, which has not seen dev; None without
        dev or without its weights (a trial that an earlier version of Brimful has finished)."""
        settings = (best.seed, best.learning_rate, best.epochs)
        trial = next(t for t in trials if (t.seed, t.learning_rate, t.epochs) == settings)
        if self.data.dev is None or not trial.result.has_weights:
            return None
        return self.model(trial).judge(self.data.dev, self.runtime)[0]

    def run(self) -> dict[str, Any]:
        """Train all, keep the model that is best on dev, and return the summary."""
        data, task, directory, ranks = self.data, self.data.task, self.stages.run, self.runtime.world
        trials: list[Trial] = []
        chosen: list[Trial] = []
        tests: list[dict[str, tuple[Any, dict[str, float]]]] = []
        tables = {"": data.test} | _by_name(data.more_tests)
        for seed in self.config.seed:
            trial, compared = self.train_seed(seed)
            trials += compared
            chosen.append(trial)
            judged = self.model(trial)
            tests.append({name: judged.judge(table, self.runtime) for name, table in tables.items()})
        index = max(range(len(chosen)), key=lambda i: self.primary.score(chosen[i].dev))
        best = chosen[index]
        measured = {name: _over_seeds([test[name][1] for test in tests]) for name in tables}
        model = self.model(best)
        answers = tests[index][""][0]
        reviewed: dict[str, Any] = {}
        if ranks.is_main:
            start = load_model(self.config.encoder_folder)[0].to(self.runtime.device)
            of_dev = self.dev_answers(best, trials)
            reviewed, temperature = review(data, answers, of_dev, start, self.runtime)
            model = replace(model, temperature=temperature)
        results = {trial.result.directory: trial.result for trial in (*trials, *chosen)}
        seconds = sum(result.seconds for result in results.values())
        summary = {
            "kind": "finetune",
            "task": task.name,
            "primary_metric": self.primary.name,
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
                    f"dev_{self.primary.name}": trial.dev.get(self.primary.name),
                }
                for trial in trials
            ],
            **task.facts,
            **self.told,
            **reviewed,
            "parameters": model.parameters,
            "leaked_test_texts": data.leaked,
            "precision": self.runtime.precision,
            "seconds": seconds,
            "examples_per_second": sum(r.examples for r in results.values()) / max(seconds, 1e-9),
        }
        summary |= Ladder(self, best, answers, model).run()
        ranks.barrier()  # every rank has read the kept weights
        if ranks.is_main:
            model.save(directory / "model", token_types=data.train.examples.typed)
            for name, table in tables.items():
                path = directory / f"predictions{name and f'-{name}'}.jsonl"
                calibrated = model.calibrated(tests[index][name][0])
                write_rows(path, task.compared_rows(calibrated, table))
            shutil.copyfile(best.result.directory / "metrics.jsonl", directory / "metrics.jsonl")
            finish_stages(directory, summary)
            shutil.rmtree(directory / START, ignore_errors=True)
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


@dataclass(frozen=True)
class Ladder:
    """A fine-tuned model beside what else its labels can give."""

    run_of: Finetuning
    best: Trial
    answers: Any
    model: TaskModel

    def run(self) -> dict[str, Any]:
        """`baselines`, `latency_ms` of the fine-tuned model, and `label_curve`; what is not wanted, or has no
        ladder, is left out. Trainings take all ranks; the rest is the main rank's."""
        finetuning, config = self.run_of, self.run_of.config
        data, main = finetuning.data, finetuning.runtime.world.is_main
        if config.ladder == "none" and not config.label_curve:
            return {}
        if (why := baselines.available(data.task)) is not None:
            if main:
                say(f"no ladder: {why}")
            return {}
        found: dict[str, Any] = {}
        features: dict[str, baselines.Features] = {}
        if main:
            say("TF-IDF and the frozen encoder on the same rows (--ladder none leaves this out)")
            encoder, *_ = load_model(config.encoder_folder)
            runtime = finetuning.runtime
            features = {
                "tfidf": baselines.Tfidf(),
                "frozen": baselines.frozen(encoder, data.task, data, config.overlap, runtime),
            }
        if config.ladder != "none":
            found |= self._baselines(features)
        if config.label_curve:
            found["label_curve"] = self._curve(features)
        return found

    def _baselines(self, features: dict[str, baselines.Features]) -> dict[str, Any]:
        finetuning, config = self.run_of, self.run_of.config
        data, task, runtime = finetuning.data, finetuning.data.task, finetuning.runtime
        rungs = {}
        if config.ladder == "full" and config.initialisation == "pretrained":
            rungs["random"] = self._random()
        if not runtime.world.is_main:
            return {}
        rungs |= {name: baselines.linear(task, data, each) for name, each in features.items()}
        rungs |= {"majority": baselines.majority(task, data)}
        found: dict[str, dict[str, float]] = {}
        for name in ("majority", "tfidf", "frozen", "random"):
            if (rung := rungs.get(name)) is not None:
                difference, error = baselines.compare(task, self.answers, rung.answers, data.test)
                scores = {m.name: rung.metrics[m.name] for m in task.metrics if m.name in rung.metrics}
                found[name] = scores | {
                    "difference": difference,
                    "standard_error": error,
                    "seconds": rung.seconds,
                    "latency_ms": rung.latency_ms,
                }
        latency = self._latency(self.model)
        ours = task.measure(self.answers, data.test) | {
            "seconds": self.best.result.seconds,
            "latency_ms": latency,
        }
        show_ladder(task, found | {"finetuned": ours})
        return {"baselines": found, "latency_ms": latency}

    def _latency(self, model: TaskModel) -> float:
        """Median milliseconds from one text to its answer."""
        data, task = self.run_of.data, self.run_of.data.task
        tokenizer, runtime = model.encoder.tokenizer, self.run_of.runtime
        assert tokenizer is not None

        def call(table: Table) -> None:
            one = task.encode(table, tokenizer, model.max_length, model.overlap, labelled=False)
            task.answers(model.outputs(one.examples, runtime.device, runtime.precision), one)

        rows = range(min(baselines.TIMED, len(data.test)))
        return baselines.median_ms(call, [data.test.table.take([row]) for row in rows], 3)

    def _random(self) -> baselines.Rung:
        """The same encoder from random weights. They need a higher rate: 1e-3 is tried too."""
        finetuning = self.run_of
        config = replace(
            finetuning.config,
            initialisation="random",
            reinit_top=0,
            seed=(self.best.seed,),
            learning_rates=tuple(dict.fromkeys((*finetuning.config.learning_rates, 1e-3))),
        )
        data = finetuning.data
        if data.dev is None:
            fit, dev = hold_out(data.train)
            data = replace(data, fit=fit, dev=dev)
        trainings = replace(finetuning, config=config, data=data, trials="random")
        trial, _ = trainings.train_seed(self.best.seed)
        model = trainings.model(trial)
        answers, metrics = model.judge(data.test, finetuning.runtime)
        return baselines.Rung(answers, metrics, trial.result.seconds, self._latency(model))

    def _curve(self, features: dict[str, baselines.Features]) -> list[dict[str, Any]]:
        """The primary metric of each model by the number of labels: the first rows of one random order, with
        the setting that was chosen on all. Each model with fewer labels is trained by the best seed."""
        finetuning, best, primary = self.run_of, self.best, self.run_of.primary.name
        data, task, runtime = finetuning.data, finetuning.data.task, finetuning.runtime
        records = []
        for labels in sorted({*finetuning.config.label_curve, len(data.train)}):
            record: dict[str, Any] = {"labels": labels}
            train = curve_rows(data.train, labels)
            part = replace(data, train=train, fit=train)
            if labels < len(data.train):
                folder = finetuning.folder(best.seed, f"labels-{labels}")
                setting = best.learning_rate, best.epochs
                trial = replace(finetuning, data=part).train(train, data.dev, best.seed, setting, folder)
                model = finetuning.model(trial)
                record["finetuned"] = model.judge(data.test, runtime)[1][primary]
            else:
                record["finetuned"] = task.measure(self.answers, data.test)[primary]
            if runtime.world.is_main:
                given = part if finetuning.config.dev else replace(part, dev=None)
                for name, each in features.items():
                    record[name] = baselines.linear(task, given, each, timed=False).metrics[primary]
            records.append(record)
        return records


def show_ladder(task: Task, rungs: Mapping[str, Mapping[str, float]]) -> None:
    """Print the baselines and the fine-tuned model, one a line."""
    primary = task.metrics[0]
    table = RichTable(title="the same labels, otherwise used")
    for column in ("model", primary.title, "fine-tuned is better by", "training", "one text"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for name, rung in rungs.items():
        gap = ""
        if "difference" in rung:
            gap = f"{rung['difference']:+.3f} ± {rung['standard_error']:.3f}"
        table.add_row(
            RUNGS.get(name, name),
            f"{rung[primary.name]:.3f}",
            gap,
            f"{rung['seconds']:.1f} s",
            f"{rung['latency_ms']:.2f} ms" if rung["latency_ms"] else "",
        )
    console.print(table)


def _over_seeds(tests: list[dict[str, float]]) -> dict[str, Any]:
    """The metrics of one seed; of several seeds the mean of each metric, its standard deviation (METRIC_std)
    and each value (METRIC_runs)."""
    if len(tests) == 1:
        return tests[0]
    found: dict[str, Any] = {}
    for name in tests[0]:
        runs = [test[name] for test in tests]
        if name == "n":
            found[name] = runs[0]
        else:
            found |= {name: float(np.mean(runs)), f"{name}_std": float(np.std(runs, ddof=1))}
            found[f"{name}_runs"] = runs
    return found
