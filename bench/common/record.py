"""What a bench measured: facts about the run, and rows."""

import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class Record:
    """Facts and rows, written to a file (if any) after each row."""

    def __init__(self, facts: dict[str, Any], out: Path | None) -> None:
        self.facts = facts
        self.out = out
        self.rows: list[Row] = []

    def add(self, row: Row) -> None:
        """Keep another row."""
        self.rows.append(row)
        if self.out:
            text = json.dumps(self.facts | {"rows": self.rows}, indent=1) + "\n"
            self.out.write_text(text, encoding="utf-8")
