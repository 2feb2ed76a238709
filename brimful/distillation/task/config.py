"""What `brimful distil` is told: its options, and what they decide together."""

from dataclasses import dataclass
from typing import Literal

from brimful.base.errors import BrimfulError
from brimful.base.types import Imitation
from brimful.distillation.options import LayeredOptions, LayerStageConfig, StageConfig, TaskOptions


@dataclass(frozen=True, kw_only=True)
class LogitStageConfig(StageConfig):
    """The stage of the outputs."""

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
    """The stage of the outputs: the only one, or the second after that of the layers."""


@dataclass(frozen=True, kw_only=True)
class DistilConfig(LogitOptions):
    """Train a smaller student to imitate teachers of a task: models, or files of scores."""

    MAIN = (
        *("teacher", "student", "unlabelled", "out", "student_layers", "student_hidden"),
        *("layers.epochs", "logits.epochs", "logits.learning_rate", "seed", "baseline", "dry_run"),
    )
    NEEDS = ("teacher or teacher_scores",)
    EXAMPLE = "--teacher runs/finetune --unlabelled more.txt --out runs/distil"

    initialisation: Literal["pretrained", "teacher", "random"] = "teacher"
    """teacher: layers of the teacher itself, with its head. pretrained: layers of the encoder that it was
    fine-tuned from, where that is known. random: new weights, as a student wider than its teacher has."""
    layers: LayerStageConfig = LayerStageConfig(epochs=0.0, learning_rate=5e-4)
    """A stage before that of the outputs, if it has epochs: embeddings, hidden states, attention scores."""
    baseline: Literal["quick", "full", "none"] = "quick"
    """quick: for each seed, the same start learns from the labels alone too, where that is estimated to take
    under a third of the distillation's time; and TF-IDF under a linear model. full: the same whatever it
    takes, and the teacher's layers with its head, by outputs alone, where the student is another."""
