"""A run directory, a prepared folder or an export as plain values: whatever files there are."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from brimful.base.config import read_yaml
from brimful.base.errors import BrimfulError
from brimful.base.numbers import branch, in_words
from brimful.base.seals import EXPORT
from brimful.base.storage import read_object
from brimful.base.summary import OVERVIEW, Summary, overview_of
from brimful.corpus.shards import MANIFEST
from brimful.train.metrics import read_metrics

CONFIG, METRICS, SUMMARY = "config.yaml", "metrics.jsonl", "summary.json"
RECORDS = (SUMMARY, MANIFEST, EXPORT)
"""Files that a verb writes last, with its facts and their Summary."""
NO_FACTS = (OVERVIEW, "files", "crc32")
"""Keys of a record that are not shown among its facts."""
TRAININGS = ("trials", "stages")
"""Folders of a run with a metrics.jsonl for each of its trainings."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One directory; an absent file is an empty value.

    Attributes:
        path: of the directory, resolved.
        name: of the directory, with its parents' where others have that name.
        facts: what the record of a finished verb says, without its Summary.
        summary: None of an unfinished run, and of one that an earlier version made.
        config_text: config.yaml as it stands in the file.
        metrics: the lines of each metrics.jsonl, by its folder; "" is the run's own.
        children: the runs inside this one.
    """

    path: Path
    name: str
    facts: dict[str, Any]
    summary: Summary | None
    config_text: str
    metrics: dict[str, list[dict[str, Any]]]
    children: tuple["Run", ...] = ()

    @property
    def finished(self) -> bool:
        """Whether the run wrote its record, which it does last."""
        return bool(self.facts)

    @property
    def title(self) -> str:
        """What it is."""
        if self.summary is not None:
            return self.summary.title
        return in_words(str(self.facts.get("kind", "run")))

    @property
    def verdict(self) -> str:
        """What came out, or how far it has got."""
        if self.summary is not None:
            return self.summary.verdict
        if self.finished:
            return "Made by an earlier version: all that it measured is below."
        steps = [line["step"] for line in self.metrics.get("", ()) if isinstance(line.get("step"), int)]
        logged = f" It has logged {max(steps):,} updates." if steps else ""
        return f"Not finished: none of {', '.join(RECORDS)} is there yet.{logged}"


def load_runs(directories: Sequence[Path]) -> list[Run]:
    """Read runs as `load_run`, and name those whose directories have the same name by their parents too."""
    runs = [load_run(path) for path in directories]
    paths = {run.path for run in with_children(runs)}

    def rename(run: Run) -> Run:
        parts, depth = run.path.parts, 1
        while sum(other.parts[-depth:] == parts[-depth:] for other in paths) > 1:
            depth += 1
        children = tuple(rename(child) for child in run.children)
        return replace(run, name=Path(*parts[-depth:]).as_posix(), children=children)

    return [rename(run) for run in runs]


def with_children(runs: Iterable[Run]) -> Iterator[Run]:
    """All runs, and those inside them."""
    for run in runs:
        yield run
        yield from with_children(run.children)


def load_run(directory: Path) -> Run:
    """Read a run directory and the runs directly inside it.

    Raises:
        BrimfulError: it is not a run directory, or a file in it is damaged.
    """
    if not directory.exists():
        raise BrimfulError(f"{directory} does not exist; give the directory of a run")
    inside = sorted(path for path in directory.iterdir() if path.is_dir()) if directory.is_dir() else []
    children = [load_run(path) for path in inside if _is_run(path)]
    if not (children or _is_run(directory)):
        files = ", ".join((CONFIG, METRICS, *RECORDS))
        raise BrimfulError(f"{directory} is not a run directory: neither it nor a folder in it has {files}")
    config = directory / CONFIG
    if config.is_file():
        read_yaml(config)  # refuses a damaged one
    facts, summary = _read_record(directory)
    return Run(
        path=directory.resolve(),
        name=directory.resolve().name,
        facts=facts,
        summary=summary,
        config_text=config.read_text(encoding="utf-8") if config.is_file() else "",
        metrics=_read_all_metrics(directory),
        children=tuple(children),
    )


def _is_run(directory: Path) -> bool:
    return any((directory / name).is_file() for name in (CONFIG, METRICS, *RECORDS))


def _read_record(directory: Path) -> tuple[dict[str, Any], Summary | None]:
    """The facts and the Summary of a finished verb; empty and None of an unfinished one."""
    for name in RECORDS:
        path = directory / name
        if path.is_file():
            record = read_object(path)
            facts = branch(record, "summary") if name == MANIFEST else record
            shown = {key: value for key, value in facts.items() if key not in NO_FACTS}
            return shown, overview_of(record, path)
    return {}, None


def _read_all_metrics(directory: Path) -> dict[str, list[dict[str, Any]]]:
    """The lines of the run's metrics.jsonl and those of its trainings, by folder: `trials/rate-0.0003`."""
    files = [directory / METRICS]
    for folder in TRAININGS:
        files += sorted((directory / folder).rglob(METRICS))
    found = {file.parent: read_metrics(file) for file in files if file.is_file()}
    named = {path.relative_to(directory).as_posix(): lines for path, lines in found.items()}
    return {name.removeprefix("."): lines for name, lines in named.items() if lines}
