"""Distillation as TinyBERT does it (Jiao et al., 2020), on packed rows, and the verb `brimful distil`.

Two stages. First the student imitates the teacher's insides: embeddings, hidden states and raw attention
scores of every g-th layer. Then it imitates the teacher's answers, by soft cross-entropy. Both need texts
and no labels, so unlabelled text of the task's kind is as good as the labelled.

What is different from the published code: means are over real tokens, real pairs of tokens and texts, where
theirs divide by padded sizes as well; the teacher is in evaluation mode, where theirs keeps its dropout on.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from brimful.config import build, read_yaml, verb
from brimful.console import say
from brimful.data.batch import PackedBatch
from brimful.data.examples import Examples, ExampleStream
from brimful.distributed import World, world
from brimful.errors import BrimfulError
from brimful.nn.encoder import Capture, Encoder
from brimful.nn.heads import SequenceHead
from brimful.nn.interop import load_model, save_model
from brimful.objectives.classification import judge, load_task, write_predictions
from brimful.objectives.finetune import FinetuneConfig
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


def attention_score_sum(student: tuple[Tensor, Tensor], teacher: tuple[Tensor, Tensor], batch: PackedBatch) -> Tensor:
    """Sum of squared differences of raw attention scores QK^T / sqrt(head_dim), float32 ().

    Over all heads and all pairs of tokens of each real sequence (Jiao et al., 2020, equation 7). Queries and
    keys are (T, heads, head_dim); the two head sizes may differ.
    """
    total = student[0].new_zeros((), dtype=torch.float32)
    start = 0
    for length in batch.lengths[: batch.real_sequences]:
        part = slice(start, start + length)
        scores = []
        for q, k in (student, teacher):
            q_i, k_i = q[part].transpose(0, 1), k[part].permute(1, 2, 0)
            scores.append((q_i @ k_i).float() * q.shape[-1] ** -0.5)
        total = total + (scores[0] - scores[1]).square().sum()
        start += length
    return total


class LayerDistillation:
    """The first stage's objective: terms `embedding`, `hidden` and `attention`, each a mean square.

    Args:
        projection: student width -> teacher width, shared by all layers (the paper's W_h and W_e); absent
            where the widths are equal.
    """

    coefficients = {"embedding": 1.0, "hidden": 1.0, "attention": 1.0}

    def __init__(self, teacher: Encoder, student: Encoder) -> None:
        self.teacher = teacher
        self.every = teacher.config.layers // student.config.layers
        self.heads = teacher.config.heads
        widths = (student.config.hidden_size, teacher.config.hidden_size)
        self.projection = nn.Linear(*widths) if widths[0] != widths[1] else nn.Identity()

    def modules(self) -> dict[str, nn.Module]:
        return {"projection": self.projection}

    def frozen(self) -> dict[str, nn.Module]:
        return {"teacher": self.teacher}

    def weights(self, batch: PackedBatch) -> dict[str, float]:
        width, mapped = self.teacher.config.hidden_size, self.teacher.config.layers // self.every
        pairs = sum(length * length for length in batch.lengths[: batch.real_sequences])
        return {
            "embedding": batch.real_tokens * width,
            "hidden": batch.real_tokens * width * mapped,
            "attention": pairs * self.heads * mapped,
        }

    def loss(self, encoder: Encoder, batch: PackedBatch) -> dict[str, Tensor]:
        layout = encoder.prepare(batch)
        ours, theirs = Capture(), Capture()
        encoder(batch, layout, ours)
        with torch.no_grad():
            self.teacher(batch, layout, theirs)
        real = slice(0, batch.real_tokens)

        def hidden_sum(layer: int) -> Tensor:
            projected = self.projection(ours.hidden[layer][real]).float()
            return (projected - theirs.hidden[layer * self.every][real].float()).square().sum()

        attention = [
            attention_score_sum(
                (ours.queries[layer], ours.keys[layer]),
                (theirs.queries[(layer + 1) * self.every - 1], theirs.keys[(layer + 1) * self.every - 1]),
                batch,
            )
            for layer in range(len(ours.queries))
        ]
        return {
            "embedding": hidden_sum(0),
            "hidden": torch.stack([hidden_sum(layer) for layer in range(1, len(ours.hidden))]).sum(),
            "attention": torch.stack(attention).sum(),
        }

    def evaluate(self, encoder: Encoder, runtime: Runtime) -> dict[str, float]:
        return {}


class LogitDistillation:
    """The second stage's objective: `logits`, the soft cross-entropy with the teacher's answers."""

    coefficients = {"logits": 1.0}

    def __init__(
        self,
        teacher: Encoder,
        teacher_head: SequenceHead,
        head: SequenceHead,
        temperature: float,
        held_out: Examples | None,
    ) -> None:
        self.teacher = teacher
        self.teacher_head = teacher_head
        self.head = head
        self.temperature = temperature
        self.held_out = held_out

    def modules(self) -> dict[str, nn.Module]:
        return {"head": self.head}

    def frozen(self) -> dict[str, nn.Module]:
        return {"teacher": self.teacher, "teacher_head": self.teacher_head}

    def weights(self, batch: PackedBatch) -> dict[str, float]:
        return {"logits": float(batch.real_sequences)}

    def loss(self, encoder: Encoder, batch: PackedBatch) -> dict[str, Tensor]:
        layout, real = encoder.prepare(batch), slice(0, batch.real_sequences)
        with torch.no_grad():
            theirs = self.teacher_head(self.teacher(batch, layout), batch)[real].float()
        ours = self.head(encoder(batch, layout), batch)[real].float()
        target = torch.softmax(theirs / self.temperature, -1)
        return {"logits": F.cross_entropy(ours / self.temperature, target, reduction="sum")}

    def evaluate(self, encoder: Encoder, runtime: Runtime) -> dict[str, float]:
        """Accuracy, F1 and mean loss of the student on the held-out examples."""
        return {} if self.held_out is None else judge(encoder, self.head, self.held_out, runtime)[1]


def spread_layers(layers: int, kept: int) -> list[int]:
    """Which of `layers` a student of `kept` layers starts from: every g-th, the last one included."""
    every = layers // kept
    return [every * (index + 1) - 1 for index in range(kept)]


def _student(config: DistilConfig, teacher: Encoder, origin: str) -> Encoder:
    """The student before it has learned anything."""
    shape = teacher.config
    width = config.student_hidden or shape.hidden_size
    if shape.layers % config.student_layers:
        raise BrimfulError(
            f"student_layers is {config.student_layers}: it must divide the teacher's {shape.layers} layers"
        )
    torch.manual_seed(config.seed)
    if config.initialisation == "pretrained" and width == shape.hidden_size:
        encoder = Encoder.load(find_model(Path(origin), "encoder"))
        return encoder.keep_layers(spread_layers(encoder.config.layers, config.student_layers))
    inner = -(-shape.intermediate_size * width // shape.hidden_size // 64) * 64
    student = Encoder(
        replace(shape, layers=config.student_layers, hidden_size=width, intermediate_size=inner, dropout=0.0)
    )
    student.tokenizer = teacher.tokenizer
    return student


def transfer_texts(config: DistilConfig, finetuned: FinetuneConfig, teacher: Encoder) -> Examples:
    """All texts to learn from, without labels: the teacher's training table, then the unlabelled files."""
    assert teacher.tokenizer is not None
    parts = [
        encode(read_texts(path), teacher.tokenizer, finetuned.max_length)
        for path in (finetuned.train, *config.unlabelled)
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
    finetuned = build(FinetuneConfig, read_yaml(Path(config.teacher) / CONFIG))
    teacher, teacher_head, labels = load_model(find_model(Path(config.teacher), "model"))
    if not isinstance(teacher_head, SequenceHead) or labels is None:
        raise BrimfulError(f"{config.teacher} holds no classifier to distil")
    student = _student(config, teacher, finetuned.encoder)
    texts = transfer_texts(config, finetuned, teacher)
    say(
        f"distilling {teacher.config.layers} layers of width {teacher.config.hidden_size} into"
        f" {student.config.layers} of width {student.config.hidden_size} on {len(texts):,} texts"
    )
    if config.dry_run:
        return {"dry_run": True, "texts": len(texts), "student_layers": student.config.layers}
    with world() as ranks:
        return _distil(config, finetuned, teacher, teacher_head, labels, student, texts, directory, ranks)


def _distil(
    config: DistilConfig,
    finetuned: FinetuneConfig,
    teacher: Encoder,
    teacher_head: SequenceHead,
    labels: list[str],
    student: Encoder,
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
    head = SequenceHead(student, len(labels), pooling=teacher_head.pooling)
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
