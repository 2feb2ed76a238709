"""The result of a verb in Python: a mapping with attributes, which a notebook shows as tables."""

from html import escape
from typing import Any

from brimful.base.numbers import list_facts
from brimful.base.summary import SummaryTable, make_facts_table
from brimful.base.types import Values
from brimful.reports.model_table import list_main_tables
from brimful.reports.run_records import read_overview


class VerbResult(Values):
    """The facts of a verb: `result["test"]["n"]` is also `result.test.n`."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"the result has no {name!r}, only {', '.join(self)}")
        return _with_attributes(self[name])

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]  # what a notebook completes

    def _repr_html_(self) -> str:
        summary = read_overview(self, "the result")
        heading, tables = "", make_facts_table("", dict(list_facts(self)))
        if summary is not None:
            heading = f"<p><b>{escape(summary.title)}</b>: {escape(summary.verdict)}</p>"
            tables = list_main_tables(summary)
        return heading + "".join(map(_write_table, tables))


def _with_attributes(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_attributes(part) for part in value]
    return VerbResult(value) if isinstance(value, dict) else value


def _write_table(content: SummaryTable) -> str:
    lines = ["<table>", f"<caption>{escape(content.title)}</caption>"]
    for tag, rows in (("th", [content.columns]), ("td", content.rows)):
        for row in rows:
            cells = "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row)
            lines.append(f"<tr>{cells}</tr>")
    return "\n".join([*lines, "</table>"])
