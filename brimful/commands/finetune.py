"""The verb `brimful finetune`: an encoder and labelled tables become a task model.

A run trains one model for each seed and learning rate. The learning rate that is best on dev trains each
seed's model, and the best seed's model is kept.
"""

import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import tyro

from brimful.config import config_hash, identity, incidental, require_positive, require_seeds, verb
from brimful.console import say, warn
from brimful.distributed import world
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
from brimful.runs.directory import (
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
from brimful.tasks.data import TaskData, example_stream, load_task_data
from brimful.tasks.encoded import Encoded
from brimful.tasks.layouts import OWN, Columns, find_layout, require_task
from brimful.tasks.model import TaskModel, evaluation
from brimful.tasks.output import write_rows
from brimful.tasks.registry import DEFAULT, find_task, tasks
from brimful.tasks.review import check_before, review
from brimful.tasks.task import Metric, Task, TaskHead
from brimful.train.config import TrainerConfig, check_trainer
from brimful.train.objective import Runtime
from brimful.train.trainer import Trainer

TASK_TRAINER = TrainerConfig(checkpoint_every=200, deterministic=True)
"""Fine-tuning and distillation are short and their metrics are compared: the same bits are worth the time."""


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
    """Each seed trains its own model. Metrics of several seeds are means; the primary metric also
    has its standard deviation."""
    learning_rates: tuple[float, ...] = (3e-4,)
    """Peak learning rates to try; the best on dev is kept."""
    epochs: float = 6.0
    """Passes over train."""
    trial_epochs: float | None = None
    """Passes while learning rates are compared on held-out rows of train; by default the same as epochs."""
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
    """steps is set from epochs."""
    dry_run: bool = incidental(False)
    """Resolve and check everything, and do nothing."""

    def __post_init__(self) -> None:
        find_task(self.task)
        require_seeds(*self.seed)
        require_positive(self, "batch", "micro_batch_tokens")
        check_trainer(self.trainer)
        for name in ("epochs", "trial_epochs"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise BrimfulError(f"{name} is {getattr(self, name)}: it must be above 0")
        for name in ("seed", "learning_rates"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise BrimfulError(f"{name} is {list(values)}: give at least one value, and no value twice")

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
    with discarded() if config.initialisation == "pretrained" else nullcontext():
        fresh = Encoder(replace(encoder.config, dropout=config.dropout, attention_dropout=rate))
    fresh.tokenizer = encoder.tokenizer
    fresh.pooling = encoder.pooling if config.pooling == "auto" else config.pooling
    if config.initialisation == "pretrained":
        fresh.load_state_dict(encoder.state_dict(), assign=True)
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
        config = replace(config, max_length=max_length, overlap=overlap, pooling=pooling)
        data = load_task_data(
            kind,
            encoder,
            *config.tables,
            max_length=max_length,
            overlap=overlap,
            split=len(config.learning_rates) > 1,
            more_tests=config.more_tests,
            layout=layout,
            metric=config.metric,
            ranks=ranks,
        )
        with undrawn():
            starting_model(config, config.seed[0], data.task)  # so that a wrong setting is refused now
        inputs = check_inputs(directory, _inputs(config))
        if ranks.is_main and not resuming:
            say(
                f"fine-tuning on {len(data.train):,} examples of {data.task.description},"
                f" test {len(data.test):,}"
            )
        findings, told = check_before(data, encoder, own_dev=config.dev is not None)
        if ranks.is_main and not resuming:
            for finding in findings:
                if finding.kind != "leakage":  # load_task_data has warned of it
                    warn(finding.message)
        if dry_run:
            return {"dry_run": True, "train": len(data.train), "test": len(data.test), **data.task.facts}
        config = _resolved(config, runtime.precision)
        if ranks.is_main:
            start_run(directory, config, inputs)
        ranks.barrier()
        stages = Stages(directory, config_hash([identity(config), inputs]), ranks)
        return Finetuning(config, data, stages, runtime, told).run()


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

    @property
    def primary(self) -> Metric:
        """The metric that decides."""
        return self.data.task.metrics[0]

    def train(
        self, training: Encoded, held_out: Encoded | None, seed: int, rate: float, folder: Path
    ) -> Trial:
        """Train one model from the start, and measure it on `held_out`. Its weights are kept."""
        config, task = self.config, self.data.task
        everything = training is self.data.train
        epochs = config.epochs if everything else config.trial_epochs or config.epochs
        encoder, head = starting_model(config, seed, task)
        examples = training.examples
        steps = max(1, round(epochs * len(examples) / config.batch))

        def trainer() -> Trainer:
            return Trainer(
                encoder,
                Supervised(task, head, evaluation(task, head, held_out)),
                example_stream(examples, config.batch, config.micro_batch_tokens, seed, self.runtime),
                self.runtime,
                folder,
                config=replace(config.trainer, steps=steps),
                optimizer=replace(config.optimizer, learning_rate=rate),
                schedule=config.schedule,
                seed=seed,
                identity=self.stages.identity,
            )

        title = f"fine-tune, seed {seed}, rate {rate:g}"
        result = self.stages.train(folder, title, trainer, {"encoder": encoder, "head": head})
        return Trial(seed, rate, result.metrics, result)

    def train_seed(self, seed: int) -> tuple[Trial, list[Trial]]:
        """The training that gives the seed's model, and the trials that chose its learning rate."""
        data, folder = self.data, self.stages.run / "trials" / f"seed-{seed}"
        trials: list[Trial] = []
        best: Trial | None = None
        for rate in self.config.learning_rates:
            trial = self.train(data.fit, data.dev, seed, rate, folder / f"rate-{rate}")
            trials.append(trial)
            better = best is None or self.primary.score(trial.dev) > self.primary.score(best.dev)
            worse = best if better else trial
            best = trial if better else best
            if worse and self.runtime.world.is_main:
                worse.result.forget_weights()
        assert best is not None
        if data.fit is not data.train:
            rate = best.learning_rate
            if self.runtime.world.is_main:
                examples = f"all {len(data.train):,} examples"
                say(f"learning rate {rate:g} is best on dev; training on {examples} with it")
            final = self.train(data.train, None, seed, rate, folder / "final")
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
        settings = (best.seed, best.learning_rate)
        trial = next(trial for trial in trials if (trial.seed, trial.learning_rate) == settings)
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
        measured = {name: _over_seeds([test[name][1] for test in tests], task) for name in tables}
        model = self.model(best)
        reviewed: dict[str, Any] = {}
        if ranks.is_main:
            start = load_model(self.config.encoder_folder)[0].to(self.runtime.device)
            answers, of_dev = tests[index][""][0], self.dev_answers(best, trials)
            reviewed, temperature = review(data, answers, of_dev, start, self.runtime)
            model = replace(model, temperature=temperature)
        results = {trial.result.directory: trial.result for trial in (*trials, *chosen)}
        summary = {
            "kind": "finetune",
            "task": task.name,
            "primary_metric": self.primary.name,
            "test": measured.pop(""),
            **({"tests": measured} if measured else {}),
            "dev": best.dev,
            "learning_rate": best.learning_rate,
            "trials": [
                {
                    "seed": trial.seed,
                    "learning_rate": trial.learning_rate,
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
            "seconds": sum(result.seconds for result in results.values()),
        }
        ranks.barrier()  # every rank has read the kept weights
        if ranks.is_main:
            model.save(directory / "model", token_types=data.train.examples.typed)
            for name, table in tables.items():
                path = directory / f"predictions{name and f'-{name}'}.jsonl"
                answers = model.calibrated(tests[index][name][0])
                write_rows(path, task.compared_rows(answers, table))
            shutil.copyfile(best.result.directory / "metrics.jsonl", directory / "metrics.jsonl")
            finish_stages(directory, summary)
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


def _over_seeds(tests: list[dict[str, float]], task: Task) -> dict[str, Any]:
    """The metrics of one seed; of several seeds their means, and for the primary metric also the standard
    deviation and each value."""
    if len(tests) == 1:
        return tests[0]
    primary = task.metrics[0].name
    runs = [test[primary] for test in tests]
    names = [metric.name for metric in task.metrics if metric.name in tests[0]]
    means = {name: float(np.mean([test[name] for test in tests])) for name in names}
    return means | {
        f"{primary}_std": float(np.std(runs, ddof=1)),
        f"{primary}_runs": runs,
        "n": tests[0]["n"],
    }
