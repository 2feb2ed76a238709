"""What a page shows of a prepared folder: documents read and dropped, cleaning, lengths, scripts."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from brimful.base.console import counted
from brimful.reports.charts import Bar, Chart, bar_chart, histogram_chart
from brimful.reports.content import (
    SPACE,
    Card,
    ReportTable,
    branch,
    card,
    metric,
    number,
    percent,
    plain,
    short,
)

COUNTS = ("characters", "tokens", "unknown")
MOST_REASONS = 3
MOST_WARNINGS = 20

Summary = Mapping[str, Any]


def prepared_headline(summary: Summary) -> tuple[list[str], list[Card | None]]:
    """Sentences and cards: how much was read and kept, what was dropped most, the size of the corpus."""
    read, kept = metric(summary, "documents.read"), metric(summary, "documents.kept")
    cut = metric(summary, "documents.pieces") or 0
    tokens, characters = metric(summary, "tokens"), metric(summary, "characters")
    files = metric(summary, "input_files")
    held_out = metric(summary, "documents.validation")
    before = read + cut if read is not None else None
    sentences = []
    if read is not None and kept is not None:
        source = f" from {counted(round(files), 'file')}" if files else ""
        more = f", which cutting long ones made {before:,.0f}" if cut else ""
        left = "all" if kept == before else f"{kept:,.0f}"
        sentences.append(f"{read:,.0f} documents were read{source}{more}; {left} were kept.")
    dropped = _counts(summary, "dropped")
    if dropped:
        reasons = ", ".join(f"{name} {count:,}" for name, count in dropped[:MOST_REASONS])
        most = "most often as " if len(dropped) > MOST_REASONS else ""
        sentences.append(f"{sum(count for _, count in dropped):,} were dropped: {most}{reasons}.")
    warnings = summary.get("warnings")
    if isinstance(warnings, list) and warnings:
        sentences.append(f"It gave {counted(len(warnings), 'warning')}.")
    each = f"{tokens / kept:,.0f} a document" if tokens is not None and kept else ""
    ratio = metric(summary, "tokens_per_character")
    return sentences, [
        card("Documents kept", kept, short, _kept(kept, before, held_out)),
        card("Tokens", tokens, short, each),
        card("Characters", characters, short, f"{ratio:.2f} tokens a character" if ratio else ""),
        card("Vocabulary", metric(summary, "vocabulary_size"), short, _unknown(summary)),
    ]


def _kept(kept: float | None, before: float | None, held_out: float | None) -> str:
    notes = [
        *([f"{percent(kept / before)} of all"] if kept and before else []),
        *([f"{held_out:,.0f} of them held out"] if held_out else []),
    ]
    return ", ".join(notes)


def _unknown(summary: Summary) -> str:
    rate = metric(summary, "unknown_token_rate")
    return f"{_percent(rate)} of tokens unknown" if rate is not None else ""


def _counts(summary: Summary, key: str) -> list[tuple[str, int]]:
    """The counters under a key, largest first."""
    found = [(name, int(n)) for name, n in branch(summary, key).items() if number(n)]
    return sorted(found, key=lambda item: -item[1])


def prepared_charts(summary: Summary) -> list[Chart]:
    """The lengths of the kept documents, what was dropped by reason, and what cleaning changed."""
    charts = []
    histogram = branch(summary, "length_histogram")
    lengths, counts = (str(histogram.get(key, "")).split() for key in ("lengths", "counts"))
    if lengths and len(lengths) == len(counts):
        values = np.array(lengths, np.int64), np.array(counts, np.int64)
        charts.append(histogram_chart("Kept documents by length", *values, "tokens"))
    for key, name, colour, note in (
        ("dropped", "Documents dropped, by reason", "c2", ""),
        ("cleaned", "Changed by cleaning", "c1", "Each rule counts its own unit: documents, lines, tokens."),
    ):
        bars = [Bar(rule, count, f"{count:,}", colour=colour) for rule, count in _counts(summary, key)]
        if bars:
            charts.append(bar_chart(name, bars, note))
    return charts


def prepared_tables(summary: Summary) -> list[ReportTable]:
    """Characters and tokens of each script, and the warnings."""
    tables = []
    scripts = branch(summary, "scripts")
    known = {script: [metric(scripts[script], key) or 0 for key in COUNTS] for script in scripts}
    shown = [
        [script, plain(characters), plain(tokens), f"{tokens / characters:.2f}", _percent(unknown / tokens)]
        for script, (characters, tokens, unknown) in sorted(known.items(), key=lambda item: -item[1][0])
        if characters and tokens
    ]
    if shown:
        columns = ["Script", "Characters", "Tokens", "Tokens a character", "Unknown tokens"]
        tables.append(ReportTable("Scripts", columns, shown))
    warnings = summary.get("warnings")
    if isinstance(warnings, list) and warnings:
        note = f"The first {MOST_WARNINGS} of {len(warnings):,}." if len(warnings) > MOST_WARNINGS else ""
        lines = [[plain(line)] for line in warnings[:MOST_WARNINGS]]
        tables.append(ReportTable("Warnings", [], lines, note))
    return tables


def _percent(rate: float) -> str:
    return f"{100 * rate:.2g}{SPACE}%"
