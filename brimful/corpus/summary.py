"""What a preparation did, in figures, read off the commit records: a resumed run reports the whole."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from brimful.console import warn
from brimful.errors import BrimfulError

WARNINGS_SHOWN = 20
WRONG_ENCODING = "set read.encoding if the text is not UTF-8 (gb18030, big5 ...)"


def require_some(texts: Sequence[dict[str, Any]], paths: Sequence[str]) -> None:
    """Raises BrimfulError, with the counts of what went, if no document is left."""
    if any(text["documents"] for text in texts):
        return
    reasons = _dropped(texts)
    for text in texts:
        for issues in text["issues"].values():
            reasons.update(issues)
    listed = "; ".join(f"{reason}: {count:,}" for reason, count in sorted(reasons.items())) or "no documents"
    hint = f"; {WRONG_ENCODING}" if reasons["undecodable"] else ""
    raise BrimfulError(f"nothing left of {' '.join(paths)} after cleaning ({listed}){hint}")


def _dropped(records: Sequence[dict[str, Any]]) -> Counter[str]:
    dropped: Counter[str] = Counter()
    for record in records:
        for reason, count in record["counts"].items():
            if count and reason.startswith("dropped: "):
                dropped[reason.removeprefix("dropped: ")] += count
    return dropped


def summarise(texts: Sequence[dict[str, Any]], shards: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Totals over the commit records of the clean parts and of the shards; shows the warnings."""
    tokens = sum(shard["tokens"] for shard in shards)
    changes: Counter[str] = Counter()
    for text in texts:
        changes.update({rule: count for rule, count in text["counts"].items() if "dropped" not in rule})
    warnings = [
        f"{path}: {issue}: {count:,}"
        for text in texts
        for path, issues in text["issues"].items()
        for issue, count in issues.items()
    ]
    dropped = _dropped([*texts, *shards])
    if count := dropped["undecodable"]:
        warnings.insert(0, f"{count:,} documents were undecodable: {WRONG_ENCODING}")
    for line in warnings[:WARNINGS_SHOWN]:
        warn(line)
    if len(warnings) > WARNINGS_SHOWN:
        warn(f"and {len(warnings) - WARNINGS_SHOWN} more, listed in summary.json")
    return {
        "documents": {
            "read": sum(text["read"] for text in texts),
            "kept": sum(shard["documents"] for shard in shards),
        },
        "duplicates": dropped["duplicate"],
        "dropped": dict(sorted(dropped.items())),
        "cleaned": dict(sorted(changes.items())),
        "characters": sum(shard["counts"]["characters"] for shard in shards),
        "tokens": tokens,
        "words": sum(shard["words"] for shard in shards),
        "sentences": sum(shard["sentences"] for shard in shards),
        "unknown_token_rate": sum(shard["counts"]["unknown tokens"] for shard in shards) / max(tokens, 1),
        "shards": len(shards),
        "vocabulary_size": shards[0]["vocabulary_size"],
        "warnings": warnings,
    }
