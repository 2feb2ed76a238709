"""What every verb that trains does around its work (`Job.run`).

    open     rank, lock; a finished run only returns its summary
    plan     the verb's: a configuration -> everything the run has decided, resolved once and frozen
    inputs   the files that decide the result are those that an interrupted run began with
    start    config.yaml, on the main rank; a dry run ends before
    work     the verb's: train, save the model, return the summary
    finish   seals, summary.json, and what only a resume needs goes

A plan writes no result; it may sweep what a killed run has left half-written. A kill after the start leaves a
folder that `--resume` continues, and one before it nothing: the same command begins anew.
"""

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from brimful.base.config import build, config_hash, identity, write_yaml
from brimful.base.console import say
from brimful.base.distributed import World, join_ranks
from brimful.base.errors import BrimfulError, UsageError
from brimful.base.folder_lock import FolderLock
from brimful.base.seals import seal
from brimful.base.storage import read_object, sweep, write_json
from brimful.runs.directory import (
    CONFIG,
    INPUTS,
    MODELS,
    SUMMARY,
    check_inputs,
    read_config,
)
from brimful.runs.folder import RunFolder, remove_results
from brimful.runs.places import require_options, require_run_place
from brimful.runs.signals import StoppedError, catch_start_signals

Summary = dict[str, Any]
"""What summary.json holds."""


class RunPlan:
    """What was decided for a run before it starts: a frozen dataclass.

    Attributes:
        config: what config.yaml says, everything resolved. It is itself a valid --config.
    """

    config: Any

    @property
    def files(self) -> Mapping[str, Path]:
        """The files that decide the result, by names that are the same on other machines."""
        return {}

    @property
    def decides(self) -> Sequence[Any]:
        """What else decides the run's bits, as JSON."""
        return []


C = TypeVar("C")
P = TypeVar("P", bound=RunPlan)


@dataclass(frozen=True)
class Opened(Generic[C]):
    """The folder that a configuration names, held by this process.

    Attributes:
        config: of the run; of an interrupted one, what it has saved.
        resuming: whether the folder holds the beginning of the run.
        again: how an interrupted run is continued: "brimful VERB --resume RUN".
        summary: of a finished run, for which there is nothing to do.
    """

    config: C
    path: Path
    resuming: bool
    again: str
    summary: Summary | None = None


class Job(Generic[C, P]):
    """A verb that trains: a subclass for each. Every rank calls each of its methods, in the order of `run`.

    Attributes:
        verb: its name.
        temporary: folders in the run that only a resume needs.
    """

    verb: str
    temporary: tuple[str, ...] = ()

    def open(self, config: C, ranks: World, lock: FolderLock) -> Opened[C]:
        """Take the folder of `out` for a new run, or the one of `resume`, and say how it is continued.

        Raises:
            UsageError: an option is missing, or `resume` has options beside it.
            BrimfulError: the folder is in use, or holds something else, or there is no run to resume.
        """
        asked: Any = config
        path = Path(asked.resume or asked.out or "")
        again = f"brimful {self.verb} --resume {shlex.quote(str(path))}"
        works = ranks.is_main and not asked.dry_run
        if asked.resume is None:
            require_options(asked, self.verb, (*asked.NEEDS, "out"))
            if ranks.is_main:
                require_run_place(path, self.verb)
            if works:
                lock.take(path)
                require_run_place(path, self.verb)  # another process may have begun and ended there
            return Opened(config, path, False, again)
        if asked != build(type(asked), {"resume": asked.resume, "dry_run": asked.dry_run}):
            raise UsageError("--resume continues with the run's own configuration and takes no other options")
        if (path / SUMMARY).is_file():
            return Opened(config, path, False, again, self._finished(path, ranks))
        if works and (path / CONFIG).is_file():
            lock.take(path)
            if (path / SUMMARY).is_file():
                raise BrimfulError(f"{path} was finished by another process just now")
            sweep(path)
        saved: Any = read_config(path, type(config), self.verb, (*asked.NEEDS, "out"))
        return Opened(replace(saved, dry_run=asked.dry_run), path, True, again)

    def _finished(self, run: Path, ranks: World) -> Summary:
        summary = read_object(run / SUMMARY)
        if summary.get("kind") != self.verb:
            raise BrimfulError(f"{run} is a finished run of `brimful {summary.get('kind')}`, not {self.verb}")
        if ranks.is_main:
            say(f"{run} is finished; there is nothing to resume")
        return summary

    def plan(self, config: C, folder: RunFolder) -> P:
        """Resolve a configuration, and say what a new run will do.

        Raises:
            BrimfulError: a model, a file or a setting is unusable.
        """
        raise NotImplementedError

    def outlook(self, plan: P) -> Summary:
        """Return, and perhaps say, what a dry run found."""
        raise NotImplementedError

    def work(self, plan: P, folder: RunFolder) -> Summary:
        """Train as planned and save the model; what the main rank returns is the summary.

        Raises:
            StoppedError: a signal asked to stop.
        """
        raise NotImplementedError

    def run(self, config: C) -> Summary:
        """Run the verb, or continue what an interrupted run has begun.

        Raises:
            BrimfulError: what the plan refuses; or the folder is in use, holds something else, or has begun
                with other files.
            StoppedError: a signal asked the run to stop.
        """
        with catch_start_signals() as start, join_ranks() as ranks, FolderLock() as lock:
            opened = self.open(config, ranks, lock)
            if opened.resuming:
                start.rest = f"continue with {opened.again}"
            if opened.summary is not None:
                return opened.summary
            folder = RunFolder(opened.path, ranks, opened.resuming)
            plan = self.plan(opened.config, folder)
            inputs = check_inputs(folder.path, plan.files)
            decides = config_hash([identity(plan.config), inputs, *plan.decides])
            folder = replace(folder, identity=decides)
            try:
                if plan.config.dry_run:
                    return self.outlook(plan)
                if ranks.is_main:
                    write_yaml(folder.path / CONFIG, plan.config)
                    if inputs:
                        write_json(folder.path / INPUTS, inputs)
                ranks.barrier()
                start.over()
                summary = self.work(plan, folder)
            except StoppedError as stopped:
                raise stopped.resumed_by(opened.again) from stopped
            except KeyboardInterrupt as stopped:
                if (folder.path / CONFIG).is_file():
                    start.rest = f"continue with {opened.again}"
                    stopped.add_note(start.rest)
                raise
            ranks.barrier()  # every rank has read what is removed now
            if ranks.is_main:
                finish(folder.path, summary, self.temporary)
            ranks.barrier()
            return ranks.from_main(summary)


def finish(run: Path, summary: Summary, temporary: Sequence[str] = ()) -> None:
    """Write the checksums of the run's models, then summary.json, which marks the run as finished.

    Args:
        temporary: folders in the run that only a resume needs. They go last: a kill costs space alone.
    """
    for name in MODELS:
        if (run / name).is_dir():
            seal(run / name)
    write_json(run / SUMMARY, summary)
    for name in temporary:
        shutil.rmtree(run / name, ignore_errors=True)
    remove_results(run)
    (run / INPUTS).unlink(missing_ok=True)
