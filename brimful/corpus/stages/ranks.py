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
    """This process among those that prepare a corpus together: `rank` of 0 to `world` - 1."""

    def __init__(self, directory: Path, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self._folder = directory / "ranks"
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
                temporary.touch()
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
            BrimfulError: another rank has failed since this one started.
        """
        pending = list(enumerate(tasks)) if self.world > 1 else []
        shown = time.monotonic()
        while pending := [(number, task) for number, task in pending if not is_done(task)]:
            self._stop_if_another_failed()
            if time.monotonic() - shown > SECONDS_BETWEEN_MESSAGES:
                shown = time.monotonic()
                owners = ", ".join(map(str, sorted({number % self.world for number, _ in pending})))
                say(f"waiting for {len(pending)} of {len(tasks)} {what}, of ranks {owners}")
            time.sleep(POLL_SECONDS)

    def _stop_if_another_failed(self) -> None:
        for rank in range(self.world):
            note = self._note(rank, "failed")
            if rank != self.rank and note.exists() and note.stat().st_mtime >= self._started:
                reason = note.read_text(encoding="utf-8").strip()
                raise BrimfulError(
                    f"rank {rank} failed ({reason}); start all ranks again: what is finished is kept"
                )
