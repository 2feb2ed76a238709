"""The options of `brimful inspect`."""

from dataclasses import dataclass
from typing import Annotated

from brimful.base.config import Argument, require_positive
from brimful.base.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class InspectConfig:
    """Show documents word by word, and what was dropped or changed and why; or what an update of a
    pretraining sees; or check all files."""

    EXAMPLE = "data --documents 3"

    directory: Annotated[str, Argument(positional=True)]
    """A folder that prepare wrote, or the run directory of a pretrain, which shows the run's own rows. With
    --verify any folder, also one above them."""
    verify: bool = False
    """Check every byte below the folder against the checksums in its commit records, and nothing else."""
    documents: int = 5
    """How many documents to show."""
    tokens: int = 150
    """How many tokens of each document or row to show at most."""
    examples: int = 2
    """How many examples to show of each cleaning rule."""
    update: int | None = None
    """The update of a run whose rows are shown, counted from 1; by default the first. The update of a spike
    is found at once. For others, sequences are chosen again from the nearest earlier checkpoint, or from the
    start of the run."""
    seed: int = 0
    """Another seed shows other documents."""

    def __post_init__(self) -> None:
        given = ["update"] if self.update is not None else []
        require_positive(self, "documents", "tokens", "examples", *given)
        if self.verify and given:
            raise UsageError("--verify checks files and shows no rows: leave --update out")
