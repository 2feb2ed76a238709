"""Distillation as TinyBERT does it (Jiao et al., 2020), on packed rows, and the verb `brimful distil`.

Two stages. First the student imitates the teacher's insides: embeddings, hidden states and raw attention
scores of every g-th layer. Then it imitates the teacher's answers, by soft cross-entropy. Both need texts
and no labels, so unlabelled text of the task's kind is as good as the labelled.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from brimful.config import build, read_yaml, require_positive, require_seeds, verb
from brimful.console import say
from brimful.data.examples import Examples
from brimful.distributed import world
from brimful.errors import BrimfulError
from brimful.nn.encoder import Encoder
from brimful.nn.heads import SequenceHead
from brimful.nn.interop import save_model
from brimful.objectives.classification import (
    Classifier,
    Task,
    example_stream,
    judge,
    load_classifier,
    load_task,
    write_predictions,
)
from brimful.objectives.finetune import FinetuneConfig, starting_model
from brimful.objectives.imitation import LayerDistillation, LogitDistillation
from brimful.optim.build import OptimizerConfig
from brimful.optim.schedule import ScheduleConfig
from brimful.precision.policy import Precision, resolve
from brimful.tasks.table import encode, read_texts
from brimful.train.config import TrainerConfig
from brimful.train.objective import Objective, Runtime
from brimful.train.run import CONFIG, absolute, check_new_run, finish_run, start_run
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
class DistilConfig:
    """Teach a smaller student what a fine-tuned teacher does."""

    teacher: str
    """Run directory of `brimful finetune`; its tables are used again."""
    out: str
    """Run directory to create; the student ends up in RUN/model."""
    student_layers: int = 2
    """Layers of the student; they divide the teacher's."""
    student_hidden: int | None = None
    """Width of the student; by default the teacher's. A narrower student starts from random weights."""
    initialisation: Literal["pretrained", "random"] = "pretrained"
    """pretrained: layers of the encoder that the teacher was fine-tuned from."""
    unlabelled: tuple[str, ...] = ()
    """More texts to learn from: .txt (one a line), or tables with a text column."""
    seed: int = 0
    """Decides random weights and the order of texts."""
    batch: int = 32
    """Texts in an update."""
    temperature: float = 1.0
    """Softens both distributions in the second stage."""
    micro_batch_tokens: int = 4096
    """The most tokens that one forward and backward pass takes."""
    layers: StageConfig = StageConfig(epochs=3.0, learning_rate=5e-4)
    """First stage: embeddings, hidden states, attention scores."""
    logits: StageConfig = StageConfig(epochs=3.0, learning_rate=3e-4)
    """Second stage: answers."""
    precision: Precision = "auto"
    """Number format of the computation; auto is the fastest that needs no loss scaling."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """learning_rate is set by each stage."""
    schedule: ScheduleConfig = ScheduleConfig()
    dry_run: bool = False
    """Resolve and check everything, and do nothing."""

    def __post_init__(self) -> None:
        require_seeds(self.seed)
        require_positive(self, "batch", "micro_batch_tokens")
        if not self.temperature > 0:
            raise BrimfulError(f"temperature is {self.temperature}: it must be above 0")


def spread_layers(layers: Sequence[int], kept: int) -> tuple[int, ...]:
    """Which of a teacher's `layers` a student of `kept` layers starts from: every g-th, the last included."""
    every = len(layers) // kept
    return tuple(layers[every * (index + 1) - 1] for index in range(kept))


@dataclass(frozen=True)
class Lesson:
    """Who teaches whom, on what.

    Attributes:
        finetuned: the configuration of the teacher's run, whose tables are used again.
        texts: what the student learns from, without labels.
        task: what it is judged on.
    """

    finetuned: FinetuneConfig
    teacher: Classifier
    student: Classifier
    texts: Examples
    task: Task


def _student(config: DistilConfig, finetuned: FinetuneConfig, teacher: Classifier) -> Classifier:
    """The student before it has learned anything: as `brimful finetune --layers` would start it."""
    shape, labels = teacher.encoder.config, teacher.labels
    width = config.student_hidden or shape.hidden_size
    if config.student_layers < 1 or shape.layers % config.student_layers:
        raise BrimfulError(
            f"student_layers is {config.student_layers}: it must divide the teacher's {shape.layers} layers"
        )
    if config.initialisation == "pretrained" and width == shape.hidden_size:
        layers = spread_layers(finetuned.layers or range(shape.layers), config.student_layers)
        start = replace(
            finetuned, initialisation="pretrained", layers=layers, dropout=0.0, attention_dropout=0.0
        )
        return Classifier(*starting_model(start, config.seed, len(labels)), labels, teacher.max_length)
    torch.manual_seed(config.seed)
    inner = -(-shape.intermediate_size * width // shape.hidden_size // 64) * 64
    encoder = Encoder(
        replace(
            shape,
            layers=config.student_layers,
            hidden_size=width,
            intermediate_size=inner,
            dropout=0.0,
            attention_dropout=0.0,
        )
    )
    encoder.tokenizer = teacher.encoder.tokenizer
    return Classifier(encoder, SequenceHead(encoder, len(labels)), labels, teacher.max_length)


def _transfer_texts(config: DistilConfig, finetuned: FinetuneConfig, teacher: Classifier) -> Examples:
    """All texts to learn from, without labels: the teacher's training table, then the unlabelled files.

    Empty texts are left out; the training table has others, since two classes need two texts.
    """
    assert teacher.encoder.tokenizer is not None
    parts = []
    for path in (finetuned.train, *config.unlabelled):
        table = read_texts(path)
        table = table.take([row for row, text in enumerate(table.texts) if text])
        parts.append(encode(table, teacher.encoder.tokenizer, teacher.max_length))
    return Examples(
        tokens=[ids for part in parts for ids in part.tokens],
        segments=[types for part in parts for types in part.segments],
        targets={},
        max_length=teacher.max_length,
        pad=parts[0].pad,
    )


def _prepare_lesson(config: DistilConfig) -> Lesson:
    run = Path(config.teacher)
    if not (run / CONFIG).is_file():
        raise BrimfulError(f"{run} is not a run of `brimful finetune`: it has no {CONFIG}")
    try:
        finetuned = build(FinetuneConfig, read_yaml(run / CONFIG))
    except BrimfulError as error:
        raise BrimfulError(f"{run} is not a run of `brimful finetune` ({error})") from error
    teacher = load_classifier(run)
    tables = (finetuned.train, finetuned.dev, finetuned.test)
    task = load_task(teacher.encoder, *tables, max_length=teacher.max_length, split=False)
    if task.labels != teacher.labels:
        raise BrimfulError(
            f"the teacher's labels {teacher.labels} are not {finetuned.train}'s: {task.labels}"
        )
    student = _student(config, finetuned, teacher)
    return Lesson(finetuned, teacher, student, _transfer_texts(config, finetuned, teacher), task)


@verb(DistilConfig)
def distil(config: DistilConfig) -> dict[str, Any]:
    """Teach a smaller student what a fine-tuned teacher does: its layers first, then its answers.

    Returns:
        what summary.json holds: `teacher.accuracy`, `student.accuracy`, `test.n` ...

    Raises:
        BrimfulError: the teacher is no finished fine-tuning run, a table or the run directory is unusable.
    """
    directory = Path(config.out)
    with world() as ranks:
        if ranks.is_main:
            check_new_run(directory)
        runtime = Runtime(ranks, resolve(config.precision, ranks.device))
        lesson = _prepare_lesson(config)
        old, new = lesson.teacher.encoder.config, lesson.student.encoder.config
        say(
            f"distilling {old.layers} layers of width {old.hidden_size} into {new.layers} of width"
            f" {new.hidden_size} on {len(lesson.texts):,} texts"
        )
        if config.dry_run:
            return {"dry_run": True, "texts": len(lesson.texts), "student_layers": new.layers}
        return _distil(config, lesson, directory, runtime)


def _distil(config: DistilConfig, lesson: Lesson, directory: Path, runtime: Runtime) -> dict[str, Any]:
    started = time.perf_counter()
    ranks = runtime.world
    teacher, student, task = lesson.teacher, lesson.student, lesson.task
    if ranks.is_main:
        resolved = replace(
            config,
            teacher=absolute(config.teacher),
            unlabelled=tuple(map(absolute, config.unlabelled)),
            precision=runtime.precision,
        )
        start_run(directory, resolved)
    ranks.barrier()

    def train(name: str, stage: StageConfig, objective: Objective) -> None:
        trainer = Trainer(
            student.encoder,
            objective,
            example_stream(lesson.texts, config.batch, config.micro_batch_tokens, config.seed, runtime),
            runtime,
            directory / "stages" / name,
            config=TrainerConfig(steps=max(1, round(stage.epochs * len(lesson.texts) / config.batch))),
            optimizer=replace(config.optimizer, learning_rate=stage.learning_rate),
            schedule=config.schedule,
            seed=config.seed,
        )
        trainer.run(f"distil {name}")

    if config.layers.epochs:
        train("layers", config.layers, LayerDistillation(teacher.encoder, student.encoder))
    answers = LogitDistillation(teacher.encoder, teacher.head, student.head, config.temperature, task.dev)
    if config.logits.epochs:
        train("logits", config.logits, answers)

    logits, figures = judge(student.encoder, student.head, task.test, runtime)
    _, teacher_figures = judge(teacher.encoder, teacher.head, task.test, runtime)
    summary = {
        "kind": "distil",
        "teacher": teacher_figures | {"parameters": teacher.parameters},
        "student": figures | {"parameters": student.parameters},
        "test": {"n": figures["n"]},
        "texts": len(lesson.texts),
        "labels": student.labels,
        "precision": runtime.precision,
        "seconds": time.perf_counter() - started,
    }
    if ranks.is_main:
        save_model(
            directory / "model", student.encoder, student.head, student.labels, max_length=student.max_length
        )
        write_predictions(directory / "predictions.jsonl", logits, task)
        finish_run(directory, summary)
    ranks.barrier()
    return summary
