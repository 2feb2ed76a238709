"""A run directory, a prepared folder or an export as plain values, from the files that it has."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from brimful.base.config import read_yaml
from brimful.base.errors import BrimfulError
from brimful.base.numbers import capitalise, find_mapping
from brimful.base.seals import CONFIG, EXPORT, MANIFEST, SUMMARY
from brimful.base.storage import read_object
from brimful.base.summary import OVERVIEW, Summary
from brimful.base.types import Facts, Values
from brimful.train.metrics import read_metrics

METRICS = "metrics.jsonl"
RECORDS = (SUMMARY, MANIFEST, EXPORT)
"""Files that a verb writes last, with its facts and their Summary."""
HIDDEN_KEYS = (OVERVIEW, "files", "crc32")
"""Keys of a record that are left out of its facts."""
TRAININGS = ("trials", "stages")
"""Folders of a run with a metrics.jsonl for each of its trainings."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One directory, or several together; an absent file is an empty value.

    Attributes:
        path: the directory, resolved.
        name: its path below the folder that all runs of a page share.
        facts: the record of a finished verb, without its Summary; None for an unfinished run.
        summary: None for an unfinished run, and for one that an earlier version made.
        config_text: config.yaml as it stands in the file.
        metrics: the lines of each metrics.jsonl, by its folder; "" is the folder of the run.
        children: the runs inside this one.
    """

    path: Path
    name: str
    facts: Values | None
    summary: Summary | None
    config_text: str = ""
    metrics: Mapping[str, list[Values]] = field(default_factory=dict)
    children: Sequence["Run"] = ()

    @property
    def finished(self) -> bool:
        """Whether the run wrote its record, which it does last."""
        return self.facts is not None

    @property
    def title(self) -> str:
        """The kind of the run, as a title."""
        if self.summary is not None:
            return self.summary.title
        return capitalise(str((self.facts or {}).get("kind", "run")))

    @property
    def verdict(self) -> str:
        """The result of the run, or its progress."""
        if self.summary is not None:
            return self.summary.verdict
        if self.finished:
            return "Made by an earlier version: all that it measured is below."
        steps = [line["step"] for line in self.metrics.get("", ()) if isinstance(line.get("step"), int)]
        verdict = f"Not finished: none of {', '.join(RECORDS)} is there yet."
        if steps:
            verdict += f" It has logged {max(steps):,} updates."
        return verdict


def load_runs(directories: Sequence[Path]) -> list[Run]:
    """Read run directories; another folder stands for the runs directly inside it.

    Raises:
        BrimfulError: a folder is no run and has none directly inside it, or a file in a run is damaged.
    """
    paths: list[Path] = []
    for directory in directories:
        if not directory.exists():
            raise BrimfulError(f"{directory} does not exist; give the directory of a run")
        inside = [directory] if _is_run(directory) else _list_inside(directory)
        if not inside:
            files = ", ".join((CONFIG, METRICS, *RECORDS))
            raise BrimfulError(
                f"{directory} is not a run directory: neither it nor a folder in it has {files}"
            )
        paths += map(Path.resolve, inside)
    # Names begin below the folder that all share, so that runs of one name differ by their parents.
    root = os.path.commonpath([path.parent for path in paths])
    return [_load_run(path, root) for path in paths]


def walk_runs(runs: Iterable[Run]) -> Iterator[Run]:
    """Yield all runs, and the runs inside them."""
    for run in runs:
        yield run
        yield from walk_runs(run.children)


def _is_run(directory: Path) -> bool:
    return any((directory / name).is_file() for name in (CONFIG, METRICS, *RECORDS))


def _list_inside(directory: Path) -> list[Path]:
    """Return the run directories directly inside a folder."""
    if not directory.is_dir():
        return []
    return sorted(filter(_is_run, directory.iterdir()))  # an unreadable folder is an error, not empty


def _load_run(directory: Path, root: str) -> Run:
    """Read a run directory and the runs directly inside it; its name starts below the folder `root`."""
    config, text = directory / CONFIG, ""
    if config.is_file():
        read_yaml(config)  # refuses a damaged one; the page shows it as it was written
        text = config.read_text(encoding="utf-8")
    facts, summary = _read_record(directory)
    return Run(
        path=directory,
        name=directory.relative_to(root).as_posix(),
        facts=facts,
        summary=summary,
        config_text=text,
        metrics=_read_all_metrics(directory),
        children=[_load_run(path, root) for path in _list_inside(directory)],
    )


def _read_record(directory: Path) -> tuple[Values | None, Summary | None]:
    """Return the facts and the Summary of a finished verb, each None if it is absent."""
    for name in RECORDS:
        path = directory / name
        if path.is_file():
            record = read_object(path)
            facts = dict(record)
            if name == MANIFEST:
                facts = dict(find_mapping(record, "summary"))
            for key in HIDDEN_KEYS:
                facts.pop(key, None)
            return facts, read_overview(record, path)
    return None, None


def _read_all_metrics(directory: Path) -> dict[str, list[Values]]:
    """Return the lines of each metrics.jsonl by its folder: "", or `trials/seed-0/final` for a training."""
    files = [directory / METRICS]
    for folder in TRAININGS:
        files += sorted((directory / folder).rglob(METRICS))
    metrics = {}
    for file in filter(Path.is_file, files):
        lines = read_metrics(file)
        if lines:
            metrics[file.parent.relative_to(directory).as_posix().removeprefix(".")] = lines
    return metrics


def read_overview(record: Facts, place: object) -> Summary | None:
    """Read the Summary that `with_overview` has stored; None in the record of an earlier version.

    Raises:
        BrimfulError: it is damaged; the message names `place`, the file with the record.
    """
    try:
        return msgspec.convert(record.get(OVERVIEW), Summary | None)
    except msgspec.ValidationError as error:
        raise BrimfulError(f"{place} is damaged: its {OVERVIEW} has {error}; make it again") from error
