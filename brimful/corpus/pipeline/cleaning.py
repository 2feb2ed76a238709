"""Clean the spans of each part: the first stage, one pure task for each part."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

from brimful.base.config import config_hash
from brimful.base.storage import commit
from brimful.base.types import Values
from brimful.corpus.cleaning.clean import Cleaner
from brimful.corpus.cleaning.version import cleaning_version
from brimful.corpus.dedup.duplicates import LINE_BYTES
from brimful.corpus.engines.watchdog import Watchdog
from brimful.corpus.pipeline.config import PrepareConfig
from brimful.corpus.pipeline.inventory import Part, span_crc32
from brimful.corpus.pipeline.text_parts import CleanText, PartRecord, find_made, text_path, write_text
from brimful.corpus.reading.forms import form_of
from brimful.corpus.reading.read import read_documents

WATCH = ".watch-"


@dataclass(frozen=True, kw_only=True)
class CleanTask:
    """One part to read and clean.

    Attributes:
        limit: the largest number of documents to read.
    """

    config: PrepareConfig
    part: Part
    limit: int | None = None

    @property
    def record(self) -> Path:
        """The commit record."""
        return text_path(Path(self.config.out), self.part.name).with_suffix(".json")

    @cached_property
    def hash(self) -> str:
        """A hash of the settings and the input files that decide the clean text.

        The hash is sent with the task, so that no worker reads the code of cleaning again.
        """
        config, dedup = self.config, self.config.dedup
        settings = [
            asdict(config.read),
            asdict(config.clean),
            LINE_BYTES if dedup.lines else None,
            dedup.near,
            config.document_seconds,
            self.limit,
        ]
        return config_hash([cleaning_version(), settings, asdict(self.part)])

    @property
    def watchdog(self) -> Path:
        """The state file of the task's watchdog."""
        return self.record.with_name(f"{WATCH}{self.part.name}-{self.hash[:16]}")

    def made(self, *, verify: bool = False) -> Values | None:
        """Return the commit record; None if the part has not been cleaned or, with `verify`, is damaged."""
        return find_made(self.record, PartRecord, verify, config_hash=self.hash)


@dataclass
class _Counters:
    """Counters of a part while it is being cleaned."""

    read: int = 0
    issues: dict[str, Counter[str]] = field(default_factory=dict)


def clean_part(task: CleanTask) -> Values:
    """Read and clean a part; return its commit record."""
    config, name = task.config, task.part.name
    counters = _Counters()
    Cleaner(config.clean)("<p>libraries load and compile here, in no document's time</p>", (0, 0))
    cleaner = Cleaner(config.clean)
    with Watchdog(task.watchdog, config.document_seconds) as watchdog:
        rows = _clean_rows(task, cleaner, watchdog, counters)
        paths, counts = write_text(Path(config.out), name, config.dedup, rows)
    inputs = []
    for span, file in zip(task.part.spans, task.part.inputs, strict=True):
        inputs.append({**asdict(file), **asdict(span), "crc32": span_crc32(span)})
    issues = {path: dict(sorted(counts.items())) for path, counts in counters.issues.items() if counts}
    return commit(
        task.record,
        paths,
        **counts,
        name=name,
        config_hash=task.hash,
        inputs=inputs,
        read=counters.read,
        counts=dict(sorted(cleaner.counts.items())),
        issues=issues,
        examples={rule: list(map(asdict, examples)) for rule, examples in cleaner.examples.items()},
    )


def _clean_rows(
    task: CleanTask, cleaner: Cleaner, watchdog: Watchdog, counters: _Counters
) -> Iterator[list[CleanText]]:
    """Yield the clean texts of each document; nothing for a document that is dropped."""
    config = task.config
    for number, span in enumerate(task.part.spans):
        issues = cleaner.issues = counters.issues.setdefault(span.path, Counter())
        kind = form_of(span.path, [config.read.field], config.read.encoding)
        for record, raw in read_documents(span, config.read, issues):
            if counters.read == task.limit:
                return
            counters.read += 1
            if watchdog.begin(number, record):
                issues[f"documents skipped that took over {config.document_seconds:g} s to clean"] += 1
                cleaner.counts["dropped: hostile"] += 1
                continue
            try:
                texts = cleaner(raw, (number, record), is_html=kind == "html")
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
