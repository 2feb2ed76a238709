"""The first stage, a pure task for each part: spans of input files -> clean text."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from brimful.base.config import config_hash
from brimful.corpus.cleaning.clean import CleanConfig, Cleaner
from brimful.corpus.cleaning.version import cleaning_version
from brimful.corpus.dedup.duplicates import LINE_BYTES, DedupConfig
from brimful.corpus.engines.watchdog import Watchdog
from brimful.corpus.pipeline.inventory import Part, span_crc32
from brimful.corpus.pipeline.text import CleanText, TextRecord, TextWriter, find_made, text_path
from brimful.corpus.reading.forms import form_of
from brimful.corpus.reading.inputs import Input
from brimful.corpus.reading.read import ReadConfig, read_documents

WATCH = ".watch-"


@dataclass(frozen=True, kw_only=True)
class CleanTask:
    """One part to read and clean.

    Attributes:
        seconds: CPU seconds after which a document is hostile.
        limit: bounds the documents read.
        version: of the code of cleaning, which the worker need not find again.
    """

    directory: Path
    part: Part
    read: ReadConfig
    clean: CleanConfig
    dedup: DedupConfig
    seconds: float
    limit: int | None = None
    version: str = field(default_factory=cleaning_version)

    @property
    def name(self) -> str:
        """The name of the part."""
        return self.part.name

    @property
    def hash(self) -> str:
        """A hash of the settings and the input files that decide the clean text."""
        lines = LINE_BYTES if self.dedup.lines else None
        settings = [asdict(self.read), asdict(self.clean), lines, self.dedup.near, self.seconds, self.limit]
        return config_hash([self.version, settings, asdict(self.part)])

    @property
    def watchdog(self) -> Path:
        """The state file of the task's watchdog."""
        return self.directory / "text" / f"{WATCH}{self.name}"


def cleaned(task: CleanTask, *, verify: bool = False) -> dict[str, Any] | None:
    """The commit record of the part; None if it has not been cleaned or, with `verify`, is damaged."""
    record = text_path(task.directory, task.name).with_suffix(".json")
    return find_made(record, TextRecord, verify, config_hash=task.hash)


@dataclass
class _Seen:
    """Counters of a part, while it is being cleaned."""

    read: int = 0
    issues: dict[str, Counter[str]] = field(default_factory=dict)
    issue_examples: dict[str, dict[str, str]] = field(default_factory=dict)


def clean_part(task: CleanTask) -> dict[str, Any]:
    """Read and clean a part; returns its commit record."""
    seen = _Seen()
    Cleaner(task.clean)("<p>libraries load and compile here, in no document's time</p>", (0, 0))
    cleaner = Cleaner(task.clean)
    writer = TextWriter(task.directory, task.name, task.dedup)
    with Watchdog(task.watchdog, task.seconds, task.hash) as watchdog, writer:
        for rows in _clean_rows(task, cleaner, watchdog, seen):
            writer.add(rows)
    return writer.commit(
        name=task.name,
        config_hash=task.hash,
        inputs=[_describe(*entry) for entry in zip(task.part.spans, task.part.inputs, strict=True)],
        read=seen.read,
        counts=dict(sorted(cleaner.counts.items())),
        issues={name: dict(sorted(found.items())) for name, found in seen.issues.items() if found},
        issue_examples={name: found for name, found in seen.issue_examples.items() if found},
        examples={rule: [asdict(example) for example in found] for rule, found in cleaner.examples.items()},
    )


def _describe(span: Any, item: Input) -> dict[str, Any]:
    return {**asdict(item), **asdict(span), "crc32": span_crc32(span)}


def _clean_rows(
    task: CleanTask, cleaner: Cleaner, watchdog: Watchdog, seen: _Seen
) -> Iterator[list[CleanText]]:
    for number, span in enumerate(task.part.spans):
        issues = cleaner.issues = seen.issues.setdefault(span.path, Counter())
        cleaner.issue_examples = seen.issue_examples.setdefault(span.path, {})
        kind = form_of(span.path, [task.read.field]).kind
        for record, raw in read_documents(span, task.read, issues):
            if seen.read == task.limit:
                return
            seen.read += 1
            if watchdog.begin(number, record):
                issues[f"documents skipped that took over {task.seconds:g} s to clean"] += 1
                cleaner.counts["dropped: hostile"] += 1
                continue
            try:
                texts = cleaner(raw, (number, record), is_html=kind == "html", is_prose=kind == "text")
            except MemoryError:
                raise
            except Exception as error:  # a bug in one document must not stop a corpus of millions
                issues[f"documents skipped on which cleaning failed ({type(error).__name__})"] += 1
                cleaner.counts["dropped: failed"] += 1
                continue
            finally:
                watchdog.end()
            if texts:
                yield [CleanText(text, number, record, piece == 0) for piece, text in enumerate(texts)]
