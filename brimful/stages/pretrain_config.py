"""The configuration of `brimful pretrain`, and the recipes that its defaults come from."""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from tokenizers import Tokenizer

from brimful.base.config import Argument, incidental, merge, require_positive, require_seeds
from brimful.base.errors import BrimfulError, require_range
from brimful.base.types import Facts, LossMean, Precision, Values
from brimful.corpus.text.special_ids import special_ids
from brimful.data.config import MaskingConfig, PackingConfig, Phase, SequencesConfig
from brimful.data.mixture import SOURCES, DataSource, SourcePath
from brimful.hf.model_folder import ModelPath
from brimful.model.presets import preset
from brimful.model.shape import EncoderConfig
from brimful.optim.config import OptimizerConfig
from brimful.optim.schedule import Cycle, Schedule, ScheduleConfig
from brimful.runs.start_checks import RunPath
from brimful.train.config import TrainerConfig
from brimful.train.phases import PHASES, PhaseConfig, make_cycles, make_phases

Recipe = Literal["fast", "plain"]
RECIPES: dict[str, Values] = {
    "fast": {
        "optimizer": {"name": "muon", "learning_rate": 2e-3, "muon_learning_rate": 0.02},
        "masking": {"rate": 0.3},
        "schedule": {"warmup": 0.05},
    },
    "plain": {},
}
"""The defaults that a recipe changes."""

SIZES = {"small": (1 << 14, 128, 5e-4), "base": (1 << 19, 512, 5e-4), "large": (1 << 19, 512, 2e-4)}
"""Token slots of an update, tokens of a sequence and AdamW's rate: ELECTRA-small's (Clark et al., 2020);
MosaicBERT's (Portes et al., 2023) at BERT's length (Devlin et al., 2018); large has ELECTRA's rate."""
WARMUP_SHARE = 0.06  # MosaicBERT's; then the rate falls in a straight line, as in all of these
FAST_SIZES = ("tiny", "mini")  # where `fast` was measured (docs/results/pretraining.md)


def _is_measured(options: Facts) -> bool:
    """Whether `fast` is the default with these options."""
    if (options.get("model") or "mini") not in FAST_SIZES:
        return False
    if (options.get("architecture") or "modern") != "modern":
        return False
    names = ("start_from", "shape.layers", "shape.hidden_size", "model.layers", "model.hidden_size")
    return all(options.get(name) is None for name in names)


UNSTATED_END: Values = {"steps": sys.maxsize, "hours": math.inf}
"""Ends that nobody states: beside `resume`, they stand for the run's own."""
MAX_UPDATE_SIZE = 1 << 24  # rows or sequences of an update


@dataclass(frozen=True, kw_only=True)
class ShapeConfig:
    """Where a new model departs from its preset. In a --config file, this group is called shape."""

    layers: int | None = None
    """Number of layers."""
    hidden_size: int | None = None
    """Width of the hidden states: a multiple of heads, and best of 64."""
    heads: int | None = None
    """Attention heads. hidden_size / heads is best 64, or 32 in a narrow model, and a multiple of 8."""
    intermediate_size: int | None = None
    """Width of the feed-forward layers, by default 2 * hidden_size (modern) or 4 * hidden_size; best a
    multiple of 64."""
    dropout: float | None = None
    """Dropout of hidden states in training, by default 0; exported with the model."""


@dataclass(frozen=True, kw_only=True)
class InitialConfig:
    """The weights of a new model before its first update. By default, modern starts from the data."""

    attention: Literal["neighbours", "random"] | None = None
    """neighbours: heads of the first three layers, but not of the last one, look at the tokens beside each
    token; modern only. random: attention begins as a mean over the sequence."""
    vocabulary: Literal["data", "random"] | None = None
    """data: embeddings from the neighbourhoods of the pieces in the data, biases of the scores from their
    frequencies; it takes seconds at mini. random: embeddings are drawn, and biases are 0."""

    def resolved(self, architecture: str) -> "InitialConfig":
        """Return the options with the defaults of an architecture in place of None."""
        by_data = architecture == "modern"
        return InitialConfig(
            attention=self.attention or ("neighbours" if by_data else "random"),
            vocabulary=self.vocabulary or ("data" if by_data else "random"),
        )


@dataclass(frozen=True, kw_only=True)
class PretrainConfig:
    """Train an encoder on prepared shards, from random weights or from a trained model."""

    MAIN = (
        *("data", "out", "model", "start_from", "trainer.steps", "trainer.hours"),
        *("packing.max_length", "rows_per_update", "optimizer.learning_rate", "seed", "resume", "dry_run"),
    )
    NEEDS = ("data",)
    EXAMPLE = "--data data --out runs/pretrain --model mini --trainer.hours 1"

    data: Annotated[str | tuple[SourcePath | DataSource, ...] | None, SOURCES] = incidental(None)
    """Folder made by `brimful prepare`; or several, each with its proportion of the tokens: web:9 mine:1.
    In a --config file, each has a path, a weight (its proportion) and a name (for metrics)."""
    out: str | None = incidental(None)
    """Run directory to create. The trained encoder is in RUN/encoder."""
    resume: RunPath | None = incidental(None)
    """Run directory of an interrupted run, which continues with its own configuration. trainer.steps and
    trainer.hours give it, or a finished run, another end."""
    start_from: ModelPath | None = None
    """A trained model to continue from, encoder and masked-LM head: a finished run or a Hugging Face folder.
    The data has the same tokenizer."""
    model: Literal["tiny", "mini", "small", "base", "large"] | None = None
    """Preset of a new model, layers x hidden size: tiny 2x128, mini 4x256, small 4x512, base 12x768, large
    24x1024 (modern: 22x768, 28x1024). By default mini."""
    architecture: Literal["modern", "bert", "prenorm"] | None = None
    """Architecture of a new model, by default modern. modern: ModernBERT (pre-LN, RoPE, GeGLU, no biases);
    bert: BERT (post-LN, learned positions); prenorm: BERT with pre-LN (Megatron-BERT)."""
    shape: Annotated[ShapeConfig, Argument(group="model")] = ShapeConfig()
    initial: InitialConfig = InitialConfig()
    recipe: Recipe | None = incidental(None)
    """Defaults of optimizer, masking and schedule. fast: Muon, rates of 2e-3 and 0.02, a mask rate of 0.3, a
    warm-up of 0.05; by default for a new modern tiny or mini, where it was measured. plain: AdamW, a mask
    rate of 0.15, rate and warm-up of the size (1e-3, 0.1; small, base 5e-4, large 2e-4, 0.06); by default
    elsewhere. A rate or an optimizer that is given without a recipe replaces fast's optimizer by plain's."""
    seed: int = 0
    """Decides initial weights, the order of the data, which sequences share a row, and masks."""
    rows_per_update: int = 4
    """Rows in an update, over all ranks: by default 4, small 16, base and large 512, of 1,024 tokens."""
    sequences_per_update: int | None = None
    """Sequences in an update, packed into as few rows as possible; in place of rows_per_update. It is the
    batch size of a recipe without packing."""
    rows_per_micro_batch: Literal["auto"] | int | None = incidental(None)
    """Rows in one forward and backward pass. The default on a GPU: the most that fit in memory. On a CPU: the
    most that divide the update and have 2 ** 20 numbers of hidden states or fewer (4 rows of 1,024 at mini).
    auto: in a dry run on a CPU too, what a GPU holds."""
    loss_mean: LossMean = "tokens"
    """The loss is a mean over predictions (tokens), or over the means of sequences, so that each sequence
    counts the same (the Packed-BERT paper)."""
    precision: Precision = "auto"
    """Number format of the computation. auto: bf16 where the device is fast at it; else, on V100 and T4, fp16
    with loss scaling; else fp32."""
    validation_tokens: int = 100_000
    """The most validation tokens that an evaluation reads of each source: more for a steadier loss. 0 = no
    evaluation."""
    phases: Annotated[tuple[PhaseConfig, ...], PHASES] = ()
    """Phases of the run: updates, packing.max_length, and rows (or sequences) in an update. Their steps add
    up to trainer.steps. In a --config file, each has steps, max_length and update_size; a learning_rate or
    a warmup starts the schedule anew."""
    verify_data: bool = incidental(True)
    """Check every byte of the data before the first update; --no-verify-data skips the check, where it takes
    long and the data was checked before."""
    sequences: SequencesConfig = SequencesConfig()
    packing: PackingConfig = PackingConfig()
    masking: MaskingConfig = MaskingConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    trainer: TrainerConfig = TrainerConfig(checkpoint_every=500)
    dry_run: bool = incidental(False)
    """Check everything, say what the run would do and take (epochs, memory), and stop."""

    @classmethod
    def defaults(cls, options: Facts) -> Values:
        """Return the defaults of the options that a command line, a --config file or keywords leave out.

        The options that they give have names such as `masking.rate`.
        """
        if options.get("resume") is not None:
            return {"trainer": UNSTATED_END}  # the run has its own configuration
        recipe = options.get("recipe")
        has_recipe = recipe is not None
        if not has_recipe:
            recipe = "fast" if _is_measured(options) else "plain"
        if str(recipe) not in RECIPES:
            return {}  # building the configuration refuses it
        name = "muon" if recipe == "fast" else "adamw"
        groups: Values = {}
        size = SIZES.get(str(options.get("model")))
        if size is not None:
            tokens, max_length, rate = size
            capacity = options.get("packing.capacity", PackingConfig.capacity)
            if options.get("sequences_per_update") is None and isinstance(capacity, int):
                groups["rows_per_update"] = max(1, tokens // max(1, capacity))
            groups |= {"packing": {"max_length": max_length}, "schedule": {"warmup": WARMUP_SHARE}}
            groups["optimizer"] = {"learning_rate": rate}
        groups = merge(groups, RECIPES[str(recipe)])
        rates = ("optimizer.name", "optimizer.learning_rate", "optimizer.muon_learning_rate")
        has_rates = any(rate in options for rate in rates)
        phases = options.get("phases")
        if isinstance(phases, list | tuple):
            for phase in phases:
                has_rates |= isinstance(phase, Mapping) and "learning_rate" in phase
        # The rates of fast belong together: one of the user's replaces all. None suits another optimizer.
        replaces_fast = recipe == "fast" and has_rates and not has_recipe
        if options.get("optimizer.name", name) != name or replaces_fast:
            groups.pop("optimizer", None)
        if "masking.rate" in options:
            groups.pop("masking", None)
        return {**groups, "recipe": recipe}

    def __post_init__(self) -> None:
        require_seeds(self.seed)
        require_positive(self, "rows_per_update")
        if isinstance(self.rows_per_micro_batch, int):
            require_positive(self, "rows_per_micro_batch")
        require_range(self, "at least 0", "validation_tokens")
        self._check_phases()
        self._check_updates()
        if self.start_from is None:
            self.encoder_config()  # checks the shape
        else:
            self._refuse_new_model()
        if self.sequences.paired and self.start_from is None and self.architecture in (None, "modern"):
            raise BrimfulError(
                f"sequences.kind={self.sequences.kind} needs token types, and modern has none:"
                " choose architecture bert or prenorm"
            )
        if self.initial.attention == "neighbours" and self.architecture not in (None, "modern"):
            raise BrimfulError("initial.attention=neighbours is for architecture modern: leave it out")
        if self.trainer.keeps_best and not self.trainer.evaluate_every:
            raise BrimfulError("the best of several evaluations is kept: set trainer.evaluate_every too")

    def _refuse_new_model(self) -> None:
        """Refuse options of a new model beside start_from."""
        options: Values = {"model": self.model, "architecture": self.architecture}
        for group, config in (("model", self.shape), ("initial", self.initial)):
            for name, value in vars(config).items():
                options[f"{group}.{name}"] = value
        for name, value in options.items():
            if value is not None:
                raise BrimfulError(f"{name} is for a new model, and start_from has its own: leave it out")

    def _check_phases(self) -> None:
        for phase in self.phases:
            if phase.max_length is not None:
                replace(self.packing, max_length=phase.max_length)  # checks the length
        steps = sum(phase.steps for phase in self.phases)
        if self.phases and steps != self.trainer.steps:
            raise BrimfulError(
                f"the steps of phases add up to {steps}, and trainer.steps is {self.trainer.steps}:"
                " make them equal"
            )
        Schedule(self.schedule, self.cycles(), self.trainer.hours)  # checks the cycles

    def _check_updates(self) -> None:
        """Require one size of an update, which micro-batches divide."""
        phases = [phase.update_size for phase in self.phases]
        for size in (self.sequences_per_update, self.rows_per_update, *phases):
            if size is not None and size > MAX_UPDATE_SIZE:
                raise BrimfulError(
                    f"an update of {size:,} rows or sequences: the most is {MAX_UPDATE_SIZE:,}"
                )
        if self.sequences_per_update is not None:
            require_positive(self, "sequences_per_update")
            if self.rows_per_update != PretrainConfig.rows_per_update:
                raise BrimfulError(
                    "sequences_per_update and rows_per_update both say how large an update is: give one of"
                    " them"
                )
            return
        if not isinstance(self.rows_per_micro_batch, int):
            return
        for rows in (self.rows_per_update, *phases):
            if rows and rows % self.rows_per_micro_batch:
                raise BrimfulError(
                    f"rows_per_micro_batch ({self.rows_per_micro_batch}) must divide the rows of an update"
                    f" ({rows}); without it, a number is chosen"
                )

    def run_phases(self) -> list[Phase]:
        """Return the phases of the data; a run without `phases` has one."""
        if self.sequences_per_update:
            return make_phases(self._phases(), self.packing, self.sequences_per_update, "sequences")
        return make_phases(self._phases(), self.packing, self.rows_per_update, "rows")

    def cycles(self) -> list[Cycle]:
        """Return the cycles of the schedule; see `make_cycles`."""
        return make_cycles(self._phases(), self.optimizer.learning_rate)

    def _phases(self) -> tuple[PhaseConfig, ...]:
        return self.phases or (PhaseConfig(steps=self.trainer.steps),)

    def longest_sequence(self) -> int:
        """Return the largest number of tokens that a sequence of the run may have."""
        return max(phase.packing.max_length for phase in self.run_phases())

    def encoder_config(self, tokenizer: Tokenizer | None = None) -> EncoderConfig:
        """Return the shape of a new model. Without the data's tokenizer, the shape is only checked."""
        changes = {name: value for name, value in vars(self.shape).items() if value is not None}
        if tokenizer is not None:
            changes["vocabulary_size"] = tokenizer.get_vocab_size()
            changes["pad_id"] = special_ids(tokenizer).pad
        return preset(
            self.model or "mini",
            self.architecture or "modern",
            max_length=self.longest_sequence(),
            **changes,
        )
