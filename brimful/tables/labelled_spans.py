"""Spans of characters with labels, such as names."""

from typing import NamedTuple

from brimful.tables.table import Table

OUTSIDE = "O"


class LabelledSpan(NamedTuple):
    """`text[start:end]` has the label."""

    start: int
    end: int
    label: str


def label_names_of(table: Table) -> list[list[str]] | None:
    """The names in the label of each row: of a class, of several, or of spans; None of other labels."""
    named: list[list[str]] = []
    for label in table.labels or []:
        parts = label if isinstance(label, list) else [label]
        names = [part.label if isinstance(part, LabelledSpan) else part for part in parts]
        if not all(isinstance(name, str) for name in names):
            return None
        named.append(names)
    return named or None
