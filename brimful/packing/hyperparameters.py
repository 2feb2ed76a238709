"""How to follow a training recipe for unpacked sequences with packed rows.

A row holds `packing_factor` sequences, so with the same number of rows an update sees that many times more
sequences. There are two ways to follow the recipe:

- keep the *sequences* per update: fewer rows. Graphcore's published training code divides the accumulation
  steps by the packing factor. Nothing else changes, so it is the default.
- keep the *rows* per update: fewer updates for the same data. Krell et al. (2021, arXiv 2107.02027, on
  adjusting hyper-parameters) then raise the decay rates of the optimizer to the power of the packing
  factor, so that a moment forgets after as many sequences as before.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from brimful.base.errors import BrimfulError, nearest

Keep = Literal["sequences", "rows"]


@dataclass(frozen=True)
class Suggestion:
    """Settings for packed training.

    Attributes:
        rows_per_update: rows that one update takes, over all ranks.
        betas: decay rates of the optimizer's moments.
        sequences_per_update: sequences that an update then holds on average.
    """

    rows_per_update: int
    betas: tuple[float, ...]
    sequences_per_update: float


def suggest(
    packing_factor: float,
    batch_size: int,
    betas: tuple[float, ...] = (0.9, 0.999),
    *,
    keep: Keep = "sequences",
    multiple_of: int = 1,
) -> Suggestion:
    """Settings with which packed training follows a recipe for one sequence per row.

    Args:
        packing_factor: sequences in a row on average (`Plan.packing_factor`).
        batch_size: sequences of the recipe's update.
        betas: decay rates of the recipe's optimizer.
        keep: what stays as it was; see the module.
        multiple_of: rows_per_update is a multiple of it, such as the rows of a micro-batch times the ranks.

    Raises:
        BrimfulError: a packing factor or a batch size below 1, or a decay rate outside [0, 1).
    """
    if not 1 <= packing_factor < math.inf:
        raise BrimfulError(f"packing_factor is {packing_factor}: a row holds at least one sequence")
    if keep not in get_args(Keep):
        raise BrimfulError(f"keep is {keep!r}: {nearest(keep, get_args(Keep))}")
    if batch_size < 1 or multiple_of < 1:
        raise BrimfulError(f"batch_size is {batch_size}, multiple_of {multiple_of}: they must be at least 1")
    if not all(0 <= beta < 1 for beta in betas):
        raise BrimfulError(f"betas are {betas}: each must be at least 0 and below 1")
    rows = batch_size / packing_factor if keep == "sequences" else batch_size
    rows = max(1, round(rows / multiple_of)) * multiple_of
    if keep == "rows":
        betas = tuple(beta**packing_factor for beta in betas)
    return Suggestion(rows, betas, rows * packing_factor)
