"""What a bench measured: facts about the run, and rows."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.common.processes import machine_facts

Row = dict[str, Any]


class Record:
    """Facts and rows, written to a file (if any) after each row.

    Args:
        measures: the paths of the checkout that the bench measures.
        facts: beside the machine's.
    """

    def __init__(self, bench: str, measures: Sequence[str], out: Path | None, **facts: Any) -> None:
        date = datetime.now(UTC).isoformat(timespec="seconds")
        self.facts = {"bench": bench, "date": date, **machine_facts(*measures), **facts}
        self.out = out
        self.rows: list[Row] = []

    def add(self, row: Row) -> None:
        """Keep another row."""
        self.rows.append(row)
        self.write()

    def write(self) -> None:
        """Write the file, if there is one."""
        if self.out:
            text = json.dumps(self.facts | {"rows": self.rows}, indent=1) + "\n"
            self.out.write_text(text, encoding="utf-8")
