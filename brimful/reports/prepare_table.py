"""The table at the end of `prepare`."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from rich.table import Table

from brimful.base.console import counted, visible
from brimful.base.terminal import output_console
from brimful.corpus.reading.inputs import split_suffix

SHOWN = 10
"""Files, and kinds of files, that a dry run names."""


def show_summary(summary: dict[str, Any]) -> None:
    """Print the counts of a preparation, or what a dry run found."""
    if "documents" not in summary:  # a dry run
        _show_inputs(summary["inputs"], summary["bytes"])
        return
    console = output_console()
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    documents = summary["documents"]
    _section(table, "documents", {"read": documents["read"]})
    if documents["pieces"]:
        _section(table, "", {"more by cutting long ones": documents["pieces"]})
    _section(table, "", {f"dropped: {reason}": -count for reason, count in summary["dropped"].items()})
    _section(table, "", {"kept": documents["kept"], "of them for validation": documents["validation"]})
    _section(table, "changed while cleaning", summary["cleaned"])
    totals = {name: summary[name] for name in ("characters", "tokens", "words", "sentences", "shards")}
    _section(table, "output", totals)
    console.print(table)
    console.print(_script_table(summary["scripts"]))
    console.print(_decisions(summary["decided"], summary["scripts"], documents["validation"]))
    seconds = ", ".join(f"{stage} {value:g}" for stage, value in summary["seconds"].items())
    memory = ", ".join(f"{who} {value:,} MB" for who, value in summary["memory_mb"].items())
    console.print(f"Seconds: {seconds}. Peak memory: {memory}.")


def _show_inputs(paths: Sequence[str], size: int) -> None:
    """What would be read: how many files of each kind, and the first of them."""
    print(f"dry run: {counted(len(paths), 'file')}, {size / 1e6:,.1f} MB, would be read")
    kinds = Counter("".join(split_suffix(path)) or "no suffix" for path in paths)
    listed = [f"{visible(kind)} {count:,}" for kind, count in kinds.most_common(SHOWN)]
    print(f"  {', '.join(listed)}{' ...' * (len(kinds) > SHOWN)}")
    for path in paths[:SHOWN]:
        print(f"  {visible(path)}")
    if len(paths) > SHOWN:
        print(f"  ... {len(paths) - SHOWN:,} more, which --json lists")


def _section(table: Table, title: str, rows: dict[str, int]) -> None:
    if title and rows:
        table.add_row(f"[bold]{title}[/bold]", "")
    for name, value in rows.items():
        table.add_row(f"  {name}", f"{value:,}")


def _decisions(decided: dict[str, Any], scripts: Collection[str], held_out: int) -> Table:
    """What was decided for the user, and the options that decide it otherwise.

    Args:
        held_out: documents for validation.
    """
    model, made = decided["model"], "trained on this text" if decided["trained"] else "given"
    rows = {
        "vocabulary": (f"{decided['vocabulary_size']:,} pieces ({model}), {made}", "--tokenizer"),
        "case": ("ignored" if decided["lowercase"] else "kept", "--lowercase"),
        "accents": (
            f"removed from {', '.join(decided['accents'])}" if decided["accents"] else "kept",
            "--lowercase",
        ),
        "held out": (
            f"{100 * decided['validation_share']:g} % of the documents" if held_out else "none",
            "--validation-share",
        ),
    }
    if decided["han"] and "Han" in scripts:
        most = "one character" if decided["han"] == "characters" else "up to four characters"
        rows["Chinese"] = (f"tokens of {most}", "--han")
    table = Table(box=None, pad_edge=False)
    for heading in ("decided", "", "option"):
        table.add_column(heading)
    for name, (value, options) in rows.items():
        table.add_row(f"  {name}", value, options)
    return table


def _script_table(scripts: dict[str, dict[str, int]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("script", "characters", "tokens", "tokens a character", "unknown"):
        table.add_column(heading, justify="left" if heading == "script" else "right")
    for script, counts in sorted(scripts.items(), key=lambda item: -item[1]["characters"]):
        characters, tokens = max(counts["characters"], 1), counts["tokens"]
        rate = 100 * counts["unknown"] / max(tokens, 1)
        unknown = f"{rate:.2f} %" if not 0 < rate < 0.005 else "under 0.01 %"
        row = (f"{counts['characters']:,}", f"{tokens:,}", f"{tokens / characters:.2f}", unknown)
        table.add_row(script, *row)
    return table
