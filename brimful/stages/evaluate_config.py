"""The options of `brimful evaluate`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from brimful.base.config import incidental, require_positive
from brimful.base.errors import BrimfulError, UsageError, require_range
from brimful.base.seals import MANIFEST
from brimful.base.types import Precision
from brimful.hf.model_folder import ModelPath
from brimful.stages.task_options import NO_DEV, POSITIONAL, FinetuneConfig, RunOptions, TaskOptions
from brimful.tables.text_files import TablePath

HOW_TO_PREPARE = "brimful prepare TEXT --out DIR --tokenizer ENCODER --validation-share 1"


def require_held_out(text: str) -> None:
    """Refuse a folder that `prepare` has not finished."""
    if not Path(text, MANIFEST).is_file():
        raise BrimfulError(f"{text} is not a prepared folder; make one with: {HOW_TO_PREPARE}")


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig(TaskOptions, RunOptions):
    """Compare encoders: their loss on held-out text, and their metrics on a task."""

    MAIN = (
        *("encoders", "text", "train", "test", "out", "task"),
        *("layout", "learning_rates", "epochs", "seeds", "max_length", "dry_run"),
    )
    NEEDS = ()
    EXAMPLE = "runs/a runs/b --text held-out --train train.tsv --test test.tsv --out runs/compared"

    encoders: Annotated[tuple[ModelPath, ...], POSITIONAL] = ()
    """Folders of encoders: RUN/encoder, the RUN itself, or a Hugging Face folder."""
    out: str | None = incidental(None)
    """Run directory to create."""
    text: tuple[Annotated[str, require_held_out], ...] = ()
    """Folders of held-out text that `prepare` made with an encoder's tokenizer. Their validation documents
    are read: all of the text with --validation-share 1."""
    text_tokens: int = 200_000
    """The most tokens of each folder of text."""
    train: TablePath | None = None
    """A table of the task: TSV, CSV, JSONL or Parquet with the columns text, text_b (optional) and label."""
    dev: TablePath | None = None
    """A table to choose on; by default a fifth of train."""
    test: TablePath | None = None
    """A table on which every model is measured."""
    metric: str | None = None
    """The metric that is compared; by default the first of the task, or the one of the layout."""
    seeds: int = 3
    """Trainings of each encoder; 0 leaves fine-tuning out, so that only the probe remains."""
    learning_rates: tuple[float, ...] = (1e-4, 3e-4)
    """Peak learning rates; each encoder and seed takes the one that is best on dev."""
    epochs: float = 3.0
    """Passes over train."""
    batch: int = 16
    """Examples in an update."""
    max_length: int | None = None
    """The most tokens of an example, and of a sequence of text, for every encoder. By default 128, or the
    least maximum of the encoders if less."""
    overlap: int | None = None
    """Longer texts become windows that share this many tokens, as in finetune."""
    precision: Precision = "auto"
    """Number format of the computation, in training too: fp32 for the most exact comparison. auto: the format
    of the device, as in finetune and predict."""

    def __post_init__(self) -> None:
        self.require_task()
        require_positive(self, "text_tokens", "batch")
        require_range(self, "at least 0", "seeds")
        if len(set(self.encoders)) < len(self.encoders):
            raise BrimfulError("the same encoder is given twice")
        if (self.train is None) != (self.test is None):
            raise BrimfulError("a task needs --train and --test")
        if self.dev and self.train is None:
            raise BrimfulError("--dev is for a task, which needs --train and --test")

    def require_complete(self) -> None:
        """Raise a UsageError if encoders, --out or data to evaluate on are missing."""
        if self.resume is not None:
            return
        if not self.encoders or self.out is None:
            raise UsageError("evaluate needs encoders and --out: brimful evaluate ENCODER... --out DIR")
        if not self.text and self.train is None:
            raise UsageError("evaluate needs --text, or --train and --test, or all of them")

    def finetuning(self, encoder: str) -> FinetuneConfig:
        """Return the configuration of the fine-tunings of one encoder."""
        names = ["train", "test", "task", "columns", "layout", "read", "offsets", "metric"]
        names += ["learning_rates", "epochs", "batch", "max_length", "overlap"]
        options = {name: getattr(self, name) for name in names}
        dev = self.dev
        if not dev and len(self.learning_rates) <= 1:
            dev = NO_DEV  # nothing is chosen, so all rows of train are trained on
        return FinetuneConfig(encoder=encoder, dev=dev, seed=tuple(range(self.seeds)) or (0,), **options)
