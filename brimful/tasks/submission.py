"""Files of predictions as the leaderboards of GLUE, CLUE, SQuAD and CMRC 2018 take them."""

import json
from collections.abc import Sequence
from pathlib import Path

from brimful.errors import BrimfulError
from brimful.storage import atomic_file
from brimful.tasks.layouts import LAYOUTS, Layout
from brimful.tasks.table import Table
from brimful.tasks.task import Row, Task

SUFFIXES = {"columns": ".tsv", "lines": ".json or .jsonl", "answers": ".json"}
_LARGEST_SIMILARITY = 5.0


def check_submission(layout: Layout, task: Task, output: Path) -> None:
    """Refuse what no leaderboard would take.

    Raises:
        BrimfulError: there is no layout, the model has other labels, or the file has another ending.
    """
    if not layout.submission:
        known = ", ".join(name for name, known in LAYOUTS.items() if known.submission)
        raise BrimfulError(f"--submission needs a --layout: {known}")
    if layout.labels and set(task.labels) != set(layout.labels):
        raise BrimfulError(
            f"the model's labels {', '.join(task.labels)} are not those of {layout.name}:"
            f" {', '.join(layout.labels)}"
        )
    suffixes = SUFFIXES[layout.submission]
    if output.suffix not in suffixes.split(" or "):
        raise BrimfulError(f"--output {output}: the name of a submission to {layout.name} ends in {suffixes}")


class Submission:
    """Rows of `Task.rows`, which are written together. Rows without ids are numbered from 0."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._ids: list[str] = []
        self._rows: list[Row] = []

    def add(self, table: Table, rows: Sequence[Row]) -> None:
        """Add the rows of a table, or of the next part of one."""
        first = len(self._ids)
        self._ids += table.ids or [str(number) for number in range(first, first + len(rows))]
        self._rows += rows

    def write(self, path: Path) -> None:
        """Write all rows as the layout's leaderboard takes them, atomically."""
        rows = list(zip(self._ids, self._rows, strict=True))
        with atomic_file(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
            if self.layout.submission == "answers":
                json.dump({name: row["answer"] for name, row in rows}, file, ensure_ascii=False)
            elif self.layout.submission == "lines":
                for name, row in rows:
                    number = int(name) if name.isdecimal() else name
                    file.write(json.dumps({"id": number, "label": row["label"]}, ensure_ascii=False) + "\n")
            else:
                file.write("index\tprediction\n")
                file.writelines(f"{name}\t{_prediction(row)}\n" for name, row in rows)


def _prediction(row: Row) -> str:
    """A label, or a similarity from 0 to 5, the range of STS-B."""
    if "value" not in row:
        return row["label"]
    return f"{min(max(row['value'], 0.0), _LARGEST_SIMILARITY):.3f}"
