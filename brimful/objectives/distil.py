"""Distillation as TinyBERT does it (Jiao et al., 2020), on packed rows, and the verb `brimful distil`.

Two stages. First the student imitates the teacher's insides: embeddings, hidden states and raw attention
scores of every g-th layer. Then it imitates the teacher's answers, by soft cross-entropy. Both need texts
and no labels, so unlabelled text of the task's kind is as good as the labelled.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from brimful.config import build, read_yaml, verb
from brimful.console import say
from brimful.data.examples import Examples, ExampleStream
from brimful.distributed import World, world
from brimful.errors import BrimfulError
from brimful.nn.encoder import Encoder
from brimful.nn.heads import SequenceHead
from brimful.nn.interop import load_model, save_model
from brimful.objectives.classification import judge, load_task, write_predictions
from brimful.objectives.finetune import FinetuneConfig, starting_model
from brimful.objectives.imitation import LayerDistillation, LogitDistillation
from brimful.optim.build import OptimizerConfig
from brimful.optim.schedule import ScheduleConfig
from brimful.precision.policy import Precision, resolve
from brimful.tasks.table import encode, read_texts
from brimful.train.objective import Objective, Runtime
from brimful.train.run import CONFIG, check_new_run, find_model, finish_run, start_run
from brimful.train.trainer import Trainer, TrainerConfig


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
        for name in ("batch", "micro_batch_tokens"):
            if getattr(self, name) < 1:
                raise BrimfulError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if not self.temperature > 0:
            raise BrimfulError(f"temperature is {self.temperature}: it must be above 0")


def spread_layers(layers: int, kept: int) -> list[int]:
    """Which of `layers` a student of `kept` layers starts from: every g-th, the last one included."""
    every = layers // kept
    return [every * (index + 1) - 1 for index in range(kept)]


def _student(
    config: DistilConfig, finetuned: FinetuneConfig, teacher: Encoder, classes: int
) -> tuple[Encoder, SequenceHead]:
    """The student before it has learned anything: as `brimful finetune --layers` would start it."""
    shape = teacher.config
    width = config.student_hidden or shape.hidden_size
    if config.student_layers < 1 or shape.layers % config.student_layers:
        raise BrimfulError(
            f"student_layers is {config.student_layers}: it must divide the teacher's {shape.layers} layers"
        )
    if config.initialisation == "pretrained" and width == shape.hidden_size:
        layers = tuple(spread_layers(shape.layers, config.student_layers))
        start = replace(finetuned, initialisation="pretrained", layers=layers, dropout=0.0)
        return starting_model(start, config.seed, classes)
    torch.manual_seed(config.seed)
    inner = -(-shape.intermediate_size * width // shape.hidden_size // 64) * 64
    student = Encoder(
        replace(shape, layers=config.student_layers, hidden_size=width, intermediate_size=inner, dropout=0.0)
    )
    student.tokenizer = teacher.tokenizer
    return student, SequenceHead(student, classes)


def transfer_texts(config: DistilConfig, finetuned: FinetuneConfig, teacher: Encoder) -> Examples:
    """All texts to learn from, without labels: the teacher's training table, then the unlabelled files."""
    assert teacher.tokenizer is not None
    tables = [read_texts(path) for path in (finetuned.train, *config.unlabelled)]
    parts = [
        encode(
            table.take([i for i, text in enumerate(table.texts) if text]),
            teacher.tokenizer,
            finetuned.max_length,
        )
        for table in tables
    ]
    return Examples(
        tokens=[ids for part in parts for ids in part.tokens],
        segments=[types for part in parts for types in part.segments],
        targets={},
        max_length=finetuned.max_length,
        pad=parts[0].pad,
    )


@verb(DistilConfig)
def distil(config: DistilConfig) -> dict[str, Any]:
    """Teach a smaller student what a fine-tuned teacher does: its layers first, then its answers.

    Returns:
        what summary.json holds: `teacher.accuracy`, `student.accuracy`, `test.n` ...

    Raises:
        BrimfulError: the teacher is no finished fine-tuning run, a table or the run directory is unusable.
    """
    directory = Path(config.out)
    check_new_run(directory)
    if not (Path(config.teacher) / CONFIG).is_file():
        raise BrimfulError(f"{config.teacher} is not a run of `brimful finetune`: it has no {CONFIG}")
    try:
        finetuned = build(FinetuneConfig, read_yaml(Path(config.teacher) / CONFIG))
    except BrimfulError as error:
        raise BrimfulError(f"{config.teacher} is not a run of `brimful finetune` ({error})") from error
    teacher, teacher_head, labels = load_model(find_model(Path(config.teacher), "model"))
    if not isinstance(teacher_head, SequenceHead) or labels is None:
        raise BrimfulError(f"{config.teacher} holds no classifier to distil")
    student, head = _student(config, finetuned, teacher, len(labels))
    texts = transfer_texts(config, finetuned, teacher)
    say(
        f"distilling {teacher.config.layers} layers of width {teacher.config.hidden_size} into"
        f" {student.config.layers} of width {student.config.hidden_size} on {len(texts):,} texts"
    )
    if config.dry_run:
        return {"dry_run": True, "texts": len(texts), "student_layers": student.config.layers}
    with world() as ranks:
        return _distil(
            config, finetuned, teacher, teacher_head, labels, student, head, texts, directory, ranks
        )


def _distil(
    config: DistilConfig,
    finetuned: FinetuneConfig,
    teacher: Encoder,
    teacher_head: SequenceHead,
    labels: list[str],
    student: Encoder,
    head: SequenceHead,
    texts: Examples,
    directory: Path,
    ranks: World,
) -> dict[str, Any]:
    started = time.perf_counter()
    runtime = Runtime(ranks, resolve(config.precision, ranks.device))
    task = load_task(
        teacher, finetuned.train, finetuned.dev, finetuned.test, max_length=finetuned.max_length, split=False
    )
    if task.labels != labels:
        raise BrimfulError(f"the teacher's labels {labels} are not those of {finetuned.train}: {task.labels}")
    if ranks.is_main:
        start_run(directory, config)
    ranks.barrier()

    def train(name: str, stage: StageConfig, objective: Objective) -> dict[str, float]:
        stream = ExampleStream(
            texts,
            sequences=config.batch,
            tokens=config.micro_batch_tokens,
            seed=config.seed,
            fixed_shapes=ranks.device.type == "cuda",
            rank=ranks.rank,
            world=ranks.size,
        )
        trainer = Trainer(
            student,
            objective,
            stream,
            runtime,
            directory / "stages" / name,
            config=TrainerConfig(steps=max(1, round(stage.epochs * len(texts) / config.batch))),
            optimizer=replace(config.optimizer, learning_rate=stage.learning_rate),
            schedule=config.schedule,
            seed=config.seed,
        )
        return trainer.run(f"distil {name}")

    if config.layers.epochs:
        train("layers", config.layers, LayerDistillation(teacher, student))
    objective = LogitDistillation(teacher, teacher_head, head, config.temperature, task.dev)
    train("logits", config.logits, objective)

    logits, figures = judge(student, head, task.test, runtime)
    _, teacher_figures = judge(teacher, teacher_head, task.test, runtime)

    def size(*modules: nn.Module) -> int:
        return sum(p.numel() for module in modules for p in module.parameters())

    summary = {
        "kind": "distil",
        "teacher": teacher_figures | {"parameters": size(teacher, teacher_head)},
        "student": figures | {"parameters": size(student, head)},
        "test": {"n": figures["n"]},
        "texts": len(texts),
        "labels": labels,
        "precision": runtime.precision,
        "seconds": time.perf_counter() - started,
    }
    if ranks.is_main:
        save_model(directory / "model", student, head, labels)
        write_predictions(directory / "predictions.jsonl", logits, task)
        finish_run(directory, summary)
    ranks.barrier()
    return summary
