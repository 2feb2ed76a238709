"""The options of `brimful doctor`."""

from dataclasses import dataclass
from typing import Annotated

from brimful.data.mixture import SOURCES, DataSource


@dataclass(frozen=True, kw_only=True)
class DoctorConfig:
    """Say how fast these machines are, whether their sums are right, and which ranks to train on."""

    EXAMPLE = "--data data"

    data: Annotated[str | tuple[str | DataSource, ...] | None, SOURCES] = None
    """Folder made by `brimful prepare`, or several, as for pretrain: web:9 mine:1. Reading them is measured
    too."""
