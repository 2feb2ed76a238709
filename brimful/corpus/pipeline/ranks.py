"""Several machines prepare one corpus: `--rank R --world N` on a shared file system, as in a SLURM array.

Each rank does every N-th task. Between the stages stands a barrier that consists of files: a rank waits until
the commit records that it needs are there, whoever makes them. A rank that fails leaves a note, so that the
others stop too.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from brimful.console import say
from brimful.errors import BrimfulError
from brimful.storage import atomic_file

T = TypeVar("T")

POLL_SECONDS = 0.5
SECONDS_BETWEEN_MESSAGES = 30.0


class Ranks:
    """This process among those that prepare a corpus together: `rank` of 0 to `world` - 1.

    Args:
        purpose: names the inputs and settings, which must be the same for all ranks.
    """

    def __init__(self, directory: Path, rank: int, world: int, purpose: str) -> None:
        self.rank, self.world = rank, world
        self._folder = directory / "ranks"
        self._purpose = purpose
        self._started = 0.0

    @property
    def is_main(self) -> bool:
        """Does this rank do what only one can do?"""
        return self.rank == 0

    def own(self, tasks: Sequence[T]) -> list[T]:
        """This rank's share."""
        return list(tasks[self.rank :: self.world])

    def _note(self, rank: int, kind: str) -> Path:
        return self._folder / f"{rank}.{kind}"

    def __enter__(self) -> "Ranks":
        if self.world > 1:
            self._note(self.rank, "failed").unlink(missing_ok=True)
            with atomic_file(self._note(self.rank, "started")) as temporary:
                temporary.write_text(self._purpose)
            self._started = self._note(self.rank, "started").stat().st_mtime
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.world > 1 and error is not None:
            with atomic_file(self._note(self.rank, "failed")) as temporary:
                temporary.write_text(f"{error or type(error).__name__}\n", encoding="utf-8")

    def wait(self, tasks: Sequence[T], is_done: Callable[[T], bool], what: str) -> None:
        """Return when all tasks are done, by whichever rank; at once if there is only one.

        Raises:
            BrimfulError: another rank has failed, or was started with other settings, since this one started.
        """
        pending = list(enumerate(tasks)) if self.world > 1 else []
        shown = time.monotonic()
        while pending := [(number, task) for number, task in pending if not is_done(task)]:
            self._stop_if_another_failed()
            if time.monotonic() - shown > SECONDS_BETWEEN_MESSAGES:
                shown = time.monotonic()
                owners = ", ".join(self._name(rank) for rank in sorted({n % self.world for n, _ in pending}))
                say(f"waiting for {len(pending)} of {len(tasks)} {what}, of rank {owners}")
            time.sleep(POLL_SECONDS)

    def _name(self, rank: int) -> str:
        return f"{rank} (failed before: start it again)" if self._note(rank, "failed").exists() else str(rank)

    def _recent(self, rank: int, kind: str) -> str | None:
        """What another rank noted since this one started."""
        try:
            note = self._note(rank, kind)
            return note.read_text(encoding="utf-8") if note.stat().st_mtime >= self._started else None
        except FileNotFoundError:
            return None

    def _stop_if_another_failed(self) -> None:
        for rank in range(self.world):
            if rank == self.rank:
                continue
            if self._recent(rank, "started") not in (None, self._purpose):
                raise BrimfulError(
                    f"rank {rank} was started with other inputs or settings than rank {self.rank}; start all "
                    "ranks with the same command"
                )
            reason = self._recent(rank, "failed")
            if reason is not None:
                raise BrimfulError(
                    f"rank {rank} failed ({reason.strip()}); start all ranks again: what is finished is kept"
                )
