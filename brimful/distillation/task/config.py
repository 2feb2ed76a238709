"""What `brimful distil` is told: its options, and what they decide together."""

from dataclasses import dataclass

from brimful.distillation.options import LayeredOptions, StageConfig, TaskOptions
from brimful.errors import BrimfulError
from brimful.types import Imitation


@dataclass(frozen=True, kw_only=True)
class LogitStageConfig(StageConfig):
    """The second stage of the distillation."""

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
class LogitOptions(LayeredOptions, TaskOptions):
    """The options of a task's student that has layers."""

    logits: LogitStageConfig = LogitStageConfig(epochs=3.0, learning_rate=3e-4)
    """Second stage: outputs."""


@dataclass(frozen=True, kw_only=True)
class DistilConfig(LogitOptions):
    """Train a smaller student to imitate teachers of a task: models, or files of scores."""

    MAIN = (
        *("teacher", "student", "unlabelled", "out", "student_layers", "student_hidden"),
        *("layers.epochs", "logits.epochs", "logits.learning_rate", "seed", "baseline", "dry_run"),
    )
    EXAMPLE = "--teacher runs/finetune --unlabelled more.txt --out runs/distil"

    baseline: bool = False
    """Train two more students for each seed: from the labels alone, and, where the teacher is a model, the
    teacher's layers that are kept with its head, by the second stage alone."""
