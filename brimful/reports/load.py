"""A run directory, a prepared folder or an export as plain values: whatever files there are."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from brimful.base.config import read_yaml
from brimful.base.errors import BrimfulError
from brimful.base.seals import EXPORT, PAGES
from brimful.base.storage import read_json, require_shape
from brimful.corpus.shards import MANIFEST
from brimful.reports.content import branch, kind_of
from brimful.train.metrics import read_metrics

if TYPE_CHECKING:
    from brimful.tasks.task import Metric, Task

CONFIG, METRICS, SUMMARY = "config.yaml", "metrics.jsonl", "summary.json"
FILES = (CONFIG, METRICS, SUMMARY, MANIFEST, EXPORT)
WEIGHTS = (".safetensors", ".onnx", ".data", ".xml", ".bin")
"""Ends of the names of files that hold an exported model."""
PIPELINE = ("demo", "prepare", "pretrain", "finetune", "evaluate", "distil", "export", "run")
TELLING_KEYS = {
    "masking": "pretrain",
    "teacher": "distil",
    "encoder": "finetune",
    "encoders": "evaluate",
    "paths": "prepare",
}
"""A key of config.yaml that only one verb has, for runs that have no summary yet."""

Metrics = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Run:
    """One directory; an absent file is an empty value."""

    path: Path
    """The directory, resolved."""
    name: str
    """Name of the directory, with its parents' where others have that name."""
    kind: str
    """The verb that made it, one of PIPELINE."""
    summary: dict[str, Any]
    """summary.json, or what MANIFEST.json says of a corpus, or export.json of an export; empty while the run
    is unfinished."""
    config: dict[str, Any]
    """config.yaml, parsed."""
    config_text: str
    """config.yaml as it stands in the file."""
    metrics: Metrics
    """metrics.jsonl."""
    trials: dict[str, Metrics] = field(default_factory=dict)
    """Metrics of each folder under RUN/trials, by name."""
    stages: dict[str, Metrics] = field(default_factory=dict)
    """Metrics of each folder under RUN/stages, by name."""
    children: tuple["Run", ...] = ()
    """Runs inside this one, in the order of the pipeline."""

    @property
    def finished(self) -> bool:
        """Whether the run wrote its summary, which it does last."""
        return bool(self.summary)

    @property
    def task(self) -> "type[Task] | None":
        """The task of a run of finetune or distil, or of an export, if this version knows it."""
        from brimful.tasks.registry import (  # imports torch, which other runs don't need
            DEFAULT_TASK,
            known_task,
        )

        named = (
            self.summary.get("task") or self.config.get("task") or branch(self.summary, "gate").get("task")
        )
        return known_task(str(named or DEFAULT_TASK))

    @property
    def task_metrics(self) -> "tuple[Metric, ...]":
        """Those of the task; none where it is unknown."""
        return () if self.task is None else self.task.metrics


def load_runs(directories: Sequence[Path]) -> list[Run]:
    """Read runs as `load_run`, and name those whose directories have the same name by their parents too."""
    runs = [load_run(path) for path in directories]
    paths = {run.path for run in with_children(runs)}

    def named(run: Run) -> Run:
        parts, depth = run.path.parts, 1
        while sum(other.parts[-depth:] == parts[-depth:] for other in paths) > 1:
            depth += 1
        children = tuple(map(named, run.children))
        return replace(run, name=Path(*parts[-depth:]).as_posix(), children=children)

    return [named(run) for run in runs]


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
    inside = _subdirectories(directory)
    if not (_is_run(directory) or any(map(_is_run, inside))):
        raise BrimfulError(
            f"{directory} is not a run directory: neither it nor a folder in it has any of {', '.join(FILES)}"
        )
    children = [load_run(path) for path in inside if _is_run(path)]
    config = read_yaml(directory / CONFIG) if (directory / CONFIG).is_file() else {}
    summary = _read_summary(directory / SUMMARY) or _read_manifest(directory / MANIFEST)
    summary = summary or _read_export(directory / EXPORT)
    return Run(
        path=directory.resolve(),
        name=directory.resolve().name,
        kind=_kind(summary, config, bool(children)),
        summary=summary,
        config=config,
        config_text=(directory / CONFIG).read_text(encoding="utf-8") if config else "",
        metrics=_read_metrics(directory / METRICS),
        trials=_read_group(directory / "trials"),
        stages=_read_group(directory / "stages"),
        children=tuple(sorted(children, key=lambda run: (PIPELINE.index(run.kind), run.name))),
    )


def _subdirectories(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.is_dir()) if directory.is_dir() else []


def _is_run(directory: Path) -> bool:
    return any((directory / name).is_file() for name in FILES)


def _kind(summary: dict[str, Any], config: dict[str, Any], has_children: bool) -> str:
    if (kind := kind_of(summary)) in PIPELINE:
        return kind
    if has_children:
        return "demo"
    return next((kind for key, kind in TELLING_KEYS.items() if key in config), "run")


def _read_summary(path: Path) -> dict[str, Any]:
    summary = read_json(path) if path.is_file() else {}
    if not isinstance(summary, dict):
        raise BrimfulError(f"{path} must hold a JSON object, not a {type(summary).__name__}")
    return summary


class _Manifest(TypedDict):
    inputs: NotRequired[list[dict[str, Any]]]


def _read_manifest(path: Path) -> dict[str, Any]:
    """The counts of a corpus, its length histogram, and how many files it was made of."""
    manifest = _read_summary(path)
    if not manifest:
        return {}
    require_shape(manifest, _Manifest, path, "run prepare again")
    counts = manifest.get("summary")
    return {
        "kind": "prepare",
        **(counts if isinstance(counts, dict) else {}),
        "length_histogram": manifest.get("length_histogram"),
        "input_files": len({str(entry.get("path")) for entry in manifest.get("inputs", ())}),
    }


class _Export(TypedDict):
    files: dict[str, dict[str, float]]


def megabytes_of(files: Mapping[str, Mapping[str, float]]) -> float:
    """The size of the model among the files of an export, without its tokenizer and pages."""
    return sum(file.get("bytes", 0) for name, file in files.items() if name.endswith(WEIGHTS)) / 1e6


def _read_export(path: Path) -> dict[str, Any]:
    """What is known of an export, with the `megabytes` of its model."""
    record = _read_summary(path)
    if not record:
        return {}
    require_shape(record, _Export, path, "export the model again")
    known = {key: value for key, value in record.items() if key not in ("files", "crc32", PAGES)}
    return known | {"kind": "export", "megabytes": megabytes_of(record["files"])}


def _read_metrics(path: Path) -> Metrics:
    return read_metrics(path) if path.is_file() else []


def _read_group(directory: Path) -> dict[str, Metrics]:
    """All metrics under a directory, by the folder that they lie in: `seed-0/rate-0.0003`."""
    files = sorted(directory.rglob(METRICS))
    groups = {file.parent.relative_to(directory).as_posix(): _read_metrics(file) for file in files}
    return {name: metrics for name, metrics in groups.items() if metrics}
