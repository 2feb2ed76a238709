"""The settings of the training loop."""

from dataclasses import dataclass

from brimful.config import require_positive
from brimful.errors import BrimfulError
from brimful.train.compilation import Compile


@dataclass(frozen=True, kw_only=True)
class TrainerConfig:
    """The loop's own settings."""

    steps: int = 1000
    """Number of updates."""
    hours: float = 0.0
    """Hours of training, start-up, evaluations and checkpoints not counted, after which the run ends if its
    steps have not; the learning rate has decayed by then, whatever the speed. 0 = no limit."""
    clip: float = 1.0
    """Largest norm of the whole gradient; 0 = no clipping."""
    log_every: int = 10
    """Updates between two lines of metrics.jsonl."""
    evaluate_every: int = 0
    """Updates between evaluations; 0 = at the end only."""
    checkpoint_every: int = 0
    """Updates between checkpoints; 0 = none."""
    keep_checkpoints: int = 2
    """How many checkpoints to keep."""
    prefetch: int = 2
    """Updates that are made ready ahead, in a thread; 0 = none."""
    compile: Compile = "auto"
    """Whether a step's forward and backward pass are compiled into one graph, on CUDA a CUDA graph. The first
    update takes a minute longer, and dropout draws other numbers. auto: on CUDA, if the objective allows."""
    deterministic: bool = False
    """Whether the same command gives the same bits on CUDA too, by slower sums. On a CPU it does anyway, with
    as many threads."""

    def __post_init__(self) -> None:
        require_positive(self, "steps", "log_every", "keep_checkpoints", group="trainer.")
        for name in ("hours", "clip", "evaluate_every", "checkpoint_every", "prefetch"):
            if not getattr(self, name) >= 0:
                raise BrimfulError(f"trainer.{name} is {getattr(self, name)}: it must not be negative")
        if self.hours and self.deterministic:
            raise BrimfulError(
                "trainer.hours lets the clock decide, so the same command gives other bits each time:"
                " leave out trainer.deterministic"
            )
