"""Task files are parsed and encoded once: the results are kept as memory-mapped arrays.

An entry is named by a hash of the file's bytes and of all that decides the result: the task and its labels,
the layout, the tokenizer, the lengths, and this package's code. So no entry is ever out of date. The main
rank writes entries, and all ranks of a machine map the same pages.
"""

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import version
from inspect import getfile
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import tokenizers
from tokenizers import Tokenizer

from brimful.base.compiled import sources_of
from brimful.base.config import config_hash, to_dict
from brimful.base.console import recorded_warnings, warn
from brimful.base.distributed import ALONE, World
from brimful.base.errors import BrimfulError
from brimful.corpus.text.special_ids import truncation_side
from brimful.data.ragged import Ragged
from brimful.tables.layouts import OWN_LAYOUT, FileLayout
from brimful.tables.slices import read_slices
from brimful.tables.table import Table
from brimful.tables.table_files import read_file
from brimful.tasks.alike import alike_rows
from brimful.tasks.encoded import Encoded
from brimful.tasks.entries import (
    Entry,
    Growing,
    add_examples,
    add_table,
    entry_of_outputs,
    examples_of_entry,
    growing_entry,
    outputs_of_entry,
    read_entry,
    remove_oldest,
    table_of_entry,
    try_to_write,
)
from brimful.tasks.task import Task

VARIABLE = "BRIMFUL_CACHE"
"""Names the folder of the cache; `off` means that there is none."""
MOST = 20 << 30
"""Bytes: of more, the entries go that were not used for longest."""
PACKAGE = Path(__file__).parent.parent
_PATH = "{path}"

T = TypeVar("T")


def cache_folder() -> Path | None:
    """Where entries are kept: $BRIMFUL_CACHE, or brimful/tasks in the user's folder of caches.

    None: it is off, or cannot be written, which a warning says once.
    """
    chosen = os.environ.get(VARIABLE)
    if chosen in ("", "off"):
        return None
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "brimful", "tasks")
    return _usable(Path(chosen) if chosen else folder)


@cache
def _usable(folder: Path) -> Path | None:
    try:
        folder = folder.expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        reason = "" if os.access(folder, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)
    except OSError as error:
        reason = error.strerror or str(error)
    except RuntimeError:  # a home that does not exist
        reason = "no such home"
    if not reason:
        return folder
    warn(
        f"the cache {folder} cannot be written ({reason}): task files are encoded again in each run; set"
        f" {VARIABLE} to a folder that can be written, or to off"
    )
    return None


@cache
def code_hash(*files: str) -> str:
    """A hash of source files, of all modules of the package that they import, directly or not, and of the
    fast forms, which `model.door` imports by name."""
    digest = hashlib.sha256(f"{tokenizers.__version__} {version('torch')}".encode())
    roots = [*map(Path, files), PACKAGE / "kernels/forms.py"]
    for source in sorted(set().union(*map(sources_of, roots))):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def known_facts(key: dict[str, Any], build: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `build` makes (JSON), out of the cache if it is there.

    Args:
        key: what decides it, beside this package's code.
    """
    folder = cache_folder()
    if folder is None:
        return build()
    place = folder / config_hash({**key, "code": code_hash(getfile(build))})
    if (entry := read_entry(place, verify=True)) is not None:
        return dict(entry.facts)
    facts = build()
    try_to_write(place, Entry({}, facts), MOST)
    return facts


def known_outputs(
    decides: dict[str, Any], data: Encoded, compute: Callable[[], np.ndarray | Ragged], ranks: World
) -> np.ndarray | Ragged:
    """What a model says of examples, out of the cache if it is there, mapped. Every rank calls this.

    Args:
        decides: what decides it, beside the examples and this package's code.
        compute: float32 (n, C), or of each token (tokens, C). The main rank calls it.
    """
    key = {"outputs": decides, "texts": content_hash(data), "code": code_hash(getfile(compute))}
    entry = kept_entry(key, lambda: entry_of_outputs(compute()), ranks, "a teacher's outputs")
    return outputs_of_entry(entry)


def known_groups(table: Table, ranks: World = ALONE) -> np.ndarray:
    """`alike_rows` of a table, with its warnings, out of the cache if it is there. Every rank calls this."""

    def build() -> Entry:
        with recorded_warnings() as lines:
            groups = alike_rows(table)
        return Entry({"groups": groups}, {"warnings": lines})

    content = hashlib.sha256(table.fingerprints.data).hexdigest()
    key = {"alike": content, "table": type(table).__name__, "code": code_hash(getfile(alike_rows))}
    entry = kept_entry(key, build, ranks, "which rows are alike")
    for line in entry.facts["warnings"] if ranks.is_main else ():
        warn(line)
    return entry.arrays["groups"]


def kept_entry(key: dict[str, Any], build: Callable[[], Entry], ranks: World, what: str) -> Entry:
    """What `build` makes, out of the cache if it is there. All ranks call this; the main one builds, and the
    others build only what it could not keep.

    Args:
        key: all that decides it, code included.
        what: it is, for the warning that it cannot be kept.
    """
    folder = cache_folder()
    if folder is None:
        return build()
    place = folder / config_hash(key)
    made: Entry | None = None

    def make(place: Path) -> Entry | None:
        nonlocal made
        made = build()
        error = try_to_write(place, made, MOST)
        if error is not None:
            warn(f"{what} are not kept ({error}); {VARIABLE}=off does without")
        return read_entry(place)

    return _shared_entry(place, make, ranks) or made or build()


def _shared_entry(place: Path | None, make: Callable[[Path], Entry | None], ranks: World) -> Entry | None:
    """The entry in a place, which the main rank makes if it is not there; None where there is none. All ranks
    call this; where the main rank fails, the others do not wait for it."""
    entry: Entry | None = None
    try:
        if ranks.is_main and place:
            entry = read_entry(place, verify=True) or make(place)
    finally:
        ready = ranks.least(int(entry is not None or not ranks.is_main))
    return read_entry(place) if ready and place and not ranks.is_main else entry


def content_hash(data: Encoded) -> str:
    """A hash of a table's name, texts, labels and tokens."""
    head = f"{data.table.path}\n{data.examples.max_length}"
    digest = hashlib.sha256(head.encode("utf-8", "surrogateescape"))
    digest.update(data.table.fingerprints.data)
    for label in data.table.labels or ():
        digest.update(msgspec.json.encode(label) + b"\n")
    for ids in data.examples.tokens:
        digest.update(ids.data)
    return digest.hexdigest()


@dataclass(frozen=True)
class TaskFiles:
    """The files of a task, read with one layout. The main rank prints what there is to warn of.

    Attributes:
        labelled: whether rows have labels.
    """

    kind: type[Task]
    layout: FileLayout = OWN_LAYOUT
    ranks: World = ALONE
    labelled: bool = True
    _tables: dict[Path, tuple[Table, dict[str, Any] | None]] = field(default_factory=dict)

    def read(self, path: Path | str) -> Table:
        """A table.

        Raises:
            BrimfulError: as `read_file`.
        """
        path = Path(path)
        if path not in self._tables:
            key = self._key(path)
            table = self._once(
                key,
                path,
                lambda: self._slices(path),
                add_table,
                lambda entry: table_of_entry(entry, path),
                lambda: read_file(self.kind, path, labelled=self.labelled, layout=self.layout),
            )
            self._tables[path] = (table, key)
        return self._tables[path][0]

    def encode(
        self, task: Task, path: Path | str, tokenizer: Tokenizer, max_length: int, overlap: int | None
    ) -> Encoded:
        """The examples of a table.

        Raises:
            BrimfulError: as `read_file` and `Task.encode`.
        """
        table = self.read(path)
        key = self._tables[Path(path)][1]
        if key is not None:
            settings = {"labels": task.labels, "max_length": max_length, "overlap": overlap}
            words = hashlib.sha256(tokenizer.to_str().encode()).hexdigest()
            key = {**key, **settings, "tokenizer": words, "side": truncation_side(tokenizer)}
        given, labelled = (table, tokenizer, max_length, overlap), self.labelled
        examples = self._once(
            key,
            Path(path),
            lambda: task.encoded_slices(*given, labelled=labelled),
            add_examples,
            examples_of_entry,
            lambda: task.encode(*given, labelled=labelled).examples,
        )
        return Encoded(table, examples)

    def _slices(self, path: Path) -> Iterator[Table]:
        """The table in a file, in the slices that its task can read."""
        read = partial(read_file, self.kind, path, labelled=self.labelled, layout=self.layout)
        return (
            iter([read()])
            if self.labelled and not self.kind.by_row
            else read_slices(lambda take: read(take=take))
        )

    def _key(self, path: Path) -> dict[str, Any] | None:
        """What decides the table in a file; None if it cannot be read."""
        try:
            with open(path, "rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            return None
        columns = to_dict(self.layout.columns)
        return {
            "file": content,
            "suffix": path.suffix,
            "task": self.kind.name,
            "layout": self.layout.name,
            "columns": columns,
            "labelled": self.labelled,
            "code": code_hash(__file__, getfile(self.kind)),
        }

    def _once(
        self,
        key: dict[str, Any] | None,
        path: Path,
        slices: Callable[[], Iterator[T]],
        add: Callable[[Growing, T], None],
        unpack: Callable[[Entry], T],
        whole: Callable[[], T],
    ) -> T:
        """What `slices` make up, out of the cache if it is there, else written there one by one and mapped;
        `whole` where it cannot be kept. Every rank calls this for the same file."""
        entry: Entry | None = None
        if folder := cache_folder():
            place = folder / config_hash(key) if key else None
            entry = _shared_entry(place, lambda place: self._written(place, slices, add, path), self.ranks)
        if entry is not None:
            lines = [line.replace(_PATH, str(path)) for line in entry.facts["warnings"]]
            made = unpack(entry)
        else:
            with recorded_warnings() as lines:
                made = whole()
        if self.ranks.is_main:
            for line in lines:
                warn(line)
        return made

    @staticmethod
    def _written(
        place: Path, slices: Callable[[], Iterator[T]], add: Callable[[Growing, T], None], path: Path
    ) -> Entry | None:
        """The entry of all slices, read back; None if it cannot be one, or cannot be written.

        Raises:
            BrimfulError: as `slices`.
        """
        try:
            with recorded_warnings() as lines, growing_entry(place) as growing:
                for each in _faults_marked(slices()):
                    add(growing, each)
                warnings = [line.replace(str(path), _PATH) for line in dict.fromkeys(lines)]
                growing.facts["warnings"] = warnings
            remove_oldest(place.parent, MOST)
        except _FaultError as fault:
            raise fault.error from None
        except (TypeError, ValueError):  # a label that JSON does not know
            return None
        except (BrimfulError, OSError) as error:
            warn(f"encoded task files are not kept ({error}); {VARIABLE}=off does without")
            return None
        return read_entry(place)


class _FaultError(Exception):
    """What went wrong where a file was read or encoded, and not where its entry was written."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _faults_marked(slices: Iterator[T]) -> Iterator[T]:
    try:
        yield from slices
    except Exception as error:
        raise _FaultError(error) from error
