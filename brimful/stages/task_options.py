"""The options of `brimful finetune`, `evaluate` and `check`, and those that every verb of tasks has."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from brimful.base.config import Argument, incidental, require_positive, require_seeds
from brimful.base.errors import BrimfulError, require_range
from brimful.base.types import Precision
from brimful.hf.model_folder import ModelFolder, ModelPath
from brimful.optim.config import DecayConfig
from brimful.optim.schedule import CurveConfig
from brimful.runs.start_checks import RunPath
from brimful.tables.layouts import LabelOptions, TablePaths
from brimful.tables.text_files import TablePath
from brimful.tasks.registry import TASK_HELP, require_task_name
from brimful.train.config import LoopConfig

TASK_TRAINER = LoopConfig(checkpoint_every=200, deterministic=True)
"""Fine-tuning and distillation are short, and metrics are compared: reproducible bits are worth the time."""
POSITIONAL = Argument(positional=True)
"""An option without a flag."""
NO_DEV = "none"
"""The value of --dev with which a training uses all rows of train."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of every verb that trains on examples: finetune, evaluate, and the distillations."""

    resume: RunPath | None = incidental(None)
    """Run directory of an interrupted run: continue it with its own configuration."""
    max_length: int | None = None
    """The most tokens of an example. By default 128, or the encoder's maximum if less."""
    precision: Precision = "auto"
    """Number format of the computation. auto: bf16 where the device is fast at it; else, on V100 and T4, fp16
    with loss scaling; else fp32."""
    dry_run: bool = incidental(False)
    """Resolve and check everything, and do nothing."""


@dataclass(frozen=True, kw_only=True)
class TaskOptions(LabelOptions):
    """The options of every verb that reads tables of a task."""

    task: Annotated[str | None, TASK_HELP] = None

    def require_task(self) -> None:
        """Refuse a name that no task has."""
        if self.task is not None:
            require_task_name(self.task)


@dataclass(frozen=True, kw_only=True)
class CheckConfig(TaskOptions):
    """Look for oddities in labelled tables: repeats, leaks, contradictions."""

    EXAMPLE = "train.tsv test.tsv"

    files: Annotated[tuple[TablePath, ...], POSITIONAL]
    """Tables of the task: train first, then any others (dev, test), which are compared with it."""


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(RunOptions):
    """The options of each training of fine-tuning and of distillation."""

    batch: int = 16
    """Examples in an update."""
    micro_batch_tokens: int = 4096
    """The most tokens of one forward and backward pass: fewer save memory, more suit a large GPU."""
    optimizer: DecayConfig = DecayConfig()
    """AdamW; each training sets its own learning rate."""
    schedule: CurveConfig = CurveConfig()
    trainer: LoopConfig = TASK_TRAINER
    """The number of updates follows from epochs."""

    def __post_init__(self) -> None:
        require_positive(self, "batch", "micro_batch_tokens")


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(TaskOptions, TrainingOptions):
    """Train an encoder for a task on texts or pairs of texts."""

    MAIN = (
        *("encoder", "train", "dev", "test", "out", "task"),
        *("layout", "learning_rates", "epochs", "max_length", "seed", "dry_run"),
    )
    NEEDS = ("encoder", "train")
    EXAMPLE = "--encoder runs/pretrain --train table.tsv --out runs/finetune"

    encoder: ModelPath | None = incidental(None)
    """Folder of an encoder: RUN/encoder, the RUN itself, or a Hugging Face folder."""
    train: TablePath | None = incidental(None)
    """TSV, CSV, JSONL or Parquet with the columns text, text_b (optional) and label."""
    test: TablePath | None = incidental(None)
    """A table of the same columns, on which the finished model is measured once. By default a fifth of train:
    alike texts stay together, labels keep their proportions."""
    group: str | None = incidental(None)
    """A column of train that names the source of a row, such as a page or a patient: rows of one source stay
    together where test or dev is cut from train."""
    more_tests: tuple[TablePath, ...] = incidental(())
    """More tables to measure the finished model on, such as tables of another domain."""
    metric: str | None = None
    """The metric that learning rates and checkpoints are compared by, such as f1 (macro-averaged), matthews
    or spearman. By default the first of the task, or the one of the layout."""
    out: str | None = incidental(None)
    """Run directory to create; the model ends up in RUN/model."""
    dev: TablePath | None = incidental(None)
    """A table of the same columns, to choose and to calibrate on. By default a part of train: with several
    learning rates a fifth, on which the final training trains too; with one rate a tenth, which only
    calibrates probabilities. none (with one rate): train on all rows."""
    seed: tuple[int, ...] = (0,)
    """Each seed trains its own model. Metrics of several seeds, --seed 0 1 2, are means, with their standard
    deviation and the value of each."""
    learning_rates: tuple[float, ...] = ()
    """Peak learning rates to try; the best on dev is kept. By default one that suits the encoder's width:
    3e-4 up to 256, 1e-4 at 768."""
    epochs: float = 6.0
    """Passes over train."""
    trial_epochs: float | None = None
    """Passes of each trial if learning rates are compared on held-out rows of train, without dev: fewer save
    time. By default the same as epochs."""
    ladder: Literal["quick", "none"] = incidental("quick")
    """Baselines on the same rows, where scikit-learn is installed: the majority, and linear models on
    TF-IDF and on the frozen encoder."""
    overlap: int | None = None
    """Longer texts become windows that share this many tokens, and their answers are merged. By default tasks
    of whole texts cut them, and tasks of tokens read them in windows."""
    initialisation: Literal["pretrained", "random"] = "pretrained"
    """random: the encoder's shape and tokenizer with new weights, to measure the gain of pretraining."""
    pooling: Literal["auto", "mean", "first"] = "auto"
    """What a classifier or regression reads of a text: the mean over its tokens, or its first token. auto: as
    the encoder was trained, where its folder says it; else the mean in modern, the first token in others."""
    layers: tuple[int, ...] | None = None
    """Keep only these layers of the encoder (0-based), in this order: fewer make a faster model."""
    dropout: float = 0.1
    """Dropout of hidden states and before the last layer of the head. With 0, an encoder that has dropout of
    attention probabilities (on CPUs) trains without it too."""
    trainer: LoopConfig = TASK_TRAINER
    """The number of updates follows from epochs. With keep or patience, dev is evaluated once an epoch, or as
    evaluate_every says, and the final training leaves dev out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_task()
        require_seeds(*self.seed)
        require_range(self, "above 0", "epochs", "trial_epochs")
        for rate in self.learning_rates:
            if not rate > 0:  # also refuses NaN
                raise BrimfulError(f"learning_rates is {rate}: it must be above 0")
        for name, values in (("seed", self.seed), ("learning_rates", self.learning_rates)):
            is_missing = not values and name == "seed"
            if is_missing or len(set(values)) < len(values):
                raise BrimfulError(f"{name} is {list(values)}: give at least one value, and no value twice")

    def refuse_unread(self, *, pools: bool) -> None:
        """Refuse options that a new run would not read. Runs of earlier versions may have such options.

        Args:
            pools: whether the task's head makes one vector of a text.
        """
        if self.pooling != "auto" and not pools:
            raise BrimfulError("pooling is for classifiers and regressions of whole texts: leave it out")
        if self.group is not None and self.test is not None and self.dev is not None:
            raise BrimfulError("--group is for rows that are cut from train, and --test and --dev cut none")
        if self.dev == NO_DEV and (self.chooses or self.trainer.evaluate_every):
            raise BrimfulError("--dev none goes with one learning rate, no --keep best, no evaluate_every")
        if self.trial_epochs and (self.dev or self.trainer.keeps_best or len(self.learning_rates) < 2):
            raise BrimfulError(
                "trial_epochs is for several learning rates that are compared on a part of train, before a"
                " training on all of it: leave it out"
            )

    @property
    def chooses(self) -> bool:
        """Whether dev decides something: among learning rates, or among checkpoints."""
        return len(self.learning_rates) > 1 or self.trainer.keeps_best

    @property
    def dev_table(self) -> str | None:
        """The path of a dev table; None without one."""
        return None if self.dev == NO_DEV else self.dev

    @property
    def encoder_folder(self) -> ModelFolder:
        """The folder of the encoder, in which there must be a model."""
        assert self.encoder is not None
        return ModelFolder.open(self.encoder, "encoder")

    @property
    def tables(self) -> TablePaths:
        """Paths of train, and of dev and test where they are tables of their own."""
        assert self.train is not None
        return self.train, self.dev_table, self.test


def default_rate(width: int) -> float:
    """Return the learning rate for an encoder of a width: 3e-4 up to 256, then inversely proportional to it.

    These are the rates of ELECTRA small (256) and base (768; Clark et al. 2020); large has 5e-5 there.
    """
    return float(f"{3e-4 * min(1.0, 256 / width):.2g}")


C = TypeVar("C", bound=RunOptions)
_PATH_OPTIONS = ("encoder", "teacher", "student", "train", "dev", "test", "more_tests", "unlabelled")


def with_absolute_paths(config: C, **changes: Any) -> C:
    """Return the configuration with other resolved options, and paths that mean the same from anywhere."""
    for name in _PATH_OPTIONS:
        value = getattr(config, name, None)
        if not value or value == NO_DEV:
            continue
        if isinstance(value, str):
            changes[name] = str(Path(value).absolute())
        else:
            changes[name] = tuple(str(Path(path).absolute()) for path in value)
    return replace(config, **changes)
