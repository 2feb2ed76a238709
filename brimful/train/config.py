"""The settings of the training loop."""

from dataclasses import dataclass
from typing import Literal

from brimful.config import incidental, require_positive
from brimful.errors import BrimfulError
from brimful.precision.narrow import Rounding
from brimful.precision.policy import MAX_SCALE, MIN_SCALE
from brimful.train.compilation import Compile
from brimful.train.guard import Policy


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
    log_every: int = incidental(10)
    """Updates between two lines of metrics.jsonl."""
    weights: Literal["fp32", "bf16", "fp16"] = "fp32"
    """How weights are kept, and with them their gradients: 16 bits, those of the precision, save 2 bytes for
    each and no float32 weights are kept beside them. What a run saves at its end is float32."""
    rounding: Rounding = "stochastic"
    """How 16-bit weights are rounded, lest updates below their spacing be lost: by chance; or kahan, which
    keeps what rounding took (2 bytes); master, float32 weights after all (4 bytes); or nearest."""
    loss_scale: float = 1024.0
    """With precision fp16, what the loss is multiplied by first. It doubles and halves so that gradients stay
    in float16's range."""
    loss_scale_period: int = 1
    """Updates from one change of that factor to the next."""
    evaluate_every: int = incidental(0)
    """Updates between evaluations; 0 = at the end only."""
    checkpoint_every: int = incidental(0)
    """Updates between checkpoints; 0 = none."""
    keep_checkpoints: int = incidental(2)
    """How many of the newest checkpoints to keep, beside that of the best evaluation."""
    spike: float = incidental(0.0)
    """How many standard deviations a loss may be above the mean of those before it, about 64 updates; 0 = any
    number, but it must be one."""
    on_spike: Policy = incidental("stop")
    """What is done about an update whose loss is further above, or no number: stop the run; skip the update,
    for which each one's loss is read before its step; or roll back to the checkpoint before it, and skip it
    when it comes again."""
    prefetch: int = incidental(2)
    """Updates that are made ready ahead, in a thread; 0 = none."""
    compile: Compile = "auto"
    """Whether a step's forward and backward pass are compiled into one graph, on CUDA a CUDA graph. The first
    update takes a minute longer, and dropout draws other numbers. auto: on CUDA, if the objective allows."""
    deterministic: bool = False
    """Whether the same command gives the same bits on CUDA too, by slower sums. On a CPU it does anyway, with
    as many threads."""

    profile: int = incidental(0)
    """Updates, after the first ones, of which a trace (RUN/profile/trace.json, for chrome://tracing) and a
    table of where their time goes are written; 0 = none. Weights stay the same."""
    wandb: str = incidental("")
    """Project of Weights & Biases that the run is shown in, beside TensorBoard's files in RUN/tensorboard."""

    def __post_init__(self) -> None:
        require_positive(
            self, "steps", "log_every", "keep_checkpoints", "loss_scale_period", group="trainer."
        )
        for name in ("hours", "clip", "spike", "evaluate_every", "checkpoint_every", "prefetch", "profile"):
            if not getattr(self, name) >= 0:
                raise BrimfulError(f"trainer.{name} is {getattr(self, name)}: it must not be negative")
        if self.weights == "fp32" and self.rounding != TrainerConfig.rounding:
            raise BrimfulError(
                f"trainer.rounding is {self.rounding}, which float32 weights don't need: set trainer.weights"
            )
        if not MIN_SCALE <= self.loss_scale <= MAX_SCALE:
            raise BrimfulError(
                f"trainer.loss_scale is {self.loss_scale:g}: it must be from {MIN_SCALE:g} to {MAX_SCALE:g}"
            )
        if self.on_spike == "roll-back" and not self.checkpoint_every:
            raise BrimfulError("trainer.on_spike=roll-back needs checkpoints: set trainer.checkpoint_every")
        if self.hours and self.deterministic:
            raise BrimfulError(
                "trainer.hours lets the clock decide, so the same command gives other bits each time:"
                " leave out trainer.deterministic"
            )


def check_trainer(config: TrainerConfig) -> None:
    """Refuse a length of each training in the trainer's words, where epochs decide it.

    Raises:
        BrimfulError: steps or hours are given.
    """
    for name in ("steps", "hours"):
        if getattr(config, name) != getattr(TrainerConfig, name):
            raise BrimfulError(
                f"trainer.{name} is {getattr(config, name):g}: epochs decide here how long a training takes;"
                f" leave it out"
            )
