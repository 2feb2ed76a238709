"""The counts of a preparation, from its commit records: a resumed preparation reports the whole corpus."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from brimful.base.console import visible, warn
from brimful.base.errors import BrimfulError
from brimful.corpus.pipeline.duplicate_decisions import DECISIONS
from brimful.corpus.reading.lines import READ_AS, UNDECODABLE
from brimful.corpus.reading.nonsense import kind
from brimful.corpus.tokenize.vocabulary_fit import lacking_characters, quality

WARNINGS_SHOWN = 20
FILES_NAMED = 3
WRONG_ENCODING = "set --read.encoding if the text is in another encoding (gb18030, big5 ...)"


def require_some(texts: Sequence[dict[str, Any]]) -> None:
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
    more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
    of = f"{files[0]}{more}" if files else "the input"
    raise BrimfulError(f"nothing is left of {of} after cleaning ({listed or 'no documents'}){hint}")


def _dropped(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    dropped: Counter[str] = Counter()
    for record in counts:
        for name, count in record.items():
            if count and name.startswith("dropped: "):
                dropped[name.removeprefix("dropped: ")] += count
    return dropped


def _sum(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for record in counts:
        total.update(record)
    return dict(sorted(total.items()))


def _pieces(texts: Sequence[dict[str, Any]]) -> int:
    """How many more documents there are because long ones were cut: read + pieces = kept + dropped."""
    dropped = sum(_dropped(text["counts"] for text in texts).values())
    return sum(text["documents"] - text["read"] for text in texts) + dropped


def issues_of(texts: Sequence[dict[str, Any]]) -> list[str]:
    """One line for each kind of problem: in each input file, or in all where more than `FILES_NAMED` have it.
    Some have an example."""
    found: dict[str, dict[str, tuple[str, int]]] = {}
    examples: dict[tuple[str, str], str] = {}
    for text in texts:
        for path, issues in text["issues"].items():
            for issue, count in issues.items():
                places = found.setdefault(kind(issue), {})
                said, before = places.get(path, (issue, 0))
                places[path] = said, before + count
        for path, shown in text["issue_examples"].items():
            for issue, example in shown.items():
                examples.setdefault((path, issue), f", such as {example!r}")
    lines = []
    for places in found.values():
        named, of = list(places.items()), ""
        if len(named) > FILES_NAMED:
            (path, (issue, _)), *_ = named
            named = [(path, (issue, sum(count for _, count in places.values())))]
            of = f"{len(places):,} files, such as "
        for path, (issue, count) in named:
            hint = f"; {WRONG_ENCODING}" if issue.startswith((UNDECODABLE, READ_AS)) else ""
            lines.append(f"{of}{path}: {visible(issue)}: {count:,}{examples.get((path, issue), '')}{hint}")
    return lines


def summarise(
    texts: Sequence[dict[str, Any]], decisions: Sequence[np.ndarray], shards: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Totals over the commit records of text parts and shards, and the decisions on duplicates."""
    decided = sum(
        (np.bincount(part, minlength=len(DECISIONS)) for part in decisions),
        np.zeros(len(DECISIONS), np.int64),
    )
    dropped = Counter(_dropped(record["counts"] for record in [*texts, *shards]))
    dropped.update(
        {name: int(count) for name, count in zip(DECISIONS[1:], decided[1:], strict=True) if count}
    )
    counts = _sum(record["counts"] for record in [*texts, *shards])
    scripts = {
        script: _sum(shard["scripts"].get(script, {}) for shard in shards)
        for script in sorted({script for shard in shards for script in shard["scripts"]})
    }
    tokens = sum(shard["tokens"] for shard in shards)
    unknown = sum(script["unknown"] for script in scripts.values())
    characters = counts.pop("characters", 0)
    warnings = issues_of(texts)
    if count := dropped["undecodable"]:
        warnings.insert(0, f"{count:,} documents were undecodable: {WRONG_ENCODING}")
    warnings += quality(scripts)
    lacking: Counter[str] = Counter()
    for shard in shards:
        lacking.update(shard.get("lacking", {}))  # shards of earlier versions have no such counts
    warnings += lacking_characters(lacking)
    return {
        "documents": {
            "read": sum(text["read"] for text in texts),
            "pieces": _pieces(texts),
            "kept": sum(shard["documents"] for shard in shards),
            "validation": sum(shard["documents"] for shard in shards if shard["split"] == "validation"),
        },
        "dropped": dict(sorted(dropped.items())),
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


def length_histogram(shards: Sequence[dict[str, Any]]) -> dict[str, str]:
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
    for line in warnings[:WARNINGS_SHOWN]:
        warn(line)
    if len(warnings) > WARNINGS_SHOWN:
        warn(f"and {len(warnings) - WARNINGS_SHOWN} more, listed in {where}")
