"""The options of `brimful check`."""

from dataclasses import dataclass
from typing import Annotated

from brimful.base.config import Argument
from brimful.tables.layouts import OWN, Columns
from brimful.tasks.registry import TASK_HELP


@dataclass(frozen=True, kw_only=True)
class CheckConfig:
    """Look for what is odd in labelled tables: repeats, leaks, contradictions, rare labels, long texts."""

    EXAMPLE = "train.tsv test.tsv"

    files: Annotated[tuple[str, ...], Argument(positional=True)]
    """Tables of the task: train first, then any others (dev, test), which are compared with it."""
    encoder: str | None = None
    """Folder of an encoder: RUN/encoder, the RUN itself, or a Hugging Face folder. With it, the tokens of the
    texts are checked too."""
    task: Annotated[str | None, TASK_HELP] = None
    columns: Columns = OWN
    """Other names of the columns."""
    layout: str | None = None
    """How the files are laid out: glue/mnli, squad ... as in finetune."""
    max_length: int | None = None
    """The most tokens of an example. By default 128, or the encoder's maximum if less, as in finetune."""
    overlap: int | None = None
    """Longer texts become windows that share this many tokens, as in finetune."""
