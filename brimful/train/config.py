"""The settings of the training loop."""

from dataclasses import dataclass
from typing import Literal

from brimful.base.config import incidental, require_positive
from brimful.base.errors import BrimfulError, require_range
from brimful.base.types import MAX_SCALE, MIN_SCALE, Compile, Residual, Rounding, SpikePolicy


@dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """The settings of the loop that every training has."""

    clip: float = 1.0
    """Largest norm of the whole gradient: less where the loss has spikes. 0 = no clipping."""
    log_every: int = incidental(10)
    """Updates between two lines of metrics.jsonl."""
    evaluate_every: int = incidental(0)
    """Updates between evaluations; 0 = at the end only."""
    keep: Literal["last", "best"] = "last"
    """Which weights a run ends with. last: after its last update; best: at its best evaluation by the primary
    metric, which needs checkpoints and evaluate_every."""
    patience: int = 0
    """End after this many evaluations without a better primary metric; 0 = never. It sets keep to best."""
    checkpoint_every: int = incidental(0)
    """Updates between checkpoints, which a kill costs at most; 0 = no checkpoints."""
    compile: Compile = "auto"
    """Compile a step's forward and backward pass into one graph, on CUDA a CUDA graph. The first update takes
    a minute longer, and dropout draws other numbers: not for a few updates. auto: on CUDA, if the objective
    allows it."""
    recompute: Literal["none", "layers"] = incidental("none")
    """Activation checkpointing. layers: of each layer only the input is kept for the backward pass, which
    computes the layer again; less memory, more time, the same losses. Not where a student learns layers."""
    deterministic: bool = False
    """Give the same bits for the same command on CUDA too, with slower sums. A CPU does so anyway, with the
    same number of threads."""
    hang_limit: float = incidental(600.0)
    """Seconds that a rank waits for the others in a collective before the run ends (torch's timeout); 0 = a
    day. It must be longer than anything that a single rank does, such as compiling."""

    @property
    def keeps_best(self) -> bool:
        """Whether the run ends with the weights of its best evaluation."""
        return self.keep == "best" or self.patience > 0

    def over(self, steps: int) -> "TrainerConfig":
        """Make the settings of this loop over a number of updates."""
        return TrainerConfig(**vars(self), steps=steps)

    def __post_init__(self) -> None:
        require_positive(self, "log_every", group="trainer.")
        counts = ("clip", "evaluate_every", "patience", "checkpoint_every", "hang_limit")
        require_range(self, "at least 0", *counts, group="trainer.")
        if self.keeps_best and not self.checkpoint_every:
            raise BrimfulError("the best weights are kept in a checkpoint: set trainer.checkpoint_every too")


@dataclass(frozen=True, kw_only=True)
class TrainerConfig(LoopConfig):
    """The loop's own settings: what every training has, and what a training of hours or days needs."""

    steps: int = incidental(1000)
    """Number of updates."""
    hours: float = incidental(0.0)
    """Hours of training, without start-up, evaluations and checkpoints, after which the run ends if its steps
    have not. The learning rate has decayed by then, whatever the speed. 0 = no limit."""
    weights: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Format of the parameters and their gradients. 16 bits, in the format of precision, save 2 bytes for
    each of them, and no float32 copy is kept. The model that a run saves is float32."""
    rounding: Rounding = "stochastic"
    """How 16-bit parameters are rounded, so that updates below their spacing are not lost: stochastic; kahan,
    which keeps the rounding error (2 bytes each); master, with a float32 copy after all (4 bytes each); or
    nearest, which loses them."""
    residual: Residual = "auto"
    """Format of the residual stream in training. bf16, with precision bf16 alone, halves its memory and
    traffic, and rounds each residual sum to 8 bits; norms still compute in float32. auto: bf16 in pretraining
    on CUDA with precision bf16; else fp32."""
    loss_scale: float = 1024.0
    """Only with precision fp16: the first factor on the loss. It doubles and halves to keep gradients within
    float16's range. Start a run that continues another one with the other's last factor."""
    keep_checkpoints: int = incidental(2)
    """How many of the newest checkpoints to keep, beside the checkpoint of the best evaluation."""
    spike: float = incidental(0.0)
    """A loss spike is a loss more than this many standard deviations above the mean of the last 64 or so
    losses; 0 = only NaN and infinite losses count."""
    on_spike: SpikePolicy = incidental("stop")
    """What to do about a loss spike: stop the run; or skip the update, for which every loss is read before
    the step, so that a GPU waits."""
    prefetch: int = incidental(2)
    """Updates that a thread prepares ahead; 0 = none. More help where some take much longer to read."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "steps", "keep_checkpoints", group="trainer.")
        require_range(self, "at least 0", "hours", "spike", "prefetch", group="trainer.")
        scales = f"at least {MIN_SCALE} and at most {MAX_SCALE}"
        require_range(self, scales, "loss_scale", group="trainer.")
        if self.weights == "fp32" and self.rounding != TrainerConfig.rounding:
            raise BrimfulError(
                f"trainer.rounding is {self.rounding}, which float32 weights don't need: set trainer.weights"
            )
        if self.hours and self.deterministic:
            raise BrimfulError(
                "trainer.hours lets the clock decide, so the same command gives other bits each time:"
                " leave out trainer.deterministic"
            )
