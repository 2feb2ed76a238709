"""The rows that a fine-tuning holds out of its training table, and the record of them in its run."""

import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np

from brimful.base.storage import crc32, write_json
from brimful.base.types import Values
from brimful.stages.task_options import FinetuneConfig
from brimful.tables.text_files import files_of_table
from brimful.tasks.task_data import TaskData

HELD_OUT_FILE = "held_out_rows.json"


class HeldOutRecord(TypedDict):
    """The content of `HELD_OUT_FILE`; rows count from 1."""

    table: str
    crc32: int
    test: list[int] | None
    dev: list[int] | None
    dev_in_train: bool


@dataclass(frozen=True)
class HeldOut:
    """Rows of the training table that are test or dev.

    Attributes:
        parts: the rows of each part, from 0: int64, ascending. A part that has a table of its own is absent.
        dev_in_train: whether the final training reads the rows of dev too.
    """

    parts: dict[str, np.ndarray]
    dev_in_train: bool

    @classmethod
    def from_data(cls, config: FinetuneConfig, data: TaskData) -> "HeldOut":
        """Return the rows that a run holds out."""
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
        """The number of rows of each part."""
        return {name: len(rows) for name, rows in self.parts.items()}

    @property
    def key(self) -> str:
        """A hash of the rows."""
        digest = hashlib.sha256()
        for name, rows in self.parts.items():
            digest.update(name.encode())
            # Little-endian on every machine, so that a run may go on elsewhere.
            digest.update(np.ascontiguousarray(rows, dtype="<i8").data)
        return digest.hexdigest()

    def write(self, run: Path, table: str) -> None:
        """Write `HELD_OUT_FILE` into a run directory."""
        record: Values = {"table": table, "crc32": crc32_of_table(table), "test": None, "dev": None}
        for name, rows in self.parts.items():
            record[name] = (rows + 1).tolist()
        record["dev_in_train"] = self.dev_in_train
        write_json(run / HELD_OUT_FILE, record)


def crc32_of_table(table: str) -> int:
    """Return the CRC of a table of one file, or a CRC of the CRCs of its files."""
    checksums = [crc32(file) for file in files_of_table(table)]
    if len(checksums) == 1:
        return checksums[0]
    return zlib.crc32(repr(checksums).encode())
