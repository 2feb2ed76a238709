"""The steps that every verb which trains takes around its work (`Job.run`).

    open     ranks and the lock of the folder; a finished run only returns its facts
    plan     the verb's own: a configuration -> a frozen plan with everything that the run has decided
    inputs   an interrupted run must find the files that it began with
    start    config.yaml, on the main rank; a dry run ends before
    work     the verb's own: train, save the model, return the facts
    finish   checksums, summary.json; files that only a resume needs are removed

A plan writes no result; it may sweep what a killed run has left half-written. A kill after the start leaves a
folder that `--resume` continues. A kill before it leaves nothing, and the same command begins anew.
"""

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from brimful.base.config import build, config_hash, flatten, identity, read_yaml, to_dict, write_yaml
from brimful.base.console import say
from brimful.base.distributed import World, join_ranks
from brimful.base.errors import BrimfulError, UsageError
from brimful.base.folder_lock import FolderLock
from brimful.base.seals import CONFIG, SUMMARY, seal
from brimful.base.storage import read_object, sweep, write_json
from brimful.base.types import Values
from brimful.runs.folder import RunFolder, remove_results
from brimful.runs.inputs import INPUTS, check_inputs
from brimful.runs.signals import StoppedError, catch_start_signals
from brimful.runs.start_checks import MODELS, require_options, require_run, require_run_place


class RunPlan:
    """Everything that is decided before a run starts: the base of a frozen dataclass.

    Attributes:
        config: the content of config.yaml, with everything resolved; it is also a valid --config.
    """

    config: Any

    @property
    def files(self) -> Mapping[str, Path]:
        """The files that decide the result, by names that are the same on other machines."""
        return {}

    @property
    def decides(self) -> Sequence[Any]:
        """Other values that decide the run's bits, as JSON."""
        return []


C = TypeVar("C")
P = TypeVar("P", bound=RunPlan)


@dataclass(frozen=True)
class Opened(Generic[C]):
    """The folder of a configuration, held by this process.

    Attributes:
        config: the configuration of the run; an interrupted run has saved its own.
        resuming: whether the folder holds the beginning of the run.
        facts: the facts of a finished run, for which there is nothing to do.
    """

    config: C
    path: Path
    resuming: bool
    facts: Values | None = None


class Job(Generic[C, P]):
    """A verb that trains: a subclass for each. Every rank calls each of its methods, in the order of `run`.

    Attributes:
        verb: its name.
        temporary: folders in the run that only a resume needs.
        ends: the settings of `trainer` that say where a run ends, which a resume may change.
    """

    verb: str
    temporary: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()

    def open(self, config: C, ranks: World, lock: FolderLock) -> Opened[C]:
        """Take the folder of `out` for a new run, or the one of `resume`.

        Raises:
            UsageError: an option is missing, or `resume` has options beside it that no run can change.
            BrimfulError: the folder is in use, or holds something else, or there is no run to resume.
        """
        options: Any = config
        path = Path(options.resume or options.out or "")
        writes = ranks.is_main and not options.dry_run
        needs = (*options.NEEDS, "out")
        if options.resume is None:
            require_options(options, self.verb, needs)
            if ranks.is_main:
                require_run_place(path, self.verb)
            if writes:
                lock.take(path)
                # Again, since another process may have begun and ended a run there before this one had the
                # lock.
                require_run_place(path, self.verb)
            return Opened(config, path, False)
        changes = self._list_changes(options)
        facts = read_object(path / SUMMARY) if (path / SUMMARY).is_file() else None
        if facts is not None:
            if facts.get("kind") != self.verb:
                raise BrimfulError(
                    f"{path} is a finished run of `brimful {facts.get('kind')}`, not {self.verb}"
                )
            if not changes:
                if ranks.is_main:
                    say(f"{path} is finished; there is nothing to resume")
                return Opened(config, path, False, facts)
        if writes and (path / CONFIG).is_file():
            lock.take(path)
            if facts is None and (path / SUMMARY).is_file():
                raise BrimfulError(f"{path} was finished by another process just now")
            sweep(path)
        saved = replace(self._read_config(path, type(options), needs), dry_run=options.dry_run)
        if not changes:
            return Opened(saved, path, True)
        if ranks.is_main:
            ends = ", ".join(f"trainer.{name} is now {value}" for name, value in changes.items())
            say(f"{path}: {ends}; from here on the learning rate is that of a whole run with this end")
        return Opened(replace(saved, trainer=replace(saved.trainer, **changes)), path, True)

    def _list_changes(self, options: Any) -> Values:
        """Return the options beside `resume`, which may only be `ends`."""
        bare, changes = {"resume": options.resume, "dry_run": options.dry_run}, {}
        if options != type(options)(**bare):  # equal: made without `build`, which fills in the values below
            unstated = flatten(to_dict(build(type(options), bare)))
            for name, value in flatten(to_dict(options)).items():
                if value != unstated[name]:
                    changes[name.removeprefix("trainer.")] = value
        if not changes.keys() <= set(self.ends):  # the others would change a run that has begun
            raise UsageError(
                "--resume continues with the run's own configuration and takes no other options than, for"
                " pretrain, --trainer.steps and --trainer.hours"
            )
        return changes

    def _read_config(self, run: Path, schema: Any, needs: Sequence[str]) -> Any:
        """Read the configuration of an interrupted run of this verb."""
        require_run(run)
        values = read_yaml(run / CONFIG)
        try:
            saved = build(schema, values)
            # A configuration of another verb may fit the schema, but lacks options that this verb needs.
            for need in needs:
                if not getattr(saved, need):
                    raise BrimfulError(f"key {need} is required")
        except BrimfulError as error:
            raise BrimfulError(
                f"{run / CONFIG} was not written by `brimful {self.verb}`: {error}; --resume takes the --out"
                " of an earlier run, with its files as they were. If a version with other options wrote it,"
                f" start a new run; `brimful export {run} --step N` gives its model"
            ) from error
        return saved

    def plan(self, config: C, folder: RunFolder) -> P:
        """Resolve a configuration, and tell the user what a new run will do.

        Raises:
            BrimfulError: a model, a file or a setting is unusable, or does not suit the others.
        """
        raise NotImplementedError

    def describe_plan(self, plan: P) -> Values:
        """Return the facts of a dry run, and perhaps say them."""
        raise NotImplementedError

    def work(self, plan: P, folder: RunFolder) -> Values:
        """Train as planned and save the model; return the facts, on the main rank.

        Raises:
            BrimfulError: a loss is NaN, or a checkpoint is of other data.
            StoppedError: a signal asked to stop.
        """
        raise NotImplementedError

    def run(self, config: C) -> Values:
        """Run the verb, or continue an interrupted run.

        Raises:
            BrimfulError: the plan refuses the configuration; or the folder is in use, holds something else,
                or has begun with other files.
            StoppedError: a signal asked the run to stop.
        """
        with catch_start_signals() as start, join_ranks() as ranks, FolderLock() as lock:
            opened = self.open(config, ranks, lock)
            remedy = f"continue with brimful {self.verb} --resume {shlex.quote(str(opened.path))}"
            if opened.resuming:
                start.remedy = remedy
            if opened.facts is not None:
                return opened.facts
            folder = RunFolder(opened.path, ranks, opened.resuming)
            # Planned on every rank, and anew on a resume: the plan itself is not saved.
            plan = self.plan(opened.config, folder)
            inputs = check_inputs(folder.path, plan.files)
            folder = replace(folder, identity=config_hash([identity(plan.config), inputs, *plan.decides]))
            try:
                if plan.config.dry_run:
                    return self.describe_plan(plan)
                if ranks.is_main:
                    # A run with a later end is unfinished from here on.
                    (folder.path / SUMMARY).unlink(missing_ok=True)
                    write_yaml(folder.path / CONFIG, plan.config)
                    if inputs:
                        write_json(folder.path / INPUTS, inputs)
                ranks.barrier()
                start.end()
                facts = self.work(plan, folder)
            except StoppedError as stopped:
                raise stopped.with_remedy(remedy) from stopped
            except KeyboardInterrupt as stopped:
                if (folder.path / CONFIG).is_file():
                    start.remedy = remedy
                    stopped.add_note(remedy)
                raise
            ranks.barrier()  # every rank has read the files that are removed now
            if ranks.is_main:
                finish(folder.path, facts, self.temporary)
            ranks.barrier()
            return ranks.from_main(facts)


def finish(run: Path, facts: Values, temporary: Sequence[str] = ()) -> None:
    """Write the checksums of the run's models, then summary.json, which marks the run as finished."""
    for name in MODELS:
        if (run / name).is_dir():
            seal(run / name)
    write_json(run / SUMMARY, facts)
    # Removed last: a kill before this line wastes space, and loses no result.
    for name in temporary:
        shutil.rmtree(run / name, ignore_errors=True)
    remove_results(run)
    (run / INPUTS).unlink(missing_ok=True)
