"""The options of `brimful distil`."""

from dataclasses import dataclass
from typing import Literal

from brimful.commands.finetune_config import TASK_TRAINER
from brimful.config import incidental, require_positive, require_seeds
from brimful.errors import BrimfulError
from brimful.optim.build import OptimizerConfig
from brimful.optim.schedule import ScheduleConfig
from brimful.precision.policy import Precision
from brimful.train.config import TrainerConfig, check_trainer


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

    teacher: str | None = incidental(None)
    """Run directory of `brimful finetune`; its tables are used again."""
    out: str | None = incidental(None)
    """Run directory to create; the student ends up in RUN/model."""
    resume: str | None = incidental(None)
    """Run directory of an interrupted run: go on with its own configuration."""
    student_layers: int = 2
    """Layers of the student; they divide the teacher's."""
    student_hidden: int | None = None
    """Width of the student; by default the teacher's. A narrower student starts from random weights."""
    initialisation: Literal["pretrained", "random"] = "pretrained"
    """pretrained: layers of the encoder that the teacher was fine-tuned from."""
    unlabelled: tuple[str, ...] = incidental(())
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
        require_positive(self, "batch", "micro_batch_tokens")
        check_trainer(self.trainer)
        if not self.temperature > 0:
            raise BrimfulError(f"temperature is {self.temperature}: it must be above 0")
