"""The Summary of a preparation: documents read, dropped and kept, cleaning, scripts, what was decided."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from brimful.base.console import counted
from brimful.base.numbers import branch, percent, short
from brimful.base.summary import Summary, SummaryTable, make_facts_table, make_table
from brimful.corpus.reading.inputs import split_suffix

MAX_ROWS = 20
"""Warnings, files, and kinds of files that are listed."""

Facts = Mapping[str, Any]


def summarise_preparation(facts: Facts, histogram: Facts | None = None) -> Summary:
    """What came out of a preparation.

    Args:
        facts: the counts of MANIFEST.json; `decided`, `seconds` and `memory_mb` where they are known.
        histogram: `lengths` and `counts` of the kept documents, as texts of numbers.
    """
    documents, scripts = facts["documents"], branch(facts, "scripts")
    dropped = sum(facts["dropped"].values())
    verdict = f"{documents['read']:,} documents were read, {dropped:,} dropped and {documents['kept']:,} kept"
    if documents["pieces"]:
        verdict += f", with {documents['pieces']:,} more by cutting long ones"
    verdict += f"; {short(facts['tokens'])} tokens of {short(facts['characters'])} characters"
    warned = counted(len(facts["warnings"]), "warning") if facts["warnings"] else ""
    verdict += f"; {warned}." if warned else "."
    totals = {name: f"{facts[name]:,}" for name in ("tokens", "words", "sentences", "shards")}
    result: dict[str, str | None] = {"held out": f"{counted(documents['validation'], 'document')}", **totals}
    for stage, seconds in branch(facts, "seconds").items():
        result[f"{stage}, seconds"] = f"{seconds:g}"
    for who, size in branch(facts, "memory_mb").items():
        result[f"peak memory, {who}"] = f"{size:,} MB"
    warnings = [[line] for line in facts["warnings"][:MAX_ROWS]]
    more = f"The first {MAX_ROWS} of {len(facts['warnings']):,}." if len(facts["warnings"]) > MAX_ROWS else ""
    tables = [
        *make_facts_table("Corpus", result),
        *_make_count_table("Dropped, by reason", facts["dropped"]),
        *_make_count_table("Changed while cleaning", facts["cleaned"]),
        *_make_script_table(scripts),
        *_make_decision_table(branch(facts, "decided"), "Han" in scripts, documents["validation"]),
        *_make_length_table(histogram or {}),
        *make_table("Warnings", [""], warnings, more, is_detail=True),
    ]
    return Summary("Prepared corpus", verdict, tables)


def summarise_inputs(paths: list[str], size: int) -> Summary:
    """What a dry run would read: how many files of each kind, and the first of them.

    Args:
        size: of all files, in bytes.
    """
    verdict = f"{counted(len(paths), 'file')}, {size / 1e6:,.1f} MB, would be read."
    kinds = Counter("".join(split_suffix(path)) or "no suffix" for path in paths)
    rows = [[kind, f"{count:,}"] for kind, count in kinds.most_common(MAX_ROWS)]
    note = f"The first of {len(paths):,}, which --json lists." if len(paths) > MAX_ROWS else ""
    files = [[path] for path in paths[:MAX_ROWS]]
    tables = [*make_table("Kinds", ["Kind", "Files"], rows), *make_table("Files", [""], files, note)]
    return Summary("Dry run", verdict, tables)


def _make_count_table(title: str, counts: Mapping[str, int]) -> list[SummaryTable]:
    """Counters, the largest first."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return make_facts_table(title, {name: f"{count:,}" for name, count in ordered})


def _make_script_table(scripts: Facts) -> list[SummaryTable]:
    """Characters and tokens of each script, and how many tokens the vocabulary does not know."""
    rows = []
    for script, counts in sorted(scripts.items(), key=lambda item: -item[1]["characters"]):
        characters, tokens = max(counts["characters"], 1), counts["tokens"]
        rate = 100 * counts["unknown"] / max(tokens, 1)
        unknown = "< 0.01 %" if 0 < rate < 0.005 else f"{rate:.2f} %"
        per_character = f"{tokens / characters:.2f}"
        rows.append([script, f"{counts['characters']:,}", f"{tokens:,}", per_character, unknown])
    columns = ["Script", "Characters", "Tokens", "Tokens a character", "Unknown tokens"]
    return make_table("Scripts", columns, rows)


def _make_decision_table(decided: Facts, has_han: bool, held_out: int) -> list[SummaryTable]:
    """What was decided for the user, and the options that decide it otherwise."""
    if not decided:
        return []
    made = "trained on this text" if decided["trained"] else "given"
    accents = ", ".join(decided["accents"])
    share = f"{percent(decided['validation_share'])} of the documents"
    vocabulary = f"{decided['vocabulary_size']:,} pieces ({decided['model']}), {made}"
    rows = [
        ["vocabulary", vocabulary, "--tokenizer"],
        ["case", "ignored" if decided["lowercase"] else "kept", "--lowercase"],
        ["accents", f"removed from {accents}" if accents else "kept", "--lowercase"],
        ["held out", share if held_out else "none", "--validation-share"],
    ]
    if decided["han"] and has_han:
        most = "one character" if decided["han"] == "characters" else "up to four characters"
        rows.append(["Chinese", f"tokens of {most}", "--han"])
    return make_table("Decided", ["", "Decided", "Option"], rows)


def _make_length_table(histogram: Facts) -> list[SummaryTable]:
    """Kept documents by length, in bins that double: 1, 2 to 3, 4 to 7 ..."""
    lengths, counts = (str(histogram.get(key, "")).split() for key in ("lengths", "counts"))
    bins: Counter[int] = Counter()
    for length, count in zip(lengths, counts, strict=True):
        bins[int(length).bit_length()] += int(count)
    rows = []
    for size in sorted(bins):
        rows.append([f"{short(1 << (size - 1))} to {short((1 << size) - 1)}", f"{bins[size]:,}"])
    return make_table("Kept documents by length", ["Tokens", "Documents"], rows, is_detail=True)
