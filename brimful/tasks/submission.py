"""Files of predictions as the leaderboards of GLUE, CLUE, SQuAD and CMRC 2018 take them."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from brimful.console import counted
from brimful.errors import BrimfulError
from brimful.storage import atomic_file
from brimful.tasks.layouts import LAYOUTS, FileLayout
from brimful.tasks.table import Table
from brimful.tasks.task import Row, Task

SUFFIXES = {
    "columns": ".tsv",
    "lines": ".json or .jsonl",
    "spans": ".json or .jsonl",
    "answers": ".json",
}
_LARGEST_SIMILARITY = 5.0


def check_submission(layout: FileLayout, task: Task, output: Path) -> None:
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


def require_distinct(names: Sequence[str]) -> None:
    """Refuse ids that stand for several rows.

    Raises:
        BrimfulError: there is such an id.
    """
    ids = Counter(names)
    if twice := [name for name, count in ids.items() if count > 1]:
        raise BrimfulError(
            f"{counted(len(twice), 'id')} of {len(ids):,} stand{'s' * (len(twice) == 1)} for several rows,"
            f" such as {twice[0]!r}: a submission has one answer for each"
        )


class Submission:
    """What a leaderboard takes of the rows of `Task.rows`, written together. Rows without ids are numbered
    from 0."""

    def __init__(self, layout: FileLayout) -> None:
        self.layout = layout
        self._answers: list[tuple[str, Any]] = []

    def add(self, table: Table, rows: Sequence[Row]) -> None:
        """Add the rows of a table, or of the next part of one."""
        first = len(self._answers)
        names = table.ids or map(str, range(first, first + len(rows)))
        self._answers += zip(names, map(_answer, rows), strict=True)

    def write(self, path: Path) -> None:
        """Write all rows as the layout's leaderboard takes them, atomically.

        Raises:
            BrimfulError: two rows have the same id, or the file cannot be written.
        """
        require_distinct([name for name, _ in self._answers])
        with atomic_file(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
            if self.layout.submission == "answers":
                json.dump(dict(self._answers), file, ensure_ascii=False)
            elif self.layout.submission in ("lines", "spans"):
                for name, answer in self._answers:
                    number = int(name) if name.isdecimal() else name
                    file.write(json.dumps({"id": number, "label": answer}, ensure_ascii=False) + "\n")
            else:
                file.write("index\tprediction\n")
                file.writelines(f"{name}\t{answer}\n" for name, answer in self._answers)


def _answer(row: Row) -> Any:
    """The answer or label of a row, or the index of its choice; a similarity from 0 to 5, the range of STS-B;
    of spans their places by label and text, the last characters included."""
    if "spans" in row:
        found: dict[str, dict[str, list[list[int]]]] = {}
        for span in row["spans"]:
            places = found.setdefault(span["label"], {}).setdefault(span["text"], [])
            places.append([span["start"], span["end"] - 1])
        return found
    if "value" in row:
        return f"{min(max(row['value'], 0.0), _LARGEST_SIMILARITY):.3f}"
    if "index" in row:
        return row["index"]
    return row["answer"] if "answer" in row else row["label"]
