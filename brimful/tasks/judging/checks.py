"""Find problems in tables before training: repeats, leaks, contradictions.

A finding is one line with a count and an example. Rows are numbered from 1 in the whole table, even if only
a part of it is checked. Texts count as the same if they differ only in case, width and spaces.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy import ndarray
from tokenizers import Tokenizer

from brimful.base.console import escape_controls, pluralise
from brimful.base.types import Numbers, Values
from brimful.corpus.dedup.near_pairs import find_near_pairs
from brimful.corpus.text.characters import normalise
from brimful.corpus.text.special_ids import unknown_id
from brimful.hf.folders import require_tokenizer
from brimful.model.encoder import Encoder
from brimful.tables.label_lists import MISSING
from brimful.tables.table import Table, label_names_of
from brimful.tasks.encoded_tables import Encoded
from brimful.tasks.row_groups import MIN_SOURCE_CHARACTERS, find_sources, list_sides
from brimful.tasks.task_data import TaskData

UNKNOWN_TOKEN_SHARE = 0.01
"""A larger proportion of unknown tokens is a finding."""
MAX_EXAMPLES = 5
"""The most rows or labels that a finding names."""
MAX_EXAMPLE_CHARACTERS = 40
RowPairs = dict[int, int]
"""Rows of a table, each with its counterpart in the same or another one, from 0."""


@dataclass(frozen=True)
class Finding:
    """One thing that was noticed.

    Attributes:
        kind: a stable name for what was found.
        file: the table that it is about.
        count: the number of rows.
        message: one line, to be read after the file's name.
        rows: the first of the rows, from 1.
    """

    kind: str
    file: str
    count: int
    message: str
    rows: list[int]


def _make_finding(kind: str, table: Table, rows: Sequence[int], what: str, example: str) -> list[Finding]:
    """Return the finding that `rows` (from 0) are as `what` says; an empty list without rows."""
    if not rows:
        return []
    message = f"{pluralise(len(rows), 'row')} {what} ({example})"
    numbers = [table.number(row) for row in rows[:MAX_EXAMPLES]]
    return [Finding(kind, str(table.path), len(rows), message, numbers)]


def _pair_finding(
    kind: str, table: Table, pairs: RowPairs, other: Table, what: str, after: str = ""
) -> list[Finding]:
    """Return the finding that rows have counterparts in `other`, if any have; the first is the example."""
    if not pairs:
        return []
    row, counterpart = next(iter(pairs.items()))
    first = f"row {table.number(row)}{_quote_label(table, row)}"
    second = f"row {other.number(counterpart)}{_quote_label(other, counterpart)}"
    if other.path != table.path:
        second += " there"
    example = f"{first} and {second}: {_quote(table.texts[row])}{after}"
    return _make_finding(kind, table, list(pairs), what, example)


def _quote_label(table: Table, row: int) -> str:
    """Quote the label of a row for an example; for spans and answers, their names or texts."""
    if table.labels is None:
        return ""
    label = table.labels[row]
    names = dict[str, None]()  # each once, in order
    for part in label if isinstance(label, list) else [label]:
        if not isinstance(part, str):
            part = str(part[-1])
        names[part] = None
    return f" ({_quote('|'.join(names))})"


def _quote(text: str) -> str:
    text = " ".join(escape_controls(text.replace("\n", " ").replace("\t", " ")).split())
    if len(text) > MAX_EXAMPLE_CHARACTERS:
        text = text[:MAX_EXAMPLE_CHARACTERS] + "…"
    return repr(text)


def _find_conflicts(table: Table, other: Table, pairs: RowPairs) -> RowPairs:
    """The pairs of rows whose labels differ."""
    conflicts: RowPairs = {}
    if table.labels is None or other.labels is None:
        return conflicts
    for row, counterpart in pairs.items():
        ours, theirs = table.labels[row], other.labels[counterpart]
        if isinstance(ours, list):  # several labels have no order
            ours, theirs = sorted(map(str, ours)), sorted(map(str, theirs))
        if ours != theirs:
            conflicts[row] = counterpart
    return conflicts


def check_rows(table: Table) -> list[Finding]:
    """Find rows that repeat earlier ones, and equal texts with different labels."""
    first: dict[str, int] = {}
    repeats = {}
    for row, (text, second) in enumerate(table.keys()):
        before = first.setdefault(f"{normalise(text)}\n\n{normalise(second)}", row)
        if before != row:
            repeats[row] = before
    same = "an earlier text, apart from case, width and spaces"
    conflicts = _find_conflicts(table, table, repeats)
    findings = _pair_finding("duplicates", table, repeats, table, f"with {same}")
    return findings + _pair_finding("conflicts", table, conflicts, table, f"with another label than {same}")


def _join_texts(table: Table) -> list[str]:
    """Return one string per row; texts that count as the same, or pairs in either order, share it."""
    return ["\n\n".join(sorted(filter(None, map(normalise, key)))) for key in table.keys()]  # noqa: SIM118


def find_overlap(first: Table, other: Table, *, near: bool = True) -> tuple[RowPairs, RowPairs]:
    """Find the rows of `other` that are in `first`, each with its counterpart there, from 0: equal texts and,
    with `near`, almost equal ones (`corpus.dedup.near_pairs`)."""
    first_rows: dict[str, int] = {}
    for row, text in enumerate(_join_texts(first)):
        first_rows.setdefault(text, row)
    same, others = RowPairs(), dict[int, str]()
    for row, text in enumerate(_join_texts(other)):
        if text in first_rows:
            same[row] = first_rows[text]
        else:
            others[row] = text
    alike = RowPairs()
    if near:
        distinct = list(first_rows)
        match = find_near_pairs(distinct, list(others.values()))[0]
        for row, place in zip(others, match.tolist(), strict=True):
            if place >= 0:
                alike[row] = first_rows[distinct[place]]
    return same, alike


def check_overlap(first: Table, other: Table, *, exact: bool = False) -> list[Finding]:
    """Find rows of `other` that are in `first`; unless `exact`, also near copies and shared long texts."""
    same, near = find_overlap(first, other, near=not exact)
    after = f"; what is chosen or trained on {first.path} is measured too well on them"
    differ = len(_find_conflicts(other, first, same))
    if differ:
        after = f", {differ:,} with another label{after}"
    what = f"of {len(other):,} that are in {first.path} too"
    findings = _pair_finding("leakage", other, same, first, what, after)
    if exact:
        return findings
    findings += _pair_finding("near leakage", other, near, first, f"almost as in {first.path}")
    sources, shared = find_sources(first), RowPairs()
    for row, texts in enumerate(list_sides(other)):
        in_both = sources.keys() & set(texts)
        if in_both and row not in same and row not in near:
            shared[row] = sources[min(in_both)]
    what = f"with a text of {MIN_SOURCE_CHARACTERS} characters or more that is in {first.path} too"
    return findings + _pair_finding("shared texts", other, shared, first, what)


def check_labels(table: Table, named: Sequence[Sequence[str]], train_labels: frozenset[str]) -> list[Finding]:
    """Find labels that probably mean another label or a missing value, and labels that train lacks.

    Args:
        named: the labels of each row.
    """
    own = set[str]().union(*named)
    by_key: dict[str, list[str]] = {}
    for name in sorted(train_labels | own):
        by_key.setdefault(_label_key(name), []).append(name)
    alike: list[str] = []
    for names in by_key.values():
        here = own.intersection(names)
        if len(names) > 1 and (len(here) > 1 or here - train_labels):  # otherwise train's check reports it
            alike += names
    findings: list[Finding] = []
    for kind, names, what in (
        (
            "labels alike",
            alike,
            "with labels that differ only in case, width, spaces, invisible characters or the form of a"
            " number, and count as different ones",
        ),
        ("missing labels", sorted(own & MISSING), "with labels that programs write for missing values"),
        ("unseen labels", sorted(own - train_labels), "with labels that train lacks"),
    ):
        rows = [row for row, row_names in enumerate(named) if not set(names).isdisjoint(row_names)]
        findings += _make_finding(kind, table, rows, what, ", ".join(map(ascii, names[:MAX_EXAMPLES])))
    return findings


def _label_key(name: str) -> str:
    """Return a key shared by labels that a person would read as the same, such as 1 and 1.0."""
    key = "".join(each for each in normalise(name) if unicodedata.category(each) != "Cf")
    try:
        number = float(key)
    except ValueError:
        return key
    return f"{number:g}" if isfinite(number) and "_" not in key else key


def check_tables(tables: Sequence[Table], *, named: bool) -> list[Finding]:
    """Return all findings that need no tokenizer, on train and on other tables; `named`: labels are names."""
    findings: list[Finding] = []
    train_labels = frozenset[str]().union(*label_names_of(tables[0]) or ())
    for place, table in enumerate(tables):
        findings += check_rows(table)
        names = label_names_of(table) if named else None
        if names is not None:
            findings += check_labels(table, names, train_labels)
        for earlier in tables[:place]:
            findings += check_overlap(earlier, table, exact=earlier is not tables[0])  # near pairs take long
    return findings


def count_tokens(data: Encoded, tokenizer: Tokenizer) -> tuple[ndarray, ndarray]:
    """Count the tokens of each row, special ones included, and the unknown ones, int64 (n,) each, over all
    windows of a text."""
    examples, unknown = data.examples, unknown_id(tokenizer)
    of_example = [np.count_nonzero(ids == unknown) for ids in examples.tokens]
    tokens = np.bincount(examples.text_of_example, examples.lengths, minlength=len(data))
    unknown_tokens = np.bincount(examples.text_of_example, of_example, minlength=len(data))
    return tokens.astype(np.int64), unknown_tokens.astype(np.int64)


def summarise_tokens(tokens: ndarray, unknown: ndarray) -> Numbers:
    """Return quantiles of the length, and the proportion of unknown tokens."""
    facts: Numbers = {}
    for name, quantile in (("median", 0.5), ("p90", 0.9), ("p99", 0.99), ("longest", 1.0)):
        facts[name] = int(np.quantile(tokens, quantile, method="higher"))
    return facts | {"unknown": float(unknown.sum() / max(tokens.sum(), 1))}


def describe_tokens(facts: Numbers) -> str:
    """Return the facts of `summarise_tokens` in words."""
    return (
        f"tokens: median {facts['median']:,}, 90 % within {facts['p90']:,}, 99 % within {facts['p99']:,},"
        f" longest {facts['longest']:,}, {100 * facts['unknown']:.2f} % unknown"
    )


def check_unknown(table: Table, tokens: ndarray, unknown: ndarray) -> list[Finding]:
    """Find unknown tokens, if there are many; `count_tokens` returns `tokens` and `unknown`."""
    share = unknown.sum() / max(tokens.sum(), 1)
    if share < UNKNOWN_TOKEN_SHARE:
        return []
    worst = int((unknown / np.maximum(tokens, 1)).argmax())
    example = f"{unknown[worst]} of {tokens[worst]} in row {table.number(worst)}"
    what = f"with unknown tokens, {100 * share:.1f} % of all"
    return _make_finding("unknown tokens", table, np.flatnonzero(unknown).tolist(), what, example)


def check_before(data: TaskData, encoder: Encoder, *, own_dev: bool) -> tuple[list[Finding], Values]:
    """Return the findings in the tables of a run, and the facts for summary.json; `own_dev`: dev is a table
    of its own."""
    tokenizer = require_tokenizer(encoder, "the encoder")
    parts = {"train": data.train}  # in this order: each table is searched for rows of earlier ones
    if own_dev and data.dev is not None:
        parts["dev"] = data.dev
    parts["test"] = data.test
    for index, part in enumerate(data.more_tests):
        parts[f"more_tests[{index}]"] = part
    findings = check_tables([part.table for part in parts.values()], named="labels" in data.task.facts)
    tokens, names = {}, dict[str, str]()
    for name, part in parts.items():
        tokens[name] = count_tokens(part, tokenizer)
        findings += check_unknown(part.table, *tokens[name])
        names.setdefault(str(part.table.path), name)
    records = []
    for finding in findings:
        record = {"table": names[finding.file], "kind": finding.kind}
        records.append(record | {"count": finding.count, "message": finding.message})
    train = {"n": len(data.train), "tokens": summarise_tokens(*tokens["train"])}
    return findings, {"train": train, "findings": records}
