"""The verb `brimful distil`: a small student learns from a fine-tuned teacher (TinyBERT: Jiao et al., 2020).

There are two stages. First the student imitates the teacher's embeddings, hidden states and attention scores
of every g-th layer. Then it imitates the teacher's outputs. Both stages need texts and no labels, so
unlabelled text of the same kind is as good as the training table.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from brimful.augmentation.config import AugmentConfig
from brimful.augmentation.tokens import augmented
from brimful.commands.finetune_config import TASK_TRAINER, FinetuneConfig
from brimful.commands.finetune_trainings import starting_model
from brimful.config import (
    build,
    config_hash,
    identity,
    incidental,
    read_yaml,
    require_positive,
    require_seeds,
    verb,
)
from brimful.console import say
from brimful.data.augmented import AugmentedExamples
from brimful.data.examples import Examples
from brimful.distributed import World, world
from brimful.errors import BrimfulError
from brimful.nn.encoder import Encoder
from brimful.nn.heads import SequenceHead, pooling_of
from brimful.objectives.imitation import (
    LayerDistillation,
    LayerLosses,
    LogitDistillation,
    spread_layers,
)
from brimful.optim.build import OptimizerConfig
from brimful.optim.schedule import ScheduleConfig
from brimful.precision.policy import Precision
from brimful.runs.directory import (
    CONFIG,
    absolute,
    check_inputs,
    find_model,
    finished_run,
    model_files,
    open_run,
    start_run,
)
from brimful.runs.stages import Stages, finish_stages
from brimful.tasks.data import TaskData, example_stream, load_task_data, warn_of_cut
from brimful.tasks.layouts import find_layout
from brimful.tasks.model import TaskModel, evaluation, load_task_model
from brimful.tasks.output import write_rows
from brimful.tasks.table import Table
from brimful.train.config import TrainerConfig, check_trainer
from brimful.train.objective import Objective, Runtime
from brimful.train.trainer import Trainer


@dataclass(frozen=True, kw_only=True)
class StageConfig:
    """One stage of the distillation."""

    epochs: float
    """Passes over the texts."""
    learning_rate: float
    """Peak learning rate."""

    def __post_init__(self) -> None:
        for name in ("epochs", "learning_rate"):
            if not getattr(self, name) >= 0:
                raise BrimfulError(f"a stage's {name} is {getattr(self, name)}: it must not be negative")


@dataclass(frozen=True, kw_only=True)
class LayerStageConfig(StageConfig):
    """The first stage of the distillation."""

    losses: LayerLosses = LayerLosses()


@dataclass(frozen=True, kw_only=True)
class DistilConfig:
    """Train a smaller student to imitate a fine-tuned teacher."""

    teacher: str | None = incidental(None)
    """Run directory of `brimful finetune`; its tables are used again."""
    out: str | None = incidental(None)
    """Run directory to create; the student ends up in RUN/model."""
    resume: str | None = incidental(None)
    """Run directory of an interrupted run: continue it with its own configuration."""
    student_layers: int = 2
    """Layers of the student. Those that it starts from are spread evenly over the teacher's."""
    keep_layers: tuple[int, ...] | None = None
    """Start from these layers of the teacher (0-based) instead."""
    student_hidden: int | None = None
    """Width of the student; by default the teacher's. With another width it starts from random weights."""
    initialisation: Literal["pretrained", "random"] = "pretrained"
    """pretrained: layers of the encoder that the teacher was fine-tuned from."""
    unlabelled: tuple[str, ...] = incidental(())
    """More texts to learn from: .txt (one a line), or tables with a text column."""
    seed: int = 0
    """Decides random weights and the order of texts."""
    batch: int = 32
    """Texts in an update."""
    temperature: float = 1.0
    """Divides the logits of both models in the second stage. Only for tasks with probabilities."""
    micro_batch_tokens: int = 4096
    """The most tokens of one forward and backward pass."""
    layers: LayerStageConfig = LayerStageConfig(epochs=3.0, learning_rate=5e-4)
    """First stage: embeddings, hidden states, attention scores."""
    logits: StageConfig = StageConfig(epochs=3.0, learning_rate=3e-4)
    """Second stage: outputs."""
    augment: AugmentConfig = AugmentConfig()
    precision: Precision = "auto"
    """Number format of the computation. auto: bf16 where the device is fast at it; else, on V100 and T4, fp16
    with loss scaling; else fp32."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """learning_rate is set by each stage."""
    schedule: ScheduleConfig = ScheduleConfig()
    trainer: TrainerConfig = TASK_TRAINER
    """steps is set from epochs."""
    dry_run: bool = incidental(False)
    """Resolve and check everything, and do nothing."""

    def __post_init__(self) -> None:
        require_seeds(self.seed)
        require_positive(self, "batch", "micro_batch_tokens", "student_layers")
        check_trainer(self.trainer)
        if not self.temperature > 0:
            raise BrimfulError(f"temperature is {self.temperature}: it must be above 0")


@dataclass(frozen=True)
class Distillation:
    """The teacher, the student and their data.

    Attributes:
        finetuned: the configuration of the teacher's run, whose tables are used again.
        texts: what the student learns from, without labels.
        data: the tables that teacher and student are measured on.
    """

    config: DistilConfig
    finetuned: FinetuneConfig
    teacher: TaskModel
    student: TaskModel
    texts: Examples | AugmentedExamples
    data: TaskData


def _starts_pretrained(config: DistilConfig, teacher: TaskModel) -> bool:
    """Whether the student starts from layers of the encoder that the teacher was fine-tuned from."""
    width = teacher.encoder.config.hidden_size
    return config.initialisation == "pretrained" and config.student_hidden in (None, width)


def _student(
    config: DistilConfig, finetuned: FinetuneConfig, teacher: TaskModel, data: TaskData
) -> TaskModel:
    """The student before training: the model that `brimful finetune --layers` would start from."""
    shape = teacher.encoder.config
    width = config.student_hidden or shape.hidden_size
    lengths = (teacher.max_length, teacher.overlap)
    head = teacher.head
    pooling = head.pooling if isinstance(head, SequenceHead) else pooling_of(teacher.encoder)
    kept = config.keep_layers
    if kept is not None and not (kept and all(0 <= layer < shape.layers for layer in kept)):
        raise BrimfulError(f"keep_layers is {list(kept)}: the teacher has layers 0 to {shape.layers - 1}")
    if _starts_pretrained(config, teacher):
        if kept is None and config.student_layers > shape.layers:
            raise BrimfulError(
                f"student_layers is {config.student_layers}: the teacher has {shape.layers} layers"
            )
        kept = kept or spread_layers(shape.layers, config.student_layers)
        among = finetuned.layers or range(shape.layers)
        layers = tuple(among[layer] for layer in kept)
        start = replace(
            finetuned,
            initialisation="pretrained",
            pooling=pooling,
            reinit_top=0,
            layers=layers,
            dropout=0.0,
            attention_dropout=0.0,
        )
        return TaskModel(
            data.task, *starting_model(start, config.seed, data.task), *lengths, pairs=teacher.pairs
        )
    torch.manual_seed(config.seed)
    inner = -(-shape.intermediate_size * width // shape.hidden_size // 64) * 64
    encoder = Encoder(
        replace(
            shape,
            layers=len(kept) if kept else config.student_layers,
            hidden_size=width,
            intermediate_size=inner,
            dropout=0.0,
            attention_dropout=0.0,
        )
    )
    encoder.tokenizer, encoder.pooling = teacher.encoder.tokenizer, pooling
    return TaskModel(data.task, encoder, data.task.new_head(encoder), *lengths, pairs=teacher.pairs)


def _texts(
    config: DistilConfig, finetuned: FinetuneConfig, teacher: TaskModel, data: TaskData, ranks: World
) -> Examples | AugmentedExamples:
    """All texts to learn from, without labels: the teacher's training table, then the unlabelled files.

    Empty texts are left out. At least one text is left: a training table has two texts or more.
    """
    assert teacher.encoder.tokenizer is not None
    found = data.train.take(_with_text(data.train.table))
    parts, tables = [found.examples], [found.table]
    layout = find_layout(None, finetuned.columns)
    for path in config.unlabelled:
        table = teacher.task.read(path, labelled=False, layout=layout)
        more = teacher.task.encode(
            table.take(_with_text(table)),
            teacher.encoder.tokenizer,
            teacher.max_length,
            teacher.overlap,
            labelled=False,
        )
        warn_of_cut(more.examples.cut, len(more), path, teacher.max_length)
        parts.append(more.examples)
        tables.append(more.table)
    examples = Examples(
        tokens=[ids for part in parts for ids in part.tokens],
        segments=[types for part in parts for types in part.segments],
        targets={},
        max_length=teacher.max_length,
        pad=parts[0].pad,
        overlap=teacher.overlap,
    )
    if not config.augment.copies or config.dry_run:
        return examples
    encoder, tokenizer = finetuned.encoder_folder, teacher.encoder.tokenizer
    return augmented(config.augment, tables, examples, tokenizer, encoder, ranks=ranks)


def _with_text(table: Table) -> np.ndarray:
    """int64: the rows whose text is not empty."""
    return np.array([row for row, text in enumerate(table.texts) if text], dtype=np.int64)


def _read_teacher_config(run: Path) -> FinetuneConfig:
    """The configuration of the teacher's run."""
    if not (run / CONFIG).is_file():
        raise BrimfulError(f"{run} is not a run of `brimful finetune`: it has no {CONFIG}")
    try:
        finetuned = build(FinetuneConfig, read_yaml(run / CONFIG))
    except BrimfulError as error:
        raise BrimfulError(f"{run} is not a run of `brimful finetune` ({error})") from error
    if not (finetuned.encoder and finetuned.train and finetuned.test):
        raise BrimfulError(f"{run} is not a run of `brimful finetune`: {CONFIG} lacks encoder, train or test")
    return finetuned


def _prepare(config: DistilConfig, ranks: World) -> Distillation:
    assert config.teacher is not None
    finetuned = _read_teacher_config(Path(config.teacher))
    teacher = load_task_model(config.teacher)
    data = load_task_data(
        type(teacher.task),
        teacher.encoder,
        *finetuned.tables,
        max_length=teacher.max_length,
        overlap=teacher.overlap,
        split=False,
        layout=find_layout(finetuned.layout, finetuned.columns),
        metric=finetuned.metric,
        ranks=ranks,
    )
    if data.task.labels != teacher.task.labels:
        raise BrimfulError(
            f"the teacher's labels {teacher.task.labels} are not {finetuned.train}'s: {data.task.labels}"
        )
    data.task.imitation(config.temperature)  # so that a wrong setting is refused now
    student = _student(config, finetuned, teacher, data)
    if config.layers.epochs:
        LayerDistillation(
            teacher.encoder, student.encoder, config.layers.losses
        )  # refused now, if it must be
    return Distillation(
        config, finetuned, teacher, student, _texts(config, finetuned, teacher, data, ranks), data
    )


@verb(DistilConfig)
def distil(config: DistilConfig) -> dict[str, Any]:
    """Train a smaller student to imitate a fine-tuned teacher: first its layers, then its outputs.

    Returns:
        the content of summary.json: `teacher.METRIC`, `student.METRIC`, `test.n` ...

    Raises:
        BrimfulError: the teacher is not a finished fine-tuning run; a table or the run directory is unusable;
            or one of them has changed since the run that is resumed began.
        StoppedError: a signal asked the run to stop.
    """
    dry_run = config.dry_run
    with world() as ranks:
        if (summary := finished_run(config, "distil", ranks)) is not None:
            return summary
        config, directory, resuming = open_run(config, "distil", ("teacher", "out"), ranks)
        runtime = Runtime.of(ranks, config.precision, config.trainer)
        distillation = _prepare(config, ranks)
        inputs = check_inputs(directory, _inputs(distillation))
        texts = len(distillation.texts)
        old, new = distillation.teacher.encoder.config, distillation.student.encoder.config
        if ranks.is_main and not resuming:
            say(
                f"distilling {old.layers} layers of width {old.hidden_size} into {new.layers} of width"
                f" {new.hidden_size} on {texts:,} texts"
            )
        if dry_run:
            return {"dry_run": True, "texts": texts, "student_layers": new.layers}
        config = replace(
            config,
            teacher=config.teacher and absolute(config.teacher),
            unlabelled=tuple(map(absolute, config.unlabelled)),
            precision=runtime.precision,
        )
        if ranks.is_main:
            start_run(directory, config, inputs)
        ranks.barrier()
        stages = Stages(directory, config_hash([identity(config), inputs]), ranks)
        return _run(distillation, stages, runtime)


def _inputs(distillation: Distillation) -> dict[str, Path]:
    """The files that decide the result of a run."""
    config, finetuned = distillation.config, distillation.finetuned
    assert config.teacher is not None
    teacher = Path(config.teacher)
    files = {f"unlabelled[{i}]": Path(path) for i, path in enumerate(config.unlabelled)}
    tables = zip(("train", "dev", "test"), finetuned.tables, strict=True)
    files |= {name: Path(path) for name, path in tables if path}
    files |= {f"teacher/{CONFIG}": teacher / CONFIG} | model_files("teacher", find_model(teacher, "model"))
    if config.augment.copies:
        files |= config.augment.files(Path(config.augment.encoder or finetuned.encoder_folder))
    if _starts_pretrained(config, distillation.teacher):
        files |= model_files("encoder", finetuned.encoder_folder)
    return files


def _run(distillation: Distillation, stages: Stages, runtime: Runtime) -> dict[str, Any]:
    """Train both stages, save the student, and return the summary."""
    config, texts = distillation.config, distillation.texts
    teacher, student, data = distillation.teacher, distillation.student, distillation.data
    task, directory, ranks = data.task, stages.run, runtime.world
    trained = {"encoder": student.encoder, "head": student.head}
    seconds = 0.0

    def train(name: str, stage: StageConfig, objective: Objective) -> None:
        nonlocal seconds
        folder = directory / "stages" / name
        steps = max(1, round(stage.epochs * len(texts) / config.batch))

        def trainer() -> Trainer:
            return Trainer(
                student.encoder,
                objective,
                example_stream(texts, config.batch, config.micro_batch_tokens, config.seed, runtime),
                runtime,
                folder,
                config=replace(config.trainer, steps=steps),
                optimizer=replace(config.optimizer, learning_rate=stage.learning_rate),
                schedule=config.schedule,
                seed=config.seed,
                identity=stages.identity,
            )

        result = stages.train(folder, f"distil {name}", trainer, trained)
        result.load(trained)
        seconds += result.seconds

    if config.layers.epochs:
        train(
            "layers", config.layers, LayerDistillation(teacher.encoder, student.encoder, config.layers.losses)
        )
    outputs_objective = LogitDistillation(
        teacher.encoder,
        teacher.head,
        student.head,
        task.imitation(config.temperature),
        task.primary_metric,
        evaluation(task, student.head, data.dev),
    )
    if config.logits.epochs:
        train("logits", config.logits, outputs_objective)

    answers, metrics = student.to(runtime.device).judge(data.test, runtime)
    _, teacher_metrics = teacher.to(runtime.device).judge(data.test, runtime)
    summary = {
        "kind": "distil",
        "task": task.name,
        "primary_metric": task.metrics[0].name,
        "teacher": teacher_metrics | {"parameters": teacher.parameters},
        "student": metrics | {"parameters": student.parameters},
        "test": {"n": metrics["n"]},
        "texts": len(texts),
        **task.facts,
        "precision": runtime.precision,
        "seconds": seconds,
    }
    ranks.barrier()  # every rank has read the kept weights
    if ranks.is_main:
        student.save(directory / "model", token_types=data.train.examples.typed)
        write_rows(directory / "predictions.jsonl", task.compared_rows(answers, data.test))
        finish_stages(directory, summary)
    ranks.barrier()
    return summary
