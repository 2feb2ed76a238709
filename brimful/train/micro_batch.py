"""The size of micro-batches, and what happens when one does not fit in memory.

If the size was chosen automatically, it is halved once, for the rest of the run; otherwise the error says
what to set. An update holds the same sequences whatever the size of its micro-batches, and its loss is a mean
over all of them, so an update can be made again with smaller ones. Only dropout differs.
"""

import gc
import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from brimful.base.console import warn
from brimful.base.distributed import World
from brimful.base.errors import BrimfulError, is_out_of_memory
from brimful.data.config import Phase


class SizedStream(Protocol):
    """A stream whose micro-batches have a number of rows that can be set (`data.rows.RowStream`)."""

    rows_per_micro_batch: int

    @property
    def phases(self) -> Sequence[Phase]:
        """All phases of the run."""


def valid_sizes(phases: Sequence[Phase], most: int) -> list[int]:
    """The numbers of rows up to `most` that a micro-batch may have, ascending.

    Where updates are counted in rows, a size must divide the update of every phase. Where they are counted in
    sequences, the sizes are the powers of two.
    """
    if phases[0].counted == "sequences":
        return [1 << n for n in range(most.bit_length())]
    rows = math.gcd(*(phase.size for phase in phases))
    return [size for size in range(1, min(most, rows) + 1) if rows % size == 0]


class MicroBatches:
    """Knows the size of a run's micro-batches and whether it may still be halved.

    Args:
        stream: its `rows_per_micro_batch` is the size. None: a stream that does not count rows.
        auto: whether the size may be halved, once.

    Attributes:
        fell_to: the size after halving, or None.
    """

    def __init__(self, world: World, stream: SizedStream | None = None, *, auto: bool = False) -> None:
        self.world = world
        self.stream = stream
        self.auto = auto
        self.fell_to: int | None = None

    def check(self, error: Exception, step: int) -> None:
        """Raise the error, unless memory ran out and smaller micro-batches may help.

        Args:
            step: the update's number, from 0.

        Raises:
            BrimfulError: memory ran out, and the size may not be halved.
            Exception: `error` itself, if memory did not run out.
        """
        if not is_out_of_memory(error):
            raise error
        if not self._may_halve:
            raise BrimfulError(self._advice(step)) from error

    def any_rank(self, out_of_memory: bool) -> bool:
        """Whether memory ran out on any rank. All ranks call it; they ask each other only if it matters."""
        return self._may_halve and self.world.sum([float(out_of_memory)])[0] > 0

    def halve(self) -> None:
        """Change the stream's size to half, or to the next valid size below half. Open the stream again."""
        assert self.stream is not None
        before, self.fell_to = self.stream.rows_per_micro_batch, self._smaller
        assert self.fell_to is not None
        self.stream.rows_per_micro_batch = self.fell_to
        if self.world.device.type == "cuda":
            torch.compiler.reset()  # graphs of the larger shape hold memory, in reference cycles
            gc.collect()
            torch.cuda.empty_cache()
        if self.world.is_main:
            warn(
                f"out of memory with rows_per_micro_batch {before}: continuing with {self.fell_to} for the"
                " rest of this run"
            )

    @property
    def _may_halve(self) -> bool:
        """The same on every rank."""
        return self.auto and self.fell_to is None and self._smaller is not None

    @property
    def _smaller(self) -> int | None:
        """The largest valid size up to half of the present one, if there is one."""
        assert self.stream is not None
        sizes = valid_sizes(self.stream.phases, self.stream.rows_per_micro_batch // 2)
        return sizes[-1] if sizes else None

    def _advice(self, step: int) -> str:
        what = f"out of memory at step {step + 1}"
        if self.stream is None:
            return f"{what}: lower micro_batch_tokens"
        what += f" with rows_per_micro_batch {self.stream.rows_per_micro_batch}"
        if self.fell_to is not None:
            what += ", which was halved before"
        if self._smaller is None:
            return f"{what}: lower packing.capacity, or choose a smaller model"
        return f"{what}: set it to {self._smaller} (to continue with --resume, in the run's config.yaml)"

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint: JSON values."""
        return {"auto": self.auto, "fell_to": self.fell_to}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a `state_dict`. A size that was halved stays, unless a smaller one is set."""
        self.auto |= state["auto"]
        if state["fell_to"] is not None and self.stream is not None:
            self.stream.rows_per_micro_batch = min(self.stream.rows_per_micro_batch, state["fell_to"])
            self.fell_to = state["fell_to"]
