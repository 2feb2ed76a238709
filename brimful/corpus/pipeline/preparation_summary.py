"""The counts of a preparation, from its commit records, and the Summary that shows them: a resumed
preparation reports the whole corpus."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from brimful.base.console import escape_controls, pluralise, warn
from brimful.base.errors import BrimfulError
from brimful.base.numbers import find_mapping, format_percent, format_short
from brimful.base.summary import Summary, SummaryTable, make_facts_table, make_table
from brimful.corpus.pipeline.duplicate_decisions import DECISIONS
from brimful.corpus.reading.inputs import split_suffix
from brimful.corpus.reading.lines import READ_AS, UNDECODABLE
from brimful.corpus.reading.nonsense import kind
from brimful.corpus.tokenize.vocabulary_fit import lacking_characters, quality

MAX_ROWS = 20
"""Warnings, files, and kinds of files that are listed."""
FILES_NAMED = 3
WRONG_ENCODING = "set --read.encoding if the text is in another encoding (gb18030, big5 ...)"

Facts = Mapping[str, Any]


def require_some(texts: Sequence[Facts]) -> None:
    """Raise BrimfulError, with the counts of dropped documents, if no document is left."""
    if any(text["documents"] for text in texts):
        return
    reasons = Counter(_dropped(text["counts"] for text in texts))
    paths: dict[str, str] = {}
    for text in texts:
        for path, issues in text["issues"].items():
            reasons.update(issues)
            paths |= {issue: path for issue in issues if issue not in paths}
    listed = "; ".join(
        f"{reason}: {count:,}" + (f", such as in {paths[reason]}" if reason in paths else "")
        for reason, count in sorted(reasons.items())
    )
    hint = f"; {WRONG_ENCODING}" if reasons["undecodable"] else ""
    files = list(dict.fromkeys(item["path"] for text in texts for item in text["inputs"]))
    of = files[0] if len(files) == 1 else pluralise(len(files), "file")
    raise BrimfulError(f"nothing is left of {of} after cleaning ({listed or 'no documents'}){hint}")


def _dropped(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    dropped: Counter[str] = Counter()
    for record in counts:
        for name, count in record.items():
            if count and name.startswith("dropped: "):
                dropped[name.removeprefix("dropped: ")] += count
    return dropped


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for record in counts:
        total.update(record)
    return dict(sorted(total.items()))


def issues_of(texts: Sequence[Facts]) -> list[str]:
    """One line for each kind of problem: in each input file, or in all where more than `FILES_NAMED` have it.
    Some have an example."""
    found: dict[str, dict[str, tuple[str, int]]] = {}
    for text in texts:
        for path, issues in text["issues"].items():
            for issue, count in issues.items():
                places = found.setdefault(kind(issue), {})
                said, before = places.get(path, (issue, 0))
                places[path] = said, before + count
    lines = []
    for places in found.values():
        named, of = list(places.items()), ""
        if len(named) > FILES_NAMED:
            (path, (issue, _)), *_ = named
            named = [(path, (issue, sum(count for _, count in places.values())))]
            of = f"{len(places):,} files, such as "
        for path, (issue, count) in named:
            hint = f"; {WRONG_ENCODING}" if issue.startswith((UNDECODABLE, READ_AS)) else ""
            lines.append(f"{of}{path}: {escape_controls(issue)}: {count:,}{hint}")
    return lines


def count_all(
    texts: Sequence[Facts], decisions: Iterable[np.ndarray], shards: Sequence[Facts]
) -> dict[str, Any]:
    """Totals over the commit records of text parts and shards, and the decisions on duplicates."""
    records = [record["counts"] for record in [*texts, *shards]]
    dropped = _dropped(records)
    for part in decisions:
        for name, count in zip(DECISIONS, np.bincount(part, minlength=len(DECISIONS)).tolist(), strict=True):
            dropped[name] += count
    del dropped[DECISIONS[0]]
    counts = _sum(records)
    scripts = {
        script: _sum(shard["scripts"].get(script, {}) for shard in shards)
        for script in sorted({script for shard in shards for script in shard["scripts"]})
    }
    lacking: Counter[str] = Counter()
    for shard in shards:
        lacking.update(shard.get("lacking", {}))  # shards of earlier versions have no such counts
    tokens = sum(shard["tokens"] for shard in shards)
    unknown = sum(script["unknown"] for script in scripts.values())
    characters = counts.pop("characters", 0)
    warnings = [*issues_of(texts), *quality(scripts), *lacking_characters(lacking)]
    if count := dropped["undecodable"]:
        warnings.insert(0, f"{count:,} documents were undecodable: {WRONG_ENCODING}")
    read = sum(text["read"] for text in texts)
    clean = sum(text["documents"] for text in texts)
    return {
        "documents": {
            "read": read,
            # Long documents were cut: read + pieces = kept + dropped.
            "pieces": clean - read + _dropped(text["counts"] for text in texts).total(),
            "kept": sum(shard["documents"] for shard in shards),
            "validation": sum(shard["documents"] for shard in shards if shard["split"] == "validation"),
        },
        "dropped": {name: count for name, count in sorted(dropped.items()) if count},
        "cleaned": {
            name: count for name, count in counts.items() if count and not name.startswith("dropped: ")
        },
        "characters": characters,
        "tokens": tokens,
        "words": sum(shard["words"] for shard in shards),
        "sentences": sum(shard["sentences"] for shard in shards),
        "unknown_token_rate": unknown / max(tokens, 1),
        "tokens_per_character": tokens / max(characters, 1),
        "scripts": scripts,
        "shards": len(shards),
        "vocabulary_size": shards[0]["vocabulary_size"] if shards else 0,
        "warnings": warnings,
    }


def length_histogram(shards: Sequence[Facts]) -> dict[str, str]:
    """Document lengths in tokens over all shards, in the format of a shard's commit record."""
    total: Counter[int] = Counter()
    for shard in shards:
        histogram = shard["length_histogram"]
        pairs = zip(histogram["lengths"].split(), histogram["counts"].split(), strict=True)
        total.update({int(length): int(count) for length, count in pairs})
    lengths = sorted(total)
    return {
        "lengths": " ".join(map(str, lengths)),
        "counts": " ".join(str(total[length]) for length in lengths),
    }


def show_warnings(warnings: Sequence[str], where: str) -> None:
    """Print the first of the warnings."""
    for line in warnings[:MAX_ROWS]:
        warn(line)
    if len(warnings) > MAX_ROWS:
        warn(f"and {len(warnings) - MAX_ROWS} more, listed in {where}")


def summarise_preparation(facts: Facts) -> Summary:
    """What came out of a preparation.

    Args:
        facts: the counts of MANIFEST.json; `decided` and `seconds` where they are known.
    """
    documents, scripts = facts["documents"], find_mapping(facts, "scripts")
    dropped = sum(facts["dropped"].values())
    verdict = f"{documents['read']:,} documents were read, {dropped:,} dropped and {documents['kept']:,} kept"
    if documents["pieces"]:
        verdict += f", with {documents['pieces']:,} more by cutting long ones"
    verdict += f"; {format_short(facts['tokens'])} tokens of {format_short(facts['characters'])} characters"
    warned = pluralise(len(facts["warnings"]), "warning") if facts["warnings"] else ""
    verdict += f"; {warned}." if warned else "."
    totals = {name: f"{facts[name]:,}" for name in ("tokens", "words", "sentences", "shards")}
    result: dict[str, str | None] = {
        "held out": f"{pluralise(documents['validation'], 'document')}",
        **totals,
    }
    for stage, seconds in find_mapping(facts, "seconds").items():
        result[f"{stage}, seconds"] = f"{seconds:g}"
    warnings = [[line] for line in facts["warnings"][:MAX_ROWS]]
    more = f"The first {MAX_ROWS} of {len(facts['warnings']):,}." if len(facts["warnings"]) > MAX_ROWS else ""
    tables = [
        *make_facts_table("Corpus", result),
        *_make_count_table("Dropped, by reason", facts["dropped"]),
        *_make_count_table("Changed while cleaning", facts["cleaned"]),
        *_make_script_table(scripts),
        *_make_decision_table(find_mapping(facts, "decided"), "Han" in scripts, documents["validation"]),
        *make_table("Warnings", [""], warnings, more, is_detail=True),
    ]
    return Summary("Prepared corpus", verdict, tables)


def summarise_inputs(paths: list[str], size: int) -> Summary:
    """What a dry run would read: how many files of each kind, and the first of them.

    Args:
        size: of all files, in bytes.
    """
    verdict = f"{pluralise(len(paths), 'file')}, {size / 1e6:,.1f} MB, would be read."
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
    share = f"{format_percent(decided['validation_share'])} of the documents"
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
