"""The configuration of `brimful distil`, and the options that it shares with `brimful distil-encoder`."""

from dataclasses import dataclass
from typing import Literal

from brimful.base.config import incidental, require_positive, require_seeds
from brimful.base.errors import BrimfulError, require_range
from brimful.hf.model_folder import ModelPath
from brimful.objectives.layer_losses import LayerLosses, LayerNumbers
from brimful.stages.task_options import TaskOptions, TrainingOptions
from brimful.tables.text_files import TablePath


@dataclass(frozen=True, kw_only=True)
class StageConfig:
    """One stage of the distillation."""

    epochs: float
    """Passes over the texts; 0 leaves the stage out."""
    learning_rate: float
    """Peak learning rate."""

    def __post_init__(self) -> None:
        require_range(self, "at least 0", "epochs", "learning_rate")


@dataclass(frozen=True, kw_only=True)
class LayerStageConfig(StageConfig):
    """The stage of the layers."""

    losses: LayerLosses = LayerLosses()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epochs and not self.losses.coefficients:
            raise BrimfulError("all weights of layers.losses are 0: --layers.epochs 0 leaves the stage out")


@dataclass(frozen=True, kw_only=True)
class StudentOptions(TrainingOptions):
    """The options of both verbs."""

    teacher: ModelPath | None = incidental(None)
    student: ModelPath | None = incidental(None)
    """Folder of the model that the student starts from, of any shape and tokenizer. By default it starts from
    layers of the teacher."""
    out: str | None = incidental(None)
    """Run directory to create; the student ends up in RUN/model."""
    max_length: int | None = None
    """The most tokens of a text; by default the teacher's."""
    student_layers: int | None = None
    """Layers of the student, by default 2. It starts from layers spread evenly over the teacher's."""
    keep_layers: LayerNumbers | None = None
    """Start from these layers of the teacher (0-based) instead."""
    student_hidden: int | None = None
    """Width of the student; by default the teacher's. A narrower student keeps the teacher's coordinates and
    neurons with the largest weights, a wider one starts from random weights."""
    initialisation: Literal["teacher", "random"] = "teacher"
    """teacher: layers of the teacher, with its head. random: new weights, as a student wider than its teacher
    has."""
    batch: int = 32
    """Texts in an update."""
    layers: LayerStageConfig

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trainer.keeps_best and not self.trainer.evaluate_every:
            raise BrimfulError("the best of several evaluations is kept: set trainer.evaluate_every too")
        if not self.layers.epochs and self.layers.losses != LayerLosses():
            raise BrimfulError("layers.losses are those of a stage that is left out: give it --layers.epochs")
        require_positive(self, "student_layers", "student_hidden")
        has_shape = self.student_layers or self.keep_layers or self.student_hidden
        if self.student is not None and (has_shape or self.initialisation != type(self).initialisation):
            raise BrimfulError(
                "--student has a shape and weights: leave --student-layers, --keep-layers, --student-hidden"
                " and --initialisation out"
            )
        if self.keep_layers and len(set(self.keep_layers)) < len(self.keep_layers):
            raise BrimfulError(f"keep_layers is {list(self.keep_layers)}: name no layer twice")
        if self.student_layers and self.keep_layers and self.student_layers != len(self.keep_layers):
            raise BrimfulError(
                f"--keep-layers names {len(self.keep_layers)} layers and --student-layers is"
                f" {self.student_layers}: leave one of them out"
            )

    @property
    def depth(self) -> int:
        """The number of layers of a student that has no folder."""
        if self.keep_layers:
            return len(self.keep_layers)
        return self.student_layers or 2


@dataclass(frozen=True, kw_only=True)
class DistilConfig(TaskOptions, StudentOptions):
    """Train a smaller student to imitate a teacher of a task."""

    MAIN = (
        *("teacher", "student", "unlabelled", "out", "student_layers", "student_hidden"),
        *("layers.epochs", "logits.epochs", "logits.learning_rate", "seed", "dry_run"),
    )
    NEEDS = ("teacher",)
    EXAMPLE = "--teacher runs/finetune --unlabelled more.txt --out runs/distil"

    teacher: ModelPath | None = incidental(None)
    """Run of `brimful finetune`, whose tables are used again; or a folder of a task model."""
    unlabelled: tuple[TablePath, ...] = incidental(())
    """More texts to learn from: .txt (one a line), or tables with a text column."""
    train: TablePath | None = incidental(None)
    """Table of texts to learn from; by default the one of the teacher's run."""
    dev: TablePath | None = incidental(None)
    """Table to measure on while training; by default the one of the teacher's run."""
    test: TablePath | None = incidental(None)
    """Table to measure teacher and student on; by default the one of the teacher's run, or the rows of its
    training table that it held out as test."""
    seed: int | tuple[int, ...] = 0
    """Decides random weights and the order of texts. Each seed has a student; metrics are means."""
    temperature: float = 1.0
    """Divides the logits of teacher and student that are compared. Only for tasks with probabilities."""
    layers: LayerStageConfig = LayerStageConfig(epochs=0.0, learning_rate=5e-4)
    """A first stage on the layers, if it has epochs: embeddings, hidden states, attention scores."""
    logits: StageConfig = StageConfig(epochs=3.0, learning_rate=3e-4)
    """The stage of the outputs: the only one, or the second after the stage of the layers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_task()
        require_seeds(*self.seeds)
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise BrimfulError(f"seed is {list(self.seeds)}: give at least one value, and no value twice")
        require_range(self, "above 0", "temperature")

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seed of each student."""
        return self.seed if isinstance(self.seed, tuple) else (self.seed,)
