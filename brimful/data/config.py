"""The options of pretraining's data: sequences, rows, masks and phases."""

from dataclasses import dataclass
from typing import Literal

from brimful.base.errors import BrimfulError, require_range
from brimful.packing.histogram import MAX_CAPACITY

SPECIAL_TOKENS = 2
"""[CLS] before a sequence, and [SEP] after it."""
PAIR_SPECIAL_TOKENS = 3
"""[CLS] before a pair, [SEP] between its two segments, and [SEP] after it."""


@dataclass(frozen=True, kw_only=True)
class SequencesConfig:
    """How documents become sequences."""

    kind: Literal["sentences", "chunks", "nsp"] = "sentences"
    """sentences: as many whole sentences as fit; chunks: as many tokens as fit, cut at words; nsp: pairs of
    segments, half with a second segment from another document (BERT)."""
    short_share: float = 0.0
    """Fraction of sequences with a limit below max_length, drawn uniformly (BERT has 0.1)."""

    def __post_init__(self) -> None:
        if not 0 <= self.short_share <= 1:
            raise BrimfulError(f"sequences.short_share is {self.short_share}: it must be from 0 to 1")

    @property
    def paired(self) -> bool:
        """Whether sequences have two segments."""
        return self.kind == "nsp"

    @property
    def special_tokens(self) -> int:
        """The most special tokens in a sequence."""
        return PAIR_SPECIAL_TOKENS if self.paired else SPECIAL_TOKENS


@dataclass(frozen=True, kw_only=True)
class PackingConfig:
    """How long sequences are and how they share rows."""

    max_length: int = 128
    """The most tokens in a sequence, special ones included."""
    capacity: int = 1024
    """Token slots of a row: more for longer sequences, and on a GPU, which is faster with more."""
    max_sequences: int | None = None
    """The most sequences in a row; by default an eighth of the capacity."""

    def __post_init__(self) -> None:
        if not 5 <= self.max_length <= self.capacity:
            raise BrimfulError(
                f"packing.max_length is {self.max_length}: it must be at least 5 and at most packing.capacity"
                f" ({self.capacity})"
            )
        require_range(self, f"at most {MAX_CAPACITY}", "capacity", group="packing.")
        require_range(self, "at least 1", "max_sequences", group="packing.")

    @property
    def depth(self) -> int:
        """The most sequences in a row."""
        return self.max_sequences or max(1, self.capacity // 8)


Unit = Literal["words", "tokens"]


@dataclass(frozen=True, kw_only=True)
class MaskingConfig:
    """Which tokens a model must predict, and what it sees in their place."""

    rate: float = 0.15
    """Expected fraction of tokens to predict."""
    final_rate: float | None = None
    """The rate at the end of the run, approached linearly; by default the rate is constant."""
    unit: Unit = "words"
    """What is masked as a whole: words or tokens."""
    together: bool = False
    """Whether the tokens of a word are all [MASK], all random or all unchanged; false draws for each."""
    mask_share: float = 0.8
    """Fraction of the predicted tokens that are shown as [MASK]."""
    random_share: float = 0.1
    """Fraction that is shown as a random token; all others are shown unchanged."""

    def __post_init__(self) -> None:
        for name in ("rate", "final_rate"):
            rate = getattr(self, name)
            if rate is not None and not 0 < rate <= 1:
                raise BrimfulError(f"masking.{name} is {rate:g}: it must be a fraction above 0 and at most 1")
        if not (self.mask_share >= 0 and self.random_share >= 0 and self.mask_share + self.random_share <= 1):
            raise BrimfulError(
                f"masking.mask_share is {self.mask_share} and masking.random_share {self.random_share}:"
                " both are fractions, which must add up to at most 1"
            )
        if self.together and self.unit == "tokens":
            raise BrimfulError("masking.together is for whole words; set masking.unit to words")

    def rate_at(self, progress: float) -> float:
        """The rate when this fraction of the run is done."""
        if self.final_rate is None:
            return self.rate
        return self.rate + (self.final_rate - self.rate) * min(progress, 1.0)

    @property
    def highest_rate(self) -> float:
        """The highest rate of the run."""
        return max(self.rate, self.rate_at(1.0))


@dataclass(frozen=True)
class Phase:
    """A phase of a run.

    Attributes:
        steps: number of updates.
        packing: the packing of the blocks that begin in the phase. All phases have the same capacity.
        size: size of an update, in rows or in sequences.
        unit: the unit of `size`, the same in all phases.
    """

    steps: int
    packing: PackingConfig
    size: int
    unit: Literal["rows", "sequences"] = "rows"
