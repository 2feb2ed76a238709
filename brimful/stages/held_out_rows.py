"""Which rows of its training table a run holds out as test and dev, for whoever reads that table again."""

import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from brimful.base.errors import BrimfulError
from brimful.base.storage import crc32, read_object, require_shape, write_json
from brimful.stages.task_options import FinetuneConfig
from brimful.tables.text_files import files_of_table
from brimful.tasks.data import TaskData

FILE = "held_out_rows.json"


class _Record(TypedDict):
    table: str
    crc32: int
    test: list[int] | None
    dev: list[int] | None
    dev_in_train: bool


@dataclass(frozen=True)
class HeldOut:
    """Rows of the training table that are test or dev.

    Attributes:
        parts: the rows of each part, from 0: int64, ascending; without a part that is a table of its own.
        dev_in_train: whether the final training reads the rows of dev too.
    """

    parts: dict[str, np.ndarray]
    dev_in_train: bool

    @classmethod
    def of(cls, config: FinetuneConfig, data: TaskData) -> "HeldOut":
        """What a run holds out."""
        parts = {}
        if config.test is None and data.test.table.rows is not None:
            parts["test"] = data.test.table.rows
        if config.dev_table is None and data.dev is not None and data.dev.table.rows is not None:
            parts["dev"] = data.dev.table.rows
        return cls(parts, data.fit is not data.train)

    def __bool__(self) -> bool:
        return bool(self.parts)

    @property
    def counts(self) -> dict[str, int]:
        """How many rows each part has."""
        return {name: len(rows) for name, rows in self.parts.items()}

    @property
    def key(self) -> str:
        """A hash of the rows."""
        digest = hashlib.sha256()
        for name, rows in self.parts.items():
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(rows, dtype="<i8").data)
        return digest.hexdigest()

    def write(self, run: Path, table: str) -> None:
        """Write `FILE`, whose rows count from 1."""
        record = {"table": table, "crc32": _crc32(table), "test": None, "dev": None}
        rows = {name: (part + 1).tolist() for name, part in self.parts.items()}
        write_json(run / FILE, record | rows | {"dev_in_train": self.dev_in_train})


def _crc32(table: str) -> int:
    """The CRC of a table, or of the CRCs of its files."""
    numbers = [crc32(file) for file in files_of_table(table)]
    return numbers[0] if len(numbers) == 1 else zlib.crc32(repr(numbers).encode())


def read_held_out(run: Path, table: str) -> HeldOut:
    """What a run has held out of its training table.

    Raises:
        BrimfulError: it does not say that, or the table is not what the run has read.
    """
    remedy = "give --train and --test"
    record: dict[str, Any] = read_object(run / FILE)
    require_shape(record, _Record, run / FILE, remedy)
    try:
        same = _crc32(table) == record["crc32"]
    except OSError as error:
        raise BrimfulError(f"cannot read {table}: {error.strerror or error}; {remedy}") from error
    if not same:
        raise BrimfulError(
            f"{table} is not what {run} was trained on, so the rows held out are not known: put it back as it"
            f" was, or {remedy}"
        )
    parts = {}
    for name in ("test", "dev"):
        if record[name] is not None:
            parts[name] = np.array(record[name], dtype=np.int64) - 1
    return HeldOut(parts, record["dev_in_train"])
