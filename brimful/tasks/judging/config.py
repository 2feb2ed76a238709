"""The options of `brimful check`."""

from dataclasses import dataclass
from typing import Annotated

from brimful.base.config import Argument
from brimful.tables.layouts import LabelOptions
from brimful.tasks.registry import TASK_HELP


@dataclass(frozen=True, kw_only=True)
class CheckConfig(LabelOptions):
    """Look for what is odd in labelled tables: repeats, leaks, contradictions."""

    EXAMPLE = "train.tsv test.tsv"

    files: Annotated[tuple[str, ...], Argument(positional=True)]
    """Tables of the task: train first, then any others (dev, test), which are compared with it."""
    task: Annotated[str | None, TASK_HELP] = None
