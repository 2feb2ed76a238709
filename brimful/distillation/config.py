"""What `brimful distil` is told: its options, and what they decide together."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from brimful.config import build, incidental, read_yaml, require_positive, require_seeds
from brimful.errors import BrimfulError
from brimful.finetuning.config import TASK_HELP, TASK_TRAINER, FinetuneConfig
from brimful.model.shape import EncoderConfig
from brimful.objectives.imitation import LayerLosses, spread_layers
from brimful.optim.build import DecayConfig
from brimful.optim.schedule import CurveConfig
from brimful.precision.policy import Precision
from brimful.retired import refuse_retired
from brimful.runs.directory import CONFIG
from brimful.tables.layouts import OWN, Columns
from brimful.tasks.registry import find_task
from brimful.train.config import LoopConfig
from brimful.types import Imitation

STATIC = "static"
"""What `--student` calls a student without layers."""
_OF_LAYERS = (
    *("layers", "logits", "vectors", "batch", "micro_batch_tokens"),
    *("optimizer", "schedule", "trainer"),
)
"""The options of students that are trained as encoders."""

_TEACHERS = tyro.constructors.PrimitiveConstructorSpec(
    nargs="*",
    metavar="RUN|FOLDER ...",
    instance_from_str=lambda texts: tuple(texts) or None,
    is_instance=lambda value: value is None or isinstance(value, str | tuple),
    str_from_instance=lambda value: [value] if isinstance(value, str) else list(value or ("None",)),
)
_SEEDS = tyro.constructors.PrimitiveConstructorSpec(
    nargs="*",
    metavar="INT ...",
    instance_from_str=lambda texts: tuple(map(int, texts)),
    is_instance=lambda value: isinstance(value, int | tuple),
    str_from_instance=lambda value: list(map(str, value if isinstance(value, tuple) else (value,))),
)


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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epochs and not self.losses.coefficients:
            raise BrimfulError("all weights of the first stage are 0: --layers.epochs 0 leaves it out")


@dataclass(frozen=True, kw_only=True)
class LogitStageConfig(StageConfig):
    """The second stage of the distillation, for a task."""

    loss: Imitation = "soft"
    """soft: cross-entropy with the teacher's probabilities; kl: its divergence from them, times the
    temperature squared; mse: squared difference of the logits. Values of a regression and scores of spans
    are always compared by their squares."""
    labels: float = 0.0
    """Weight of the task's own loss on the texts that have labels, beside the teacher's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.labels >= 0:
            raise BrimfulError(f"the weight of labels is {self.labels}: it must not be negative")


@dataclass(frozen=True, kw_only=True)
class VectorStageConfig(StageConfig):
    """The second stage of the distillation, for an encoder without a task."""

    loss: Literal["cosine", "mse"] = "cosine"
    """How the vectors of texts are compared: 1 - cosine, or the mean squared difference."""


@dataclass(frozen=True, kw_only=True)
class DistilConfig:
    """Train a smaller student to imitate teachers: a task's models, files of scores, or an encoder."""

    teacher: Annotated[str | tuple[str, ...] | None, _TEACHERS] = incidental(None)
    """Run of `brimful finetune`, whose tables are used again; or a folder of a task model, or of an encoder,
    which gives its student vectors. The layers of the first are imitated, the outputs of several averaged."""
    teacher_scores: tuple[str, ...] = incidental(())
    """Files of probabilities for the texts, of any model: .jsonl, .tsv, .csv or .parquet with text, text_b
    and scores (an object of labels) or a column for each label, as `brimful predict --scores` writes; or
    .npy, a row for each text. Averaged with each other and the teachers."""
    student: str | None = incidental(None)
    """Folder of the model that the student starts from, of any shape and tokenizer. By default it starts from
    layers of the teacher. static: no layers at all, the token vectors of the teacher's encoder under a linear
    classifier."""
    train: str | None = incidental(None)
    """Table of texts to learn from; by default the one of the teacher's run."""
    dev: str | None = incidental(None)
    """Table to measure on while training; by default the one of the teacher's run."""
    test: str | None = incidental(None)
    """Table to measure teacher and student on; by default the one of the teacher's run."""
    unlabelled: tuple[str, ...] = incidental(())
    """More texts to learn from: .txt (one a line), or tables with a text column."""
    data: tuple[str, ...] = incidental(())
    """Folders made by `brimful prepare` with the teacher's tokenizer, PATH or PATH:WEIGHT, from which the
    student of an encoder learns the layers, in place of the texts."""
    task: Annotated[str | None, TASK_HELP] = None
    columns: Columns = OWN
    """Other names of the columns, where tables are given."""
    layout: str | None = None
    """How given tables are laid out, as for finetune."""
    recipe: Literal["task"] | None = None
    """task: fine-tune a teacher if there is none, distil in general, then for the task, each a run in --out,
    and compare with the baselines."""
    encoder: str | None = incidental(None)
    """With a recipe, the encoder to fine-tune the teacher from; by default the one that --teacher is from."""
    out: str | None = incidental(None)
    """Run directory to create; the student ends up in RUN/model, one without a task in RUN/encoder."""
    resume: str | None = incidental(None)
    """Run directory of an interrupted run: continue it with its own configuration."""
    student_layers: int | None = None
    """Layers of the student, by default 2. Those that it starts from are spread evenly over the teacher's."""
    keep_layers: tuple[int, ...] | None = None
    """Start from these layers of the teacher (0-based) instead."""
    student_hidden: int | None = None
    """Width of the student; by default the teacher's. A narrower student keeps the teacher's coordinates and
    neurons with the largest weights, a wider one starts from random weights."""
    initialisation: Literal["pretrained", "teacher", "random"] = "pretrained"
    """pretrained: layers of the encoder that the teacher was fine-tuned from, where it is known. teacher:
    layers of the teacher itself, with its head. random: new weights."""
    max_length: int | None = None
    """The most tokens of an example; by default as the teacher's. Without a model as teacher, 128."""
    seed: Annotated[int | tuple[int, ...], _SEEDS] = 0
    """Decides random weights and the order of texts. Several train a student each; metrics are means."""
    baseline: bool = False
    """Train two more students for each seed: from the labels alone, and, where the teacher is a model, the
    teacher's layers that are kept with its head, by the second stage alone."""
    batch: int = 32
    """Texts in an update."""
    temperature: float = 1.0
    """Divides the logits of both models in the second stage. Only for tasks with probabilities."""
    micro_batch_tokens: int = 4096
    """The most tokens of one forward and backward pass."""
    layers: LayerStageConfig = LayerStageConfig(epochs=3.0, learning_rate=5e-4)
    """First stage: embeddings, hidden states, attention scores."""
    logits: LogitStageConfig = LogitStageConfig(epochs=3.0, learning_rate=3e-4)
    """Second stage of a task: outputs."""
    vectors: VectorStageConfig = VectorStageConfig(epochs=3.0, learning_rate=3e-4)
    """Second stage of an encoder without a task: pooled vectors."""
    precision: Precision = "auto"
    """Number format of the computation. auto: bf16 where the device is fast at it; else, on V100 and T4, fp16
    with loss scaling; else fp32."""
    optimizer: DecayConfig = DecayConfig()
    """AdamW, with the rate of each stage."""
    schedule: CurveConfig = CurveConfig()
    trainer: LoopConfig = TASK_TRAINER
    """The number of updates follows from epochs."""
    dry_run: bool = incidental(False)
    """Resolve and check everything, and do nothing."""

    def __post_init__(self) -> None:
        for teacher in self.teachers:
            refuse_retired("teacher", teacher)
        if self.task is not None:
            find_task(self.task)
        require_seeds(*self.seeds)
        if len(set(self.seeds)) < max(1, len(self.seeds)):
            raise BrimfulError(f"seed is {list(self.seeds)}: give at least one value, and no value twice")
        require_positive(self, "batch", "micro_batch_tokens")
        if self.student_layers is not None:
            require_positive(self, "student_layers")
        if not self.temperature > 0:
            raise BrimfulError(f"temperature is {self.temperature}: it must be above 0")
        if self.student_hidden is not None:
            require_positive(self, "student_hidden")
        shape = self.student_layers or self.keep_layers or self.student_hidden
        if self.student is not None and (shape or self.initialisation != "pretrained"):
            raise BrimfulError(
                "--student has a shape and weights: leave --student-layers, --keep-layers, --student-hidden"
                " and --initialisation out"
            )
        defaults = {one.name: one.default for one in fields(self)}
        unused = [name for name in _OF_LAYERS if getattr(self, name) != defaults[name]]
        if self.student == STATIC and unused:
            raise BrimfulError(
                f"--student {STATIC} has a training of its own: leave --{unused[0].replace('_', '-')} out"
            )
        if self.keep_layers and len(set(self.keep_layers)) < len(self.keep_layers):
            raise BrimfulError(f"keep_layers is {list(self.keep_layers)}: name no layer twice")
        if self.student_layers and self.keep_layers and self.student_layers != len(self.keep_layers):
            raise BrimfulError(
                f"--keep-layers names {len(self.keep_layers)} layers and --student-layers is"
                f" {self.student_layers}: leave one of them out"
            )

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seed of each student."""
        return self.seed if isinstance(self.seed, tuple) else (self.seed,)

    @property
    def depth(self) -> int:
        """The layers of a student without a folder."""
        return len(self.keep_layers) if self.keep_layers else self.student_layers or 2

    @property
    def teachers(self) -> tuple[str, ...]:
        """The teachers that are models."""
        return (self.teacher,) if isinstance(self.teacher, str) else self.teacher or ()

    @property
    def single(self) -> bool:
        """Whether there is one teacher alone, which is not averaged."""
        return len(self.teachers) + len(self.teacher_scores) == 1


def kept_layers(config: DistilConfig, shape: EncoderConfig) -> tuple[int, ...] | None:
    """The layers of the teacher that the student starts from, as wide as they are or narrower; None where it
    starts from random weights.

    Raises:
        BrimfulError: the teacher has no such layers, or not as many.
    """
    kept = config.keep_layers
    if kept is not None and not (kept and all(0 <= layer < shape.layers for layer in kept)):
        raise BrimfulError(f"keep_layers is {list(kept)}: the teacher has layers 0 to {shape.layers - 1}")
    if config.initialisation == "random" or (config.student_hidden or 0) > shape.hidden_size:
        if kept is not None:
            raise BrimfulError(
                "a student that is wider than its teacher, or has --initialisation random, starts from no"
                " layers: give --student-layers in place of --keep-layers"
            )
        return None
    if config.depth > shape.layers:
        raise BrimfulError(f"student_layers is {config.depth}: the teacher has {shape.layers} layers")
    return kept or spread_layers(shape.layers, config.depth)


def student_shape(config: DistilConfig, shape: EncoderConfig) -> EncoderConfig:
    """The shape of a student: the teacher's, with its own depth and width."""
    width = config.student_hidden or shape.hidden_size
    inner = -(-shape.intermediate_size * width // shape.hidden_size // 64) * 64
    if width < shape.hidden_size:
        inner = min(inner, shape.intermediate_size)  # its neurons are the teacher's
    return replace(
        shape,
        layers=config.depth,
        hidden_size=width,
        intermediate_size=inner,
        dropout=0.0,
        attention_dropout=0.0,
    )


def finetuning_of(run: Path) -> FinetuneConfig | None:
    """The configuration of a run of `brimful finetune`; None for a folder that is no run of it."""
    if not (run / CONFIG).is_file():
        return None
    try:
        finetuned = build(FinetuneConfig, read_yaml(run / CONFIG), finished=True)
    except BrimfulError:
        return None
    if not (finetuned.encoder and finetuned.train and finetuned.test):
        return None
    return finetuned
