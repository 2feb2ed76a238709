"""Micro-batches that do not fit: one line that says what to set; or, where the size was to be found
automatically, half as many rows, once.

An update holds the same sequences whatever the size of its micro-batches, and its loss is a mean over all of
them, so it may be made again with fewer rows at a time. Only dropout differs.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from brimful.console import warn
from brimful.data.rows import Phase, RowStream
from brimful.distributed import World
from brimful.errors import BrimfulError, is_out_of_memory

T = TypeVar("T")


def valid_sizes(phases: Sequence[Phase], most: int) -> list[int]:
    """Ascending: up to `most`, the rows that a micro-batch may have.

    Where updates are counted in rows, it divides those of every phase; else it is a power of two.
    """
    if phases[0].counted == "sequences":
        return [1 << n for n in range(most.bit_length())]
    rows = math.gcd(*(phase.size for phase in phases))
    return [size for size in range(1, min(most, rows) + 1) if rows % size == 0]


class MicroBatches:
    """Watches that a run's micro-batches fit.

    Args:
        stream: whose `rows_per_micro_batch` it changes; None: a stream that counts no rows.
        auto: whether it may, once.
    """

    def __init__(self, world: World, stream: RowStream | None = None, *, auto: bool = False) -> None:
        self.world = world
        self.stream = stream
        self.auto = auto
        self.fell_to: int | None = None

    def attempt(self, step: int, compute: Callable[[], T], drop: Callable[[], None]) -> T | None:
        """What `compute` returns, which makes this rank's gradients; None if it did not fit on any rank: then
        the stream makes smaller micro-batches from here on, and must be opened again.

        Args:
            step: the update's number, from 0.
            drop: forgets what `compute` left behind.

        Raises:
            BrimfulError: it did not fit, and may not be tried again.
        """
        made, lacked = None, False
        try:
            made = compute()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if not self._may_halve:
                raise BrimfulError(self._advice(step)) from error
            lacked = True
        if self._may_halve and self.world.sum([float(lacked)])[0]:
            drop()
            self._halve()
            return None
        return made

    @property
    def _may_halve(self) -> bool:
        """The same on every rank."""
        return self.auto and self.fell_to is None and self._smaller is not None

    @property
    def _smaller(self) -> int | None:
        """The next smaller size, if there is one."""
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
        return f"{what}: set it to {self._smaller} (to go on with --resume, in the run's config.yaml)"

    def _halve(self) -> None:
        assert self.stream is not None
        before, self.fell_to = self.stream.rows_per_micro_batch, self._smaller
        assert self.fell_to is not None
        self.stream.rows_per_micro_batch = self.fell_to
        if self.world.device.type == "cuda":
            torch.compiler.reset()  # graphs of the larger shape hold memory
            torch.cuda.empty_cache()
        if self.world.is_main:
            warn(
                f"out of memory with rows_per_micro_batch {before}: going on with {self.fell_to}, which holds"
                " for this run from now on"
            )

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: JSON values."""
        return {"auto": self.auto, "fell_to": self.fell_to}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a `state_dict`: with its size, if it has halved one, unless a smaller one is set."""
        self.auto |= state["auto"]
        if state["fell_to"] is not None and self.stream is not None:
            self.stream.rows_per_micro_batch = min(self.stream.rows_per_micro_batch, state["fell_to"])
            self.fell_to = state["fell_to"]
