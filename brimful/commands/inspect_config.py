"""The options of `brimful inspect`."""

from dataclasses import dataclass
from typing import Annotated

from brimful.base.config import Argument, require_positive
from brimful.base.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class InspectConfig:
    """Show documents word by word, and what was dropped or changed and why; or a run's batches; or check all
    files."""

    EXAMPLE = "data --documents 3"

    directory: Annotated[str, Argument(positional=True)]
    """A folder that prepare wrote, or the run directory of a pretrain or a finetune (or a training in one),
    which shows the run's own batches. With --verify any folder, also one above them."""
    verify: bool = False
    """Check every byte below the folder against the checksums in its commit records, and nothing else."""
    documents: int = 5
    """How many documents to show."""
    tokens: int = 150
    """How many tokens of each document or row to show at most."""
    examples: int = 2
    """How many examples to show of each cleaning rule."""
    batches: int | None = None
    """How many micro-batches to show; by default, a run shows all of one update. Those of a prepared folder
    are what pretrain makes of it with default settings."""
    update: int | None = None
    """The first update to show, counted from 1. The update of a spike is found at once. For others, sequences
    are chosen again from the nearest earlier checkpoint, or from the start of the run."""
    seed: int = 0
    """Another seed shows other documents, or other batches of a prepared folder."""

    def __post_init__(self) -> None:
        given = [name for name in ("batches", "update") if getattr(self, name) is not None]
        require_positive(self, "documents", "tokens", "examples", *given)
        if self.verify and given:
            raise UsageError(f"--verify checks files and shows no batches: leave --{given[0]} out")
