"""The options of `brimful pretrain`."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import tyro

from brimful.commands.phases import PhaseConfig, parse_phase
from brimful.config import incidental, require_positive, require_seeds
from brimful.data.blocks import PackingConfig
from brimful.data.masking import MaskingConfig
from brimful.data.mixture import DataSource, parse_sources
from brimful.data.sequences import SequencesConfig
from brimful.errors import BrimfulError
from brimful.objectives.masked_lm import LossMean
from brimful.optim.build import OptimizerConfig
from brimful.optim.schedule import Cycle, Schedule, ScheduleConfig
from brimful.packing.hyperparameters import Keep
from brimful.precision.policy import Precision
from brimful.train.config import TrainerConfig

_SOURCES = tyro.constructors.PrimitiveConstructorSpec(
    nargs="*",
    metavar="PATH[:WEIGHT] ...",
    instance_from_str=lambda texts: tuple(texts) or None,
    is_instance=lambda value: value is None or isinstance(value, str | tuple),
    str_from_instance=lambda value: (
        ["None"] if value is None else [f"{source.path}:{source.weight:g}" for source in parse_sources(value)]
    ),
)
_PHASES = tyro.constructors.PrimitiveConstructorSpec(
    nargs="*",
    metavar="STEPS:MAX_LENGTH[:SIZE] ...",
    instance_from_str=lambda texts: tuple(map(parse_phase, texts)),
    is_instance=lambda value: isinstance(value, tuple),
    str_from_instance=lambda phases: list(map(str, phases)) or ["None"],
)


LARGEST_UPDATE = 1 << 24


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """Train an encoder on prepared shards, from random weights or from a trained model."""

    data: Annotated[str | tuple[str | DataSource, ...] | None, _SOURCES] = incidental(None)
    """Folder made by `brimful prepare`; or several, each with its share of the tokens: web:9 mine:1. In a
    --config file, path, weight and name (in metrics) of each."""
    out: str | None = incidental(None)
    """Run directory to create; the encoder ends up in RUN/encoder."""
    resume: str | None = incidental(None)
    """Run directory of an interrupted run: go on with its own configuration."""
    start_from: str | None = None
    """A trained model to go on from, encoder and masked-LM head: a finished run or a Hugging Face folder. The
    data has its tokenizer, or one that extends it (prepare's --extend)."""
    model: Literal["tiny", "mini", "small", "base", "large"] | None = None
    """Size of a new model: tiny 2x128, mini 4x256, small 4x512, base 12x768, large 24x1024 (modern: 22x768,
    28x1024). By default mini."""
    architecture: Literal["modern", "bert", "prenorm"] | None = None
    """Kind of a new model, by default modern. modern: ModernBERT (pre-LN, RoPE, GeGLU, no biases); bert: BERT
    (post-LN, learned positions); prenorm: BERT with pre-LN (Megatron-BERT)."""
    seed: int = 0
    """Decides weights, order, packing neighbours and masks."""
    rows_per_update: int = 4
    """Rows that one update sees, over all ranks."""
    sequences_per_update: int | None = None
    """In place of rows_per_update: an update sees exactly so many sequences, in as few rows as they fit."""
    rows_per_micro_batch: Literal["auto"] | int = incidental(1)
    """Rows that one forward and backward pass takes. auto: tried out at the start, the most that fit in
    memory, or on a CPU as many as make it faster; if they don't fit later on, half as many, once."""
    unpacked_batch_size: int | None = None
    """In place of rows_per_update: sequences in an update of a recipe without packing, to be followed."""
    unpacked_keep: Keep = "sequences"
    """Follow it with as many sequences an update: this sets rows_per_update; or with as many rows: this sets
    rows_per_update to the batch size, and AdamW's betas to their power of the sequences in a row."""
    loss_mean: LossMean = "tokens"
    """What the loss is a mean over: predictions; or sequences, each counting the same whatever its length, as
    the Packed-BERT paper has it."""
    precision: Precision = "auto"
    """Number format of the computation. auto: bf16 where the device is fast at it; else, on V100 and T4, fp16
    with loss scaling; else fp32."""
    validation_tokens: int = 100_000
    """The most tokens of each source's validation documents that an evaluation reads; 0 = no evaluation."""
    phases: Annotated[tuple[PhaseConfig, ...], _PHASES] = ()
    """Parts of the run, one after the other: updates, packing.max_length, and rows (or sequences) an update.
    Their steps add up to trainer.steps. In a --config file, steps, max_length and update_size of each, and
    learning_rate and warmup, with which the schedule starts anew."""
    verify_data: bool = incidental(True)
    """Read every byte of the data before a new run, to check it."""
    sequences: SequencesConfig = SequencesConfig()
    packing: PackingConfig = PackingConfig()
    masking: MaskingConfig = MaskingConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    trainer: TrainerConfig = TrainerConfig(checkpoint_every=500)
    dry_run: bool = incidental(False)
    """Resolve and check everything, and do nothing."""

    def __post_init__(self) -> None:
        require_seeds(self.seed)
        require_positive(self, "rows_per_update")
        if self.rows_per_micro_batch != "auto":
            require_positive(self, "rows_per_micro_batch")
        if self.validation_tokens < 0:
            raise BrimfulError(f"validation_tokens is {self.validation_tokens}: it must not be negative")
        self._check_phases()
        self._check_updates()
        for name in ("model", "architecture"):
            if self.start_from is not None and getattr(self, name) is not None:
                raise BrimfulError(f"{name} is for a new model, and start_from has its own: leave out {name}")
        if self.sequences.paired and self.start_from is None and self.architecture in (None, "modern"):
            raise BrimfulError(
                f"sequences.kind={self.sequences.kind} needs token types, which modern has not:"
                " choose architecture bert or prenorm"
            )
        if self.unpacked_keep == "rows" and self.unpacked_batch_size is None:
            raise BrimfulError("unpacked_keep is for a recipe of unpacked_batch_size, which is not given")
        if self.unpacked_keep == "rows" and self.optimizer.name == "muon":
            raise BrimfulError("unpacked_keep=rows changes AdamW's betas, and Muon has none: keep sequences")

    def _check_phases(self) -> None:
        lengths = {
            self.packing.max_length if phase.max_length is None else phase.max_length for phase in self.phases
        }
        for length in lengths:
            replace(self.packing, max_length=length)  # checks it
        if self.unpacked_batch_size is not None and len(lengths) > 1:
            raise BrimfulError(
                "unpacked_batch_size follows a recipe of one length, and phases have several: give each phase"
                " the rows of its updates"
            )
        steps = sum(phase.steps for phase in self.phases)
        if self.phases and steps != self.trainer.steps:
            raise BrimfulError(
                f"the steps of phases add up to {steps}, and trainer.steps is {self.trainer.steps}:"
                " make them equal"
            )
        Schedule(self.schedule, schedule_cycles(self), self.trainer.hours)  # checks it

    def _check_updates(self) -> None:
        """There is one way to say how large an update is."""
        phases = [phase.update_size for phase in self.phases]
        ways = [
            name
            for name in ("sequences_per_update", "unpacked_batch_size")
            if getattr(self, name) is not None
        ]
        require_positive(self, *ways)
        for size in (*(getattr(self, name) for name in ways), self.rows_per_update, *phases):
            if size is not None and size > LARGEST_UPDATE:
                raise BrimfulError(f"an update of {size:,} rows or sequences: it may have {LARGEST_UPDATE:,}")
        if self.rows_per_update != PretrainConfig.rows_per_update:
            ways.append("rows_per_update")
        if self.unpacked_batch_size is not None and any(phases):
            ways.append("phases.update_size")
        if len(ways) > 1:
            raise BrimfulError(f"{ways[0]} and {ways[1]} both say how large an update is: give one of them")
        if self.sequences_per_update is not None or self.unpacked_batch_size is not None:
            return
        if self.rows_per_micro_batch == "auto":
            return
        for rows in (self.rows_per_update, *phases):
            if rows and rows % self.rows_per_micro_batch:
                raise BrimfulError(
                    f"rows_per_micro_batch ({self.rows_per_micro_batch}) must divide the rows of an update"
                    f" ({rows})"
                )


def schedule_cycles(config: PretrainConfig) -> list[Cycle]:
    """The parts of the run that have a schedule each: one, and one more for each phase that starts it anew.

    Raises:
        BrimfulError: a phase names a rate, and that of the run, which others are measured by, is 0.
    """
    cycles: list[Cycle] = []
    for phase in config.phases or [PhaseConfig(steps=config.trainer.steps)]:
        if cycles and phase.learning_rate is None and phase.warmup is None:
            cycles[-1] = replace(cycles[-1], steps=cycles[-1].steps + phase.steps)
            continue
        peak = 1.0
        if phase.learning_rate is not None:
            if not config.optimizer.learning_rate:
                raise BrimfulError(
                    "optimizer.learning_rate is 0 and phases.learning_rate is not: give the highest to both"
                )
            peak = phase.learning_rate / config.optimizer.learning_rate
        cycles.append(Cycle(phase.steps, peak, phase.warmup))
    return cycles
