"""What `brimful distil-static` is told: its options, and what they decide together."""

from dataclasses import dataclass
from typing import Literal

from brimful.base.config import require_positive
from brimful.base.errors import BrimfulError
from brimful.distillation.options import TaskOptions


@dataclass(frozen=True, kw_only=True)
class StaticTraining:
    """How a static model is made."""

    dimensions: int | None = 128
    """Principal components of the token vectors that are kept; None: all."""
    smoothing: float = 1e-3
    """a in the weights a / (a + p) of tokens, p the token's proportion."""
    epochs: int = 2
    """Passes over the texts."""
    batch: int = 32
    """Texts in an update."""
    learning_rate: float = 0.1
    """The first of the vectors, by Adam; it falls to 0 linearly. The classifier's is a tenth of it."""
    dropout: float = 0.3
    """The proportion of tokens that are left out of each text, others every time."""

    def __post_init__(self) -> None:
        require_positive(self, "batch", group="training.")
        if self.dimensions is not None:
            require_positive(self, "dimensions", group="training.")
        for name in ("epochs", "learning_rate"):
            if not getattr(self, name) >= 0:
                raise BrimfulError(f"training.{name} is {getattr(self, name)}: it must not be negative")
        if not self.smoothing > 0:
            raise BrimfulError(f"training.smoothing is {self.smoothing}: it must be above 0")
        if not 0 <= self.dropout < 1:
            raise BrimfulError(f"training.dropout is {self.dropout}: it must be at least 0 and below 1")


@dataclass(frozen=True, kw_only=True)
class DistilStaticConfig(TaskOptions):
    """Train a static student: token vectors of the teacher's encoder under a linear classifier."""

    MAIN = (
        *("teacher", "unlabelled", "train", "test", "out", "training.dimensions", "training.epochs"),
        *("seed", "baseline", "dry_run"),
    )
    NEEDS = ("teacher",)
    EXAMPLE = "--teacher runs/finetune --unlabelled more.txt --out runs/static"

    baseline: Literal["quick", "none"] = "quick"
    """quick: for each seed, a student learns from the labels alone too, in seconds; and TF-IDF under a linear
    model."""
    training: StaticTraining = StaticTraining()
    """The one stage: vectors and classifier together."""
