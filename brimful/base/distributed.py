"""Ranks: this process among the processes of a distributed run, and the sums that they share.

`torchrun` starts the ranks and sets RANK, LOCAL_RANK and WORLD_SIZE. Without it there is one rank. Gradients
are summed, not averaged: each loss is divided by the normalizer of the whole update before it is
differentiated, so the sum over ranks is already the mean over the update.
"""

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import Any
from uuid import uuid4

import torch
import torch.distributed as dist

from brimful.base.device import default_device
from brimful.base.environment import rank_and_size
from brimful.base.errors import BrimfulError

MAX_WAIT_SECONDS = 86400.0
"""The longest wait in a collective outside of training, in seconds: there one rank may work for hours."""
MAX_START_SECONDS = 1800.0
"""The longest wait of ranks for the last one to start, in seconds; also torch's limit for its store."""
ANSWER_SECONDS = 0.02
"""Seconds between two checks by the main rank for ranks that ask to join."""
_OF_RANKS = re.compile(r"gloo/transport|[Cc]onnection (closed|reset) by|Timed out waiting|DistBackendError")


@dataclass(frozen=True)
class World:
    """This process and its peers.

    Attributes:
        rank: from 0 to size - 1.
        size: the number of processes.
        device: the device of this process.
    """

    rank: int
    size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and talks to the user."""
        return self.rank == 0

    def sum(self, values: list[float]) -> list[float]:
        """Return the sum of each value over all ranks, in float64 on the CPU: no device waits for it."""
        if self.size == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def sum_each(self, *groups: Mapping[Any, float]) -> list[dict[Any, float]]:
        """Sum each value of mappings over all ranks, in one all-reduce; all ranks have the same keys."""
        # One iterator for all groups: each takes as many sums as it has keys.
        sums = iter(self.sum([value for group in groups for value in group.values()]))
        return [dict(zip(group, sums, strict=False)) for group in groups]

    def least(self, value: int) -> int:
        """Return the smallest of the ranks' values."""
        return min(self.gather(value))

    def gather(self, value: Any) -> list[Any]:
        """Return the value of each rank, in the order of the ranks. Any value that can be pickled will do."""
        if self.size == 1:
            return [value]
        values = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def from_main(self, value: Any) -> Any:
        """Return the main rank's value on every rank. Any value that can be pickled will do."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, 0)
        return values[0]

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.size > 1:
            dist.barrier()

    @contextmanager
    def waits(self, seconds: float) -> Iterator[None]:
        """A context in which a rank waits at most `seconds` in a collective; 0 means `MAX_WAIT_SECONDS`.

        After that, gloo raises an error, which `join_ranks` explains, and NCCL's watchdog ends the process.
        """
        if self.size == 1:
            yield
            return
        _limit_waits(seconds or MAX_WAIT_SECONDS)
        try:
            yield
        finally:
            _limit_waits(MAX_WAIT_SECONDS)


SINGLE_RANK = World(0, 1, torch.device("cpu"))
"""A process without peers."""


@contextmanager
def join_ranks() -> Iterator[World]:
    """Join the ranks that torchrun started, or be the only rank. On exit, leave them.

    Raises:
        BrimfulError: see `default_device` and `rank_and_size`; or another rank has ended or keeps this one
            waiting.
    """
    rank, size = rank_and_size()
    device = default_device()
    on_cuda = device.type == "cuda"
    if on_cuda:
        # Torch reads this once, at the first product, and a later verb of this process may be deterministic.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.cuda.set_device(device)
    if size == 1 or dist.is_initialized():
        yield World(rank, size, device)
        return
    # A name of their own keeps these ranks from reading what earlier ranks have left in the store.
    store, _, _ = next(dist.rendezvous("env://"))
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if on_cuda else "gloo",
        store=dist.PrefixStore(agree_on_name(store, rank, size), store),
        rank=rank,
        world_size=size,
    )
    unhandled = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if unhandled and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)
    try:
        _limit_waits(MAX_WAIT_SECONDS)
        if on_cuda:
            dist.all_reduce(torch.zeros(1, device=device))  # NCCL reserves its memory before the run does
        yield World(rank, size, device)
    except RuntimeError as error:
        if not is_rank_failure(error):
            raise
        raise BrimfulError(
            f"rank {rank} {_describe_failure(error)}; the run can go on with --resume"
        ) from error
    finally:
        if signal.getsignal(signal.SIGTERM) == _terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        dist.destroy_process_group()


def _limit_waits(seconds: float) -> None:
    # torch has no public function for this.
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), dist.group.WORLD)


def is_rank_failure(error: BaseException | None) -> bool:
    """Whether a collective failed because another rank has ended or did not take part."""
    return isinstance(error, RuntimeError) and bool(_OF_RANKS.search(f"{type(error).__name__}: {error}"))


def _describe_failure(error: RuntimeError) -> str:
    # The first line, without the place in gloo's source and its advice.
    reason = re.sub(r"^\[\S+\] ", "", str(error).strip().splitlines()[0]).partition(". This is")[0]
    if "Timed out" in reason:
        return f"has waited in vain for another rank, as long as trainer.hang_limit allows ({reason})"
    return f"has lost another rank, which torchrun names ({reason})"


def _terminate(number: int, frame: FrameType | None) -> None:
    # torchrun sends SIGTERM to the remaining ranks. A rank that reports a lost rank finishes its report.
    if not is_rank_failure(sys.exc_info()[1]):
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def agree_on_name(store: dist.Store, rank: int, size: int) -> str:
    """Agree on a name that no earlier ranks have used. All ranks call this function.

    torchrun's store outlives the ranks, with the addresses that they have left there. A count of restarts is
    not enough: each machine counts its own, and a process may join several times. So each rank asks under a
    name of its own. The main rank answers all questions that it finds, old ones too, until all ranks have
    read an answer.

    Raises:
        BrimfulError: a rank has not come within half an hour.
    """
    own = f"brimful {uuid4().hex}"
    if rank:
        store.set(f"brimful asks {rank}", own)
        try:
            name = store.get(f"answer to {own}").decode()
        except dist.DistStoreError as error:
            raise BrimfulError(f"rank {rank} has waited for rank 0 in vain: is it running?") from error
        store.set(f"{name} is known to {rank}", "")
        return name
    missing, end = set(range(1, size)), time.monotonic() + MAX_START_SECONDS
    while missing := {other for other in missing if not store.check([f"{own} is known to {other}"])}:
        if time.monotonic() > end:
            ranks = ", ".join(map(str, sorted(missing)))
            raise BrimfulError(f"rank 0 has waited for rank {ranks} in vain: are they running?")
        for other in missing:
            if store.check([f"brimful asks {other}"]):
                store.set(f"answer to {store.get(f'brimful asks {other}').decode()}", own)
        time.sleep(ANSWER_SECONDS)
    return own
