"""What a careful colleague would notice in tables before training: repeats, leaks, contradictions.

A finding is one line with a count and an example. Rows are numbered from 1 in the whole table, also where a
part of it is looked at. Texts are the same but for case, width and spaces if `normalise` makes them equal.
"""

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from brimful.base.console import escape_controls, pluralise
from brimful.corpus.dedup.near_pairs import find_near_pairs
from brimful.corpus.text.characters import normalise
from brimful.corpus.text.special_ids import unknown_id
from brimful.model.encoder import Encoder
from brimful.tables.label_lists import MISSING
from brimful.tables.table import Table, label_names_of
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.row_groups import MIN_SOURCE_CHARACTERS, find_sources, list_sides
from brimful.tasks.task_data import TaskData

UNKNOWN_TOKEN_SHARE = 0.01
"""A larger proportion of unknown tokens is a finding."""
SHOWN_ROWS = 5
SHOWN_CHARACTERS = 40


@dataclass(frozen=True)
class Finding:
    """One thing that was noticed.

    Attributes:
        kind: a stable name of what it is.
        file: the table that it is about.
        count: how many rows.
        message: one line, to be read after the file's name.
        rows: the first of the rows, from 1.
    """

    kind: str
    file: str
    count: int
    message: str
    rows: list[int]


def _finding(kind: str, table: Table, rows: Sequence[int], what: str, example: str) -> list[Finding]:
    """The finding that there are rows (from 0) `what`; none of no rows."""
    if not rows:
        return []
    message = f"{pluralise(len(rows), 'row')} {what} ({example})"
    numbers = [table.number(row) for row in rows[:SHOWN_ROWS]]
    return [Finding(kind, str(table.path), len(rows), message, numbers)]


def _paired(
    kind: str, table: Table, pairs: Mapping[int, int], other: Table, what: str, after: str = ""
) -> list[Finding]:
    """The finding that rows have counterparts in a table, of which the first is the example."""
    if not pairs:
        return []
    row, there = next(iter(pairs.items()))
    both = ((table, row), (other, there))
    rows = " and ".join(f"row {one.number(at)}{_label(one, at)}" for one, at in both)
    where = "" if other.path == table.path else " there"
    return _finding(kind, table, list(pairs), what, f"{rows}{where}: {_quoted(table.texts[row])}{after}")


def _label(table: Table, row: int) -> str:
    """The label of a row, for an example: of spans and of answers, their names and texts."""
    if table.labels is None:
        return ""
    label = table.labels[row]
    parts = label if isinstance(label, list) else [label]
    names = dict.fromkeys(part if isinstance(part, str) else str(part[-1]) for part in parts)
    return f" ({_quoted('|'.join(names))})"


def _quoted(text: str) -> str:
    text = " ".join(escape_controls(text.replace("\n", " ").replace("\t", " ")).split())
    return repr(text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…")


def _same_label(first: Any, second: Any) -> bool:
    if isinstance(first, list):
        return sorted(map(str, first)) == sorted(map(str, second))
    return first == second


def _conflicts(table: Table, other: Table, pairs: Mapping[int, int]) -> dict[int, int]:
    """The pairs of rows whose labels differ."""
    ours, theirs = table.labels, other.labels
    if ours is None or theirs is None:
        return {}
    return {row: there for row, there in pairs.items() if not _same_label(ours[row], theirs[there])}


def check_rows(table: Table) -> list[Finding]:
    """Rows that repeat earlier ones, and equal texts with different labels."""
    first: dict[str, int] = {}
    repeats = {}
    for row, (text, second) in enumerate(table.keys()):
        before = first.setdefault(f"{normalise(text)}\n\n{normalise(second)}", row)
        if before != row:
            repeats[row] = before
    same = "an earlier text, at most case, width and spaces apart"
    clashing = _conflicts(table, table, repeats)
    return [
        *_paired("duplicates", table, repeats, table, f"with {same}"),
        *_paired("conflicts", table, clashing, table, f"with another label than {same}"),
    ]


def _row_texts(table: Table) -> list[str]:
    """One string for each row, equal for texts, or pairs in either order, that differ in no letter."""
    return ["\n\n".join(sorted(filter(None, map(normalise, key)))) for key in table.keys()]  # noqa: SIM118


def find_overlap(first: Table, other: Table, *, near: bool = True) -> tuple[dict[int, int], dict[int, int]]:
    """The rows of `other` that are in `first`, each with the row there, from 0: of the same text, at most
    case, width and spaces apart; and, with `near`, of one that is only almost the same
    (`corpus.dedup.near_pairs`)."""
    first_rows: dict[str, int] = {}
    for row, text in enumerate(_row_texts(first)):
        first_rows.setdefault(text, row)
    texts = _row_texts(other)
    same = {row: first_rows[text] for row, text in enumerate(texts) if text in first_rows}
    if not near:
        return same, {}
    others = [row for row in range(len(texts)) if row not in same]
    distinct = list(first_rows)
    match = find_near_pairs(distinct, [texts[row] for row in others])[0]
    pairs = zip(others, match.tolist(), strict=True)
    return same, {row: first_rows[distinct[index]] for row, index in pairs if index >= 0}


def check_overlap(first: Table, other: Table, *, exact: bool = False) -> list[Finding]:
    """Rows of `other` that are in `first` too, exactly or, unless `exact`, nearly, or share a long text."""
    same, near = find_overlap(first, other, near=not exact)
    sources, shared = {} if exact else find_sources(first), dict[int, int]()
    for row, texts in enumerate(list_sides(other)):
        in_both = sources.keys() & set(texts)
        if in_both and row not in same and row not in near:
            shared[row] = sources[min(in_both)]
    differ = len(_conflicts(other, first, same))
    labels = f", {differ:,} with another label" if differ else ""
    optimistic = f"{labels}; what is chosen or trained on {first.path} is measured too well on them"
    long = f"with a text of {MIN_SOURCE_CHARACTERS} characters or more that is in {first.path} too"
    return [
        *_paired(
            "leakage", other, same, first, f"of {len(other):,} that are in {first.path} too", optimistic
        ),
        *_paired("near leakage", other, near, first, f"almost as in {first.path}"),
        *_paired("shared texts", other, shared, first, long),
    ]


def check_labels(table: Table, named: Sequence[Sequence[str]], known: frozenset[str]) -> list[Finding]:
    """Labels that become classes of their own, and are probably another label or none; and unknown ones.

    Args:
        named: of each row its labels.
        known: the labels of train.
    """
    own = {name for names in named for name in names}
    by_key: dict[str, list[str]] = {}
    for name in sorted(known | own):
        by_key.setdefault(_label_key(name), []).append(name)
    alike: list[str] = []
    for names in by_key.values():
        here = own.intersection(names)
        if len(names) > 1 and (len(here) > 1 or here - known):  # else the finding is train's
            alike += names
    odd = {
        "labels alike": (
            alike,
            "with labels that differ only in case, width, spaces, invisible characters or the form of a"
            " number, and count as different ones",
        ),
        "missing labels": (sorted(own & MISSING), "with labels that programs write for missing values"),
        "unseen labels": (sorted(own - known), "with labels that train lacks"),
    }
    findings: list[Finding] = []
    for kind, (names, what) in odd.items():
        meant = set(names)
        rows = [row for row, of_row in enumerate(named) if not meant.isdisjoint(of_row)]
        findings += _finding(kind, table, rows, what, ", ".join(map(ascii, names[:SHOWN_ROWS])))
    return findings


def _label_key(name: str) -> str:
    """Equal for labels that a person takes for the same one, such as 1 and 1.0."""
    key = "".join(each for each in normalise(name) if unicodedata.category(each) != "Cf")
    try:
        number = float(key)
    except ValueError:
        return key
    return f"{number:g}" if isfinite(number) and "_" not in key else key


def check_tables(tables: Sequence[Table], *, named: bool) -> list[Finding]:
    """All findings that need no tokenizer, of train and of the tables that are measured on.

    Args:
        named: whether labels are names; regression and answers have none.
    """
    findings: list[Finding] = []
    train_labels = frozenset(name for names in label_names_of(tables[0]) or [] for name in names)
    for place, table in enumerate(tables):
        findings += check_rows(table)
        names = label_names_of(table) if named else None
        if names is not None:
            findings += check_labels(table, names, train_labels)
        for earlier in tables[:place]:
            findings += check_overlap(earlier, table, exact=earlier is not tables[0])  # near pairs take long
    return findings


def count_labels(labels: Sequence[str], table: Table) -> dict[str, int]:
    """How many rows have each label, in the order of `labels`, then others by name."""
    counts = Counter(name for names in label_names_of(table) or [] for name in set(names))
    return {name: counts[name] for name in [*labels, *sorted(counts.keys() - set(labels))]}


def count_tokens(data: Encoded, tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of each row as it is read, with special tokens, and how many are unknown, int64 (n,) each; of a
    text in windows the sum of these."""
    examples, unknown = data.examples, unknown_id(tokenizer)
    of_example = [np.count_nonzero(ids == unknown) for ids in examples.tokens]
    tokens = np.bincount(examples.text_of_example, examples.lengths, minlength=len(data))
    unknown_tokens = np.bincount(examples.text_of_example, of_example, minlength=len(data))
    return tokens.astype(np.int64), unknown_tokens.astype(np.int64)


def summarise_tokens(tokens: np.ndarray, unknown: np.ndarray) -> dict[str, float]:
    """Quantiles of the length, and the proportion of unknown tokens."""
    named = {"median": 0.5, "p90": 0.9, "p99": 0.99, "longest": 1.0}
    quantiles = {name: int(np.quantile(tokens, q, method="higher")) for name, q in named.items()}
    return quantiles | {"unknown": float(unknown.sum() / max(tokens.sum(), 1))}


def describe_tokens(facts: Mapping[str, float]) -> str:
    """`summarise_tokens` in words."""
    return (
        f"tokens: median {facts['median']:,}, 90 % within {facts['p90']:,}, 99 % within {facts['p99']:,},"
        f" longest {facts['longest']:,}, {100 * facts['unknown']:.2f} % unknown"
    )


def check_unknown(table: Table, tokens: np.ndarray, unknown: np.ndarray) -> list[Finding]:
    """Unknown tokens, if there are many; `tokens` and `unknown` as of `count_tokens`."""
    share = unknown.sum() / max(tokens.sum(), 1)
    if share < UNKNOWN_TOKEN_SHARE:
        return []
    worst = int((unknown / np.maximum(tokens, 1)).argmax())
    example = f"{unknown[worst]} of {tokens[worst]} in row {table.number(worst)}"
    what = f"with unknown tokens, {100 * share:.1f} % of all"
    return _finding("unknown tokens", table, np.flatnonzero(unknown).tolist(), what, example)


def check_before(data: TaskData, encoder: Encoder, *, own_dev: bool) -> tuple[list[Finding], dict[str, Any]]:
    """What is odd in the tables of a run, and the part of summary.json that is known before training.

    Args:
        own_dev: whether dev is a table of its own, not a part of train.
    """
    assert encoder.tokenizer is not None
    # A later table leaks from an earlier one: dev chooses what test measures.
    parts = {"train": data.train}
    if own_dev and data.dev is not None:
        parts["dev"] = data.dev
    parts["test"] = data.test
    parts |= {f"more_tests[{index}]": part for index, part in enumerate(data.more_tests)}
    findings = check_tables([part.table for part in parts.values()], named="labels" in data.task.facts)
    tokens = {name: count_tokens(part, encoder.tokenizer) for name, part in parts.items()}
    for name, part in parts.items():
        findings += check_unknown(part.table, *tokens[name])
    names = {str(part.table.path): name for name, part in reversed(parts.items())}
    records = [
        {"table": names[f.file], "kind": f.kind, "count": f.count, "message": f.message} for f in findings
    ]
    return findings, {
        "train": {"n": len(data.train), "tokens": summarise_tokens(*tokens["train"])},
        "findings": records,
    }
