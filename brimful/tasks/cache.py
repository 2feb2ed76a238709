"""What is made once and kept: parsed and encoded files, teachers' outputs, findings.

An entry is named by a hash of all that decides it, this package's code included, so none is ever out of date.
The main rank writes entries, and all ranks of a machine map the same pages.
"""

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import version
from inspect import getfile
from pathlib import Path

import msgspec
import numpy as np
import tokenizers

from brimful.base.compiled import sources_of
from brimful.base.config import config_hash
from brimful.base.console import recorded_warnings, warn
from brimful.base.distributed import ALONE, World
from brimful.base.errors import BrimfulError
from brimful.data.ragged import Ragged
from brimful.tables.table import Table
from brimful.tasks.alike import alike_rows
from brimful.tasks.encoded import Encoded
from brimful.tasks.entries import Entry, Facts, MakeRows, Rows, read_entry, write_entry

VARIABLE = "BRIMFUL_CACHE"
"""Names the folder of the cache; `off` means that there is none."""
MAX_CACHE_BYTES = 20 << 30
"""Where there would be more, the entries go that were not used for longest."""
PACKAGE = Path(__file__).parent.parent


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
    fast forms, which compute what the modules of `model` say."""
    digest = hashlib.sha256(f"{tokenizers.__version__} {version('torch')}".encode())
    roots = [*map(Path, files), PACKAGE / "kernels/forms.py"]
    for source in sorted(set().union(*map(sources_of, roots))):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def known_facts(key: Facts, build: Callable[[], Facts]) -> Facts:
    """What `build` makes (JSON), out of the cache if it is there.

    Args:
        key: what decides it, beside this package's code.
    """
    key = {**key, "code": code_hash(getfile(build))}
    return dict(kept_entry(key, lambda: ({}, build()), ALONE, "findings").facts)


def known_outputs(
    decides: Facts, data: Encoded, compute: Callable[[], np.ndarray | Ragged], ranks: World
) -> np.ndarray | Ragged:
    """What a model says of examples, out of the cache if it is there, mapped. Every rank calls this.

    Args:
        decides: what decides it, beside the examples and this package's code.
        compute: float32 (n, C), or of each token (tokens, C). The main rank calls it.
    """
    key = {"outputs": decides, "texts": content_hash(data), "code": code_hash(getfile(compute))}
    entry = kept_entry(key, lambda: ({"outputs": compute()}, {}), ranks, "a teacher's outputs")
    return entry.columns["outputs"]


def known_groups(table: Table, ranks: World = ALONE) -> np.ndarray:
    """`alike_rows` of a table, with its warnings, out of the cache if it is there. Every rank calls this."""

    def build() -> tuple[Rows, Facts]:
        with recorded_warnings() as lines:
            groups = alike_rows(table)
        return {"groups": groups}, {"warnings": lines}

    content = hashlib.sha256(table.fingerprints.data).hexdigest()
    key = {"alike": content, "table": type(table).__name__, "code": code_hash(getfile(alike_rows))}
    entry = kept_entry(key, build, ranks, "which rows are alike")
    if ranks.is_main:
        for line in entry.facts["warnings"]:
            warn(line)
    return entry.columns["groups"]


def kept_entry(key: Facts, build: Callable[[], tuple[Rows, Facts]], ranks: World, what: str) -> Entry:
    """The rows and facts that `build` makes, out of the cache if they are there; see `entry_in_slices`."""
    build_once = cache(build)  # what the disk refuses need not be computed again

    def make_rows(facts: Facts) -> Iterator[Rows]:
        rows, known = build_once()
        facts.update(known)
        yield rows

    return entry_in_slices(key, make_rows, ranks, what)


def entry_in_slices(key: Facts, make_rows: MakeRows, ranks: World, what: str) -> Entry:
    """What `make_rows` makes, out of the cache if it is there, else kept there and mapped, or in memory where
    it cannot be kept. All ranks call this; the main one keeps it, and if that fails, the others do not wait.

    Args:
        key: all that decides it, code included.
        what: it is, for the warning that it cannot be kept.
    """
    folder = cache_folder()
    place = folder / config_hash(key) if folder else None
    entry: Entry | None = None
    problem: BrimfulError | OSError | None = None
    try:
        if place and ranks.is_main:
            entry = read_entry(place, verify=True)
            if entry is None:
                write_entry(place, make_rows, MAX_CACHE_BYTES)
                entry = read_entry(place)
    except (BrimfulError, OSError) as error:
        problem = error
    finally:
        is_there = ranks.least(int(entry is not None or not ranks.is_main))
    if is_there and place and not ranks.is_main:
        entry = read_entry(place)
    if entry is None:
        entry = Entry.in_memory(make_rows)  # if the disk is not what failed, the error comes again here
        if problem is not None:
            reason = f"{place}: {problem.strerror}" if isinstance(problem, OSError) else problem
            warn(f"{what} are not kept ({reason}); {VARIABLE}=off does without")
    return entry


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
