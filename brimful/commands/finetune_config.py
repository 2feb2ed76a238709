"""The options of `brimful finetune`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from brimful.config import incidental, require_positive, require_seeds
from brimful.errors import BrimfulError
from brimful.optim.build import OptimizerConfig
from brimful.optim.schedule import ScheduleConfig
from brimful.precision.policy import Precision
from brimful.runs.directory import find_model
from brimful.train.config import TrainerConfig, check_trainer

TASK_TRAINER = TrainerConfig(checkpoint_every=200, deterministic=True)
"""Fine-tuning and distillation are short and their figures are compared: the same bits are worth the time."""


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """Train an encoder to classify texts or pairs of texts."""

    encoder: str | None = incidental(None)
    """Folder of an encoder: RUN/encoder, the RUN itself, or a Hugging Face folder."""
    train: str | None = incidental(None)
    """TSV, CSV or JSONL with the columns text, text_b (optional) and label."""
    test: str | None = incidental(None)
    """The same, to judge the finished model once."""
    out: str | None = incidental(None)
    """Run directory to create; the model ends up in RUN/model."""
    resume: str | None = incidental(None)
    """Run directory of an interrupted run: go on with its own configuration."""
    dev: str | None = incidental(None)
    """The same, to choose the learning rate; by default a fifth of train, which is then used as well."""
    seed: tuple[int, ...] = (0,)
    """Seeds: each trains a model of its own; figures are then means with their spread."""
    learning_rates: tuple[float, ...] = (3e-4,)
    """Peak rates to try; the one best on dev is kept."""
    epochs: float = 6.0
    """Passes over train."""
    trial_epochs: float | None = None
    """Passes while learning rates are compared on held-out rows of train; by default as many as epochs."""
    batch: int = 16
    """Examples in an update."""
    max_length: int | None = None
    """The most tokens of an example; the rest is cut. By default 128, or fewer if the encoder takes fewer."""
    initialisation: Literal["pretrained", "random"] = "pretrained"
    """random: the encoder's shape and tokenizer with new weights, to measure what pretraining is worth."""
    layers: tuple[int, ...] | None = None
    """Keep only these layers of the encoder (0-based), in this order."""
    dropout: float = 0.1
    """Dropout of hidden states and before the classifier."""
    attention_dropout: float | None = None
    """Dropout of attention probabilities, by the attention backend sdpa only; by default the
    encoder's own."""
    micro_batch_tokens: int = 4096
    """The most tokens that one forward and backward pass takes."""
    precision: Precision = "auto"
    """Number format of the computation. auto: bf16 where the device is fast at it; else, on V100 and T4, fp16
    with loss scaling; else fp32."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """learning_rate is set from learning_rates."""
    schedule: ScheduleConfig = ScheduleConfig()
    trainer: TrainerConfig = TASK_TRAINER
    """steps is set from epochs."""
    dry_run: bool = incidental(False)
    """Resolve and check everything, and do nothing."""

    def __post_init__(self) -> None:
        require_seeds(*self.seed)
        require_positive(self, "batch", "micro_batch_tokens")
        check_trainer(self.trainer)
        for name in ("epochs", "trial_epochs"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise BrimfulError(f"{name} is {getattr(self, name)}: it must be above 0")
        for name in ("seed", "learning_rates"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise BrimfulError(f"{name} is {list(values)}: it needs at least one value, and none twice")

    @property
    def encoder_folder(self) -> Path:
        """The Hugging Face folder of the encoder.

        Raises:
            BrimfulError: there is none.
        """
        assert self.encoder is not None
        return find_model(Path(self.encoder), "encoder")

    @property
    def tables(self) -> tuple[str, str | None, str]:
        """Paths of train, dev and test."""
        assert self.train is not None
        assert self.test is not None
        return self.train, self.dev, self.test
