"""Count what a preparation did, from its commit records, and show the counts as a Summary.

Since all counts come from the records, a resumed preparation reports the whole corpus.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from brimful.base.console import escape_controls, pluralise, warn
from brimful.base.errors import BrimfulError
from brimful.base.numbers import find_mapping, format_percent, format_short
from brimful.base.summary import Summary, SummaryTable, make_facts_table, make_table
from brimful.base.types import Facts, Values
from brimful.corpus.pipeline.duplicate_decisions import DECISIONS
from brimful.corpus.reading.inputs import split_suffix
from brimful.corpus.reading.lines import READ_AS, UNDECODABLE
from brimful.corpus.reading.nonsense import kind_of_issue
from brimful.corpus.shards import pack_histogram
from brimful.corpus.tokenize.vocabulary_fit import list_fit_warnings, list_lacking_characters

MAX_ROWS = 20
"""Warnings, files, and kinds of files that are listed."""
_DROPPED = "dropped: "
"""The beginning of the names of counters of dropped documents."""
FILES_NAMED = 3
WRONG_ENCODING = "set --read.encoding if the text is in another encoding (gb18030, big5 ...)"


def require_some(texts: Sequence[Facts]) -> None:
    """Refuse a corpus of which no document is left.

    Raises:
        BrimfulError: no document is left; the message counts the documents by the reason for dropping them.
    """
    if _total(texts, "documents"):
        return
    # The reasons for dropping documents, and the problems of files, each with its first file.
    reasons = _select_dropped(_sum_counts(texts, "counts"))
    paths: dict[str, str] = {}
    for text in texts:
        for path, issues in text["issues"].items():
            reasons.update(issues)
            for issue in issues:
                paths.setdefault(issue, path)
    clauses = []
    for reason, count in sorted(reasons.items()):
        place = f", such as in {paths[reason]}" if reason in paths else ""
        clauses.append(f"{reason}: {count:,}{place}")
    hint = f"; {WRONG_ENCODING}" if reasons["undecodable"] else ""
    files = list({item["path"] for text in texts for item in text["inputs"]})
    name = files[0] if len(files) == 1 else pluralise(len(files), "file")
    raise BrimfulError(
        f"nothing is left of {name} after cleaning ({'; '.join(clauses) or 'no documents'}){hint}"
    )


def _total(records: Iterable[Facts], field: str) -> int:
    return sum(record[field] for record in records)


def _sum_counts(records: Iterable[Facts], field: str) -> Counter[str]:
    """Add up the counters in a field, which some of the records may lack."""
    total: Counter[str] = Counter()
    for record in records:
        total.update(record.get(field, {}))
    return total


def _select_dropped(counts: Counter[str]) -> Counter[str]:
    """Return the counts of dropped documents by their reason."""
    dropped: Counter[str] = Counter()
    for name, count in counts.items():
        if name.startswith(_DROPPED) and count:
            dropped[name.removeprefix(_DROPPED)] = count
    return dropped


def list_issues(texts: Sequence[Facts]) -> list[str]:
    """Return a line for each kind of problem in each input file, some with an example.

    If more than `FILES_NAMED` files have a kind of problem, one line stands for all of them.
    """
    places_by_kind: dict[str, dict[str, tuple[str, int]]] = {}
    for text in texts:
        for path, issues in text["issues"].items():
            for issue, count in issues.items():
                places = places_by_kind.setdefault(kind_of_issue(issue), {})
                first_issue, count_before = places.get(path, (issue, 0))
                places[path] = (first_issue, count_before + count)
    lines = []
    for places in places_by_kind.values():
        if len(places) > FILES_NAMED:
            path, (issue, _) = next(iter(places.items()))
            total = sum(count for _, count in places.values())
            places = {f"{len(places):,} files, such as {path}": (issue, total)}
        for path, (issue, count) in places.items():
            hint = f"; {WRONG_ENCODING}" if issue.startswith((UNDECODABLE, READ_AS)) else ""
            lines.append(f"{path}: {escape_controls(issue)}: {count:,}{hint}")
    return lines


def count_all(texts: Sequence[Facts], decisions: Iterable[np.ndarray], shards: Sequence[Facts]) -> Values:
    """Return totals over the commit records of text parts and shards, and the decisions on duplicates."""
    counts = _sum_counts([*texts, *shards], "counts")
    dropped = _select_dropped(counts)
    for part in decisions:
        for name, count in zip(DECISIONS, np.bincount(part, minlength=len(DECISIONS)).tolist(), strict=True):
            dropped[name] += count
    del dropped[DECISIONS[0]]  # the documents that stay
    scripts = {}
    for script in sorted({script for shard in shards for script in shard["scripts"]}):
        total = _sum_counts([shard["scripts"] for shard in shards], script)
        scripts[script] = dict(sorted(total.items()))
    tokens, unknown = _total(shards, "tokens"), _total(scripts.values(), "unknown")
    characters = counts.pop("characters", 0)
    lacking = _sum_counts(shards, "lacking")
    warnings = [*list_issues(texts), *list_fit_warnings(scripts), *list_lacking_characters(lacking)]
    # This warning comes first, since a single option is the remedy.
    if dropped["undecodable"]:
        warnings.insert(0, f"{dropped['undecodable']:,} documents were undecodable: {WRONG_ENCODING}")
    read, clean = _total(texts, "read"), _total(texts, "documents")
    dropped_while_cleaning = _select_dropped(_sum_counts(texts, "counts")).total()
    validation_shards = [shard for shard in shards if shard["split"] == "validation"]
    changes = {name: count for name, count in counts.items() if not name.startswith(_DROPPED)}
    return {
        "documents": {
            "read": read,
            # Additional documents, since long ones were cut: read + pieces = kept + dropped.
            "pieces": clean - read + dropped_while_cleaning,
            "kept": _total(shards, "documents"),
            "validation": _total(validation_shards, "documents"),
        },
        "dropped": _drop_zeros(dropped),
        "cleaned": _drop_zeros(changes),
        "characters": characters,
        "tokens": tokens,
        "words": _total(shards, "words"),
        "sentences": _total(shards, "sentences"),
        "unknown_character_rate": unknown / max(_total(scripts.values(), "characters"), 1),
        "tokens_per_character": tokens / max(characters, 1),
        "scripts": scripts,
        "shards": len(shards),
        "vocabulary_size": shards[0]["vocabulary_size"] if shards else 0,
        "warnings": warnings,
    }


def _drop_zeros(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts that are not zero, in the order of their names."""
    return {name: count for name, count in sorted(counts.items()) if count}


def length_histogram(shards: Sequence[Facts]) -> dict[str, str]:
    """Return document lengths in tokens over all shards, in the format of a shard's commit record."""
    total: Counter[int] = Counter()
    for shard in shards:
        histogram = shard["length_histogram"]
        lengths, counts = histogram["lengths"].split(), histogram["counts"].split()
        for length, count in zip(lengths, counts, strict=True):
            total[int(length)] += int(count)
    return pack_histogram(total)


def show_warnings(warnings: Sequence[str], where: str) -> None:
    """Print the first of the warnings."""
    for line in warnings[:MAX_ROWS]:
        warn(line)
    if len(warnings) > MAX_ROWS:
        warn(f"and {len(warnings) - MAX_ROWS} more, listed in {where}")


def summarise_preparation(facts: Facts) -> Summary:
    """Show what came out of a preparation.

    Args:
        facts: the counts of MANIFEST.json, and perhaps `decided` and `seconds`.
    """
    documents, scripts = facts["documents"], find_mapping(facts, "scripts")
    dropped = sum(facts["dropped"].values())
    verdict = f"{documents['read']:,} documents were read, {dropped:,} dropped and {documents['kept']:,} kept"
    if documents["pieces"]:
        verdict += f", with {documents['pieces']:,} more by cutting long ones"
    verdict += f"; {format_short(facts['tokens'])} tokens of {format_short(facts['characters'])} characters"
    if facts["warnings"]:
        verdict += f"; {pluralise(len(facts['warnings']), 'warning')}"
    result: dict[str, str | None] = {"held out": pluralise(documents["validation"], "document")}
    for name in ("tokens", "words", "sentences", "shards"):
        result[name] = f"{facts[name]:,}"
    for stage, seconds in find_mapping(facts, "seconds").items():
        result[f"{stage}, seconds"] = f"{seconds:g}"
    warnings = [[line] for line in facts["warnings"][:MAX_ROWS]]
    note = f"The first {MAX_ROWS} of {len(facts['warnings']):,}." if facts["warnings"][MAX_ROWS:] else ""
    tables = [
        *make_facts_table("Corpus", result),
        *_make_count_table("Dropped, by reason", facts["dropped"]),
        *_make_count_table("Changed while cleaning", facts["cleaned"]),
        *_make_script_table(scripts),
        *_make_decision_table(find_mapping(facts, "decided"), "Han" in scripts, documents["validation"]),
        *make_table("Warnings", [""], warnings, note, is_detail=True),
    ]
    return Summary("Prepared corpus", f"{verdict}.", tables)


def summarise_inputs(paths: list[str], size: int) -> Summary:
    """Show what a dry run would read: the number of files of each kind, and the first files.

    Args:
        size: the bytes of all files.
    """
    verdict = f"{pluralise(len(paths), 'file')}, {size / 1e6:,.1f} MB, would be read."
    kinds = Counter("".join(split_suffix(path)) or "no suffix" for path in paths)
    rows = [[kind, f"{count:,}"] for kind, count in kinds.most_common(MAX_ROWS)]
    note = f"The first of {len(paths):,}, which --json lists." if len(paths) > MAX_ROWS else ""
    files = [[path] for path in paths[:MAX_ROWS]]
    tables = [*make_table("Kinds", ["Kind", "Files"], rows), *make_table("Files", [""], files, note)]
    return Summary("Dry run", verdict, tables)


def _make_count_table(title: str, counts: Mapping[str, int]) -> list[SummaryTable]:
    """Show counters, the largest first."""
    return make_facts_table(title, {name: f"{count:,}" for name, count in Counter(counts).most_common()})


def _make_script_table(scripts: Facts) -> list[SummaryTable]:
    """Show characters and tokens of each script, and the share of characters in unknown tokens."""
    rows = []
    for script, counts in sorted(scripts.items(), key=lambda item: -item[1]["characters"]):
        characters, tokens = max(counts["characters"], 1), counts["tokens"]
        rate = 100 * counts["unknown"] / characters
        unknown = f"{rate:.2f} %"
        if 0 < rate < 0.005:
            unknown = "< 0.01 %"  # not 0.00 %
        per_character = f"{tokens / characters:.2f}"
        rows.append([script, f"{counts['characters']:,}", f"{tokens:,}", per_character, unknown])
    columns = ["Script", "Characters", "Tokens", "Tokens a character", "In unknown tokens"]
    return make_table("Scripts", columns, rows)


def _make_decision_table(decided: Facts, has_han: bool, held_out: int) -> list[SummaryTable]:
    """Show the decisions made for the user, and the options that change them."""
    if not decided:
        return []
    made = "trained on this text" if decided["trained"] else "given"
    case = "ignored" if decided["lowercase"] else "kept"
    accents = f"removed from {', '.join(decided['accents'])}" if decided["accents"] else "kept"
    # A small corpus may have no document below the share.
    share = f"{format_percent(decided['validation_share'])} of the documents" if held_out else "none"
    vocabulary = f"{decided['vocabulary_size']:,} pieces ({decided['model']}), {made}"
    rows = [
        ["vocabulary", vocabulary, "--tokenizer"],
        ["case", case, "--lowercase"],
        ["accents", accents, "--lowercase"],
        ["held out", share, "--validation-share"],
    ]
    if decided["han"] and has_han:
        most = "one character" if decided["han"] == "characters" else "up to four characters"
        rows.append(["Chinese", f"tokens of {most}", "--han"])
    return make_table("Decided", ["", "Decided", "Option"], rows)
