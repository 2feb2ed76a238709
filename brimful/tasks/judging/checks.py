"""What a careful colleague would notice in tables before training: repeats, leaks, contradictions.

A finding is one line with a count and an example. Rows are numbered from 1 in the whole table, also where a
part of it is looked at. Texts are the same but for case, width and spaces if `normalised` makes them equal.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations
from math import isfinite
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from brimful.base.console import counted, recorded_warnings, visible
from brimful.base.errors import BrimfulError
from brimful.corpus.dedup.near_pairs import near_pairs
from brimful.corpus.text.characters import normalised
from brimful.corpus.text.special_ids import unknown_id
from brimful.tables.label_lists import MISSING
from brimful.tables.labelled_spans import LabelledSpan, label_names_of
from brimful.tables.question_files import Answer
from brimful.tables.table import Table, require_pairs
from brimful.tasks.alike import SOURCE_CHARACTERS, sides_of, sources_of
from brimful.tasks.encoded import Encoded
from brimful.tasks.task import Task

RARE_LABEL_ROWS = 10
"""A label of fewer rows is rare."""
DOMINATING_SHARE = 0.8
"""A label of at least this proportion of the rows dominates."""
UNKNOWN_TOKEN_SHARE = 0.01
"""A larger proportion of unknown tokens is a finding."""
SHOWN_ROWS = 5
SHOWN_CHARACTERS = 40
TEXTS_AT_ONCE = 10_000


@dataclass(frozen=True)
class Finding:
    """One thing that was noticed.

    Attributes:
        kind: a stable name of what it is.
        file: the table that it is about.
        count: how many rows, texts or labels.
        message: one line, to be read after the file's name.
        rows: the first of the rows, from 1.
    """

    kind: str
    file: str
    count: int
    message: str
    rows: list[int]


def _keys(table: Table, change: Callable[[str], str] = str) -> list[str]:
    """One string for each row, equal for equal texts or pairs."""
    if table.second is None:
        return [change(text) for text in table.texts]
    return [f"{change(a)}\n\n{change(b)}" for a, b in zip(table.texts, table.second, strict=True)]


def _is_same_label(first: Any, second: Any) -> bool:
    if isinstance(first, list):
        return sorted(map(str, first)) == sorted(map(str, second))
    return first == second


def _quoted(text: str) -> str:
    text = " ".join(visible(text.replace("\n", " ").replace("\t", " ")).split())
    return repr(text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…")


def _earlier(keys: Sequence[str]) -> dict[int, int]:
    """Of each row whose key an earlier row has, the first such row (from 0)."""
    first: dict[str, int] = {}
    return {row: before for row, key in enumerate(keys) if (before := first.setdefault(key, row)) != row}


def check_rows(table: Table) -> list[Finding]:
    """Empty texts, rows that repeat earlier ones, and equal texts with different labels."""
    findings = []
    empty = [row for row, key in enumerate(_keys(table)) if not key.strip()]
    if empty:
        rows = counted(len(empty), "row")
        findings.append(
            _finding("empty", table, empty, f"{rows} without text (row {table.number(empty[0])})")
        )
    repeats = _earlier(_keys(table, normalised))
    if repeats:
        row, before = next(iter(repeats.items()))
        verb = "repeats" if len(repeats) == 1 else "repeat"
        message = (
            f"{counted(len(repeats), 'row')} {verb} an earlier one, at most case, width and spaces apart (row"
            f" {table.number(row)} is row {table.number(before)}: {_quoted(table.texts[row])})"
        )
        findings.append(_finding("duplicates", table, list(repeats), message))
    if table.labels is not None:
        findings += _check_conflicts(table, table.labels, repeats)
    return findings


def _check_conflicts(table: Table, labels: Sequence[Any], repeats: Mapping[int, int]) -> list[Finding]:
    """Repeated texts whose rows have different labels.

    Args:
        repeats: of each row that repeats an earlier one, the first such row.
    """
    clashing = {
        row: before for row, before in repeats.items() if not _is_same_label(labels[row], labels[before])
    }
    if not clashing:
        return []
    row, before = next(iter(clashing.items()))
    texts = len(set(clashing.values()))
    message = (
        f"{counted(texts, 'text')} in several rows with different labels (row {table.number(before)}"
        f" has {_label(labels[before])}, row {table.number(row)} {_label(labels[row])}:"
        f" {_quoted(table.texts[row])})"
    )
    rows = sorted({*clashing, *clashing.values()})
    return [Finding("conflicts", str(table.path), texts, message, _numbers(table, rows))]


def _label(label: Any) -> str:
    if isinstance(label, list):
        names = [part.label if isinstance(part, LabelledSpan) else part for part in label]
        if any(isinstance(part, Answer) for part in label):
            names = list(dict.fromkeys(part.text for part in label))
        label = "|".join(map(str, names))
    return _quoted(str(label))


def _numbers(table: Table, rows: Sequence[int]) -> list[int]:
    return [table.number(row) for row in rows[:SHOWN_ROWS]]


def _finding(kind: str, table: Table, rows: Sequence[int], message: str) -> Finding:
    return Finding(kind, str(table.path), len(rows), message, _numbers(table, rows))


def check_labels(table: Table, purpose: str) -> list[Finding]:
    """Odd labels, rare ones, and one that dominates.

    Args:
        purpose: what rows of a rare label are too few for: `learn` or `measure`.
    """
    named = label_names_of(table)
    if named is None:
        return []
    counts = Counter(name for names in named for name in names)
    findings = _check_odd_labels(table, named, set(counts))
    rare = sorted((n, name) for name, n in counts.items() if n < RARE_LABEL_ROWS)
    if rare:
        examples = ", ".join(f"{_quoted(name)} {n}" for n, name in rare[:SHOWN_ROWS])
        verb = "is" if len(rare) == 1 else "are"
        message = (
            f"{len(rare)} of {counted(len(counts), 'label')} {verb} on fewer than {RARE_LABEL_ROWS} rows"
            f" ({examples}), too few to {purpose} them well"
        )
        rows = [
            row for row, names in enumerate(named) if any(counts[name] < RARE_LABEL_ROWS for name in names)
        ]
        findings.append(Finding("rare", str(table.path), len(rare), message, _numbers(table, rows)))
    has_lists = isinstance(next(iter(table.labels or ()), None), list)
    if has_lists or len(counts) < 2:
        return findings
    name, most = counts.most_common(1)[0]
    if most >= DOMINATING_SHARE * len(table):
        share = f"{100 * most / len(table):.1f} %"
        message = (
            f"{_quoted(name)} is the label of {share} of the rows: always answering it is {share} accurate"
        )
        findings.append(Finding("imbalance", str(table.path), most, message, []))
    return findings


def _check_odd_labels(table: Table, named: Sequence[Sequence[str]], labels: Set[str]) -> list[Finding]:
    """Labels that become classes of their own, and are probably another label, none, or several.

    Args:
        named: of each row its labels.
    """
    findings = []
    by_key: dict[str, list[str]] = {}
    for name in sorted(labels):
        by_key.setdefault(_label_key(name), []).append(name)
    alike = [names for names in by_key.values() if len(names) > 1]
    if alike:
        rows = _rows_with(named, {name for names in alike for name in names})
        examples = ", ".join(" and ".join(map(ascii, names)) for names in alike[:SHOWN_ROWS])
        message = (
            f"{counted(len(rows), 'row')} with labels that differ only in case, width, spaces, invisible"
            f" characters or the form of a number, and count as different ones: {examples}"
        )
        findings.append(_finding("labels alike", table, rows, message))
    missing = labels & MISSING
    if missing:
        rows = _rows_with(named, missing)
        names = ", ".join(map(_quoted, sorted(missing)))
        message = (
            f"{counted(len(rows), 'row')} with the label {names}, which programs write for missing values"
        )
        findings.append(_finding("missing labels", table, rows, message))
    lists = {name for name in labels if name[:1] + name[-1:] in ("[]", "{}") or "|" in name}
    if lists and not isinstance(next(iter(table.labels or ()), None), list):
        rows = _rows_with(named, lists)
        message = (
            f"{counted(len(rows), 'row')} whose label looks like a list ({_quoted(min(lists))});"
            " --task multi-label reads lists"
        )
        findings.append(_finding("lists", table, rows, message))
    return findings


def _label_key(name: str) -> str:
    """Equal for labels that a person takes for the same one, such as 1 and 1.0."""
    key = "".join(each for each in normalised(name) if unicodedata.category(each) != "Cf")
    try:
        number = float(key)
    except ValueError:
        return key
    return f"{number:g}" if isfinite(number) and "_" not in key else key


def _rows_with(named: Sequence[Sequence[str]], labels: Set[str]) -> list[int]:
    return [row for row, names in enumerate(named) if not labels.isdisjoint(names)]


@dataclass(frozen=True)
class Overlap:
    """Which rows of a table are in the training table too.

    Attributes:
        same: row -> training row of the same text, at most case, width and spaces apart; from 0.
        near: row -> (training row, Jaccard similarity) of rows that are only almost the same.
    """

    same: dict[int, int]
    near: dict[int, tuple[int, float]]


def overlap(train: Table, other: Table) -> Overlap:
    """The rows of `other` that are in `train`, exactly or nearly (`corpus.dedup.near_pairs`)."""
    asked, first = _row_texts(other), _first_rows(train)
    same = {row: first[key] for row, key in enumerate(asked) if key in first}
    rest = [row for row in range(len(asked)) if row not in same]
    distinct = list(first)
    match, alike = near_pairs(distinct, [asked[row] for row in rest])
    near = {
        row: (first[distinct[index]], similarity)
        for row, index, similarity in zip(rest, match.tolist(), alike.tolist(), strict=True)
        if index >= 0
    }
    return Overlap(same, near)


def _first_rows(table: Table) -> dict[str, int]:
    """The first row of each text, of a pair in either order."""
    first: dict[str, int] = {}
    for row, key in enumerate(_row_texts(table)):
        first.setdefault(key, row)
    return first


def _row_texts(table: Table) -> list[str]:
    """One string for each row, equal for texts, or pairs in either order, that differ in no letter."""
    return ["\n\n".join(sorted(filter(None, map(normalised, key)))) for key in table.keys()]  # noqa: SIM118


def check_shared(first: Table, second: Table) -> list[Finding]:
    """Rows of two tables that measure, such as dev and test: what is chosen on one favours the other's."""
    there = _first_rows(first)
    same = {row: there[key] for row, key in enumerate(_row_texts(second)) if key in there}
    if not same:
        return []
    row, other = next(iter(same.items()))
    message = (
        f"{len(same):,} of {counted(len(second), 'row')} are in {first.path} too (row {second.number(row)} is"
        f" row {first.number(other)} there: {_quoted(second.texts[row])}); what is chosen on one of them"
        " cannot be judged on the other"
    )
    return [_finding("shared rows", second, list(same), message)]


def check_overlap(train: Table, other: Table, shared: Overlap) -> list[Finding]:
    """Rows of `other` that are in `train` too, exactly or nearly."""
    findings = []
    if shared.same:
        row, there = next(iter(shared.same.items()))
        message = f"{len(shared.same):,} of {counted(len(other), 'row')} are in train too"
        if train.labels is not None and other.labels is not None:
            pairs = ((other.labels[row], train.labels[there]) for row, there in shared.same.items())
            differ = sum(not _is_same_label(ours, theirs) for ours, theirs in pairs)
            if differ:
                message += f", {differ:,} with another label"
        message += (
            f" (row {other.number(row)} is row {train.number(there)} there: {_quoted(other.texts[row])})"
        )
        message += "; metrics on them are too optimistic"
        findings.append(_finding("leakage", other, list(shared.same), message))
    if shared.near:
        row, (there, similarity) = max(shared.near.items(), key=lambda item: item[1][1])
        message = (
            f"{counted(len(shared.near), 'row')} almost as in train (row {other.number(row)} shares"
            f" {int(100 * similarity)} % with row {train.number(there)}: {_quoted(other.texts[row])},"
            f" {_quoted(train.texts[there])})"
        )
        findings.append(_finding("near leakage", other, list(shared.near), message))
    return findings + _check_shared_texts(train, other, shared.same.keys() | shared.near.keys())


def _check_shared_texts(train: Table, other: Table, known: Set[int]) -> list[Finding]:
    """Rows of `other` but for `known` that share a long text, such as a context, with a row of `train`."""
    sources = sources_of(train)
    shared: dict[int, str] = {}
    for row, texts in enumerate(sides_of(other)):
        in_both = sources.keys() & set(texts)
        if in_both and row not in known:
            shared[row] = min(in_both)
    if not shared:
        return []
    row, text = next(iter(shared.items()))
    there = sources[text]
    example = next(each for each in train.keys()[there] if normalised(each) == text)
    message = (
        f"{counted(len(shared), 'row')} with a text of {SOURCE_CHARACTERS} characters or more that is in"
        f" train (row {other.number(row)} and row {train.number(there)} there: {_quoted(example)})"
    )
    return [_finding("shared texts", other, list(shared), message)]


def compare_labels(train: Table, other: Table) -> list[Finding]:
    """Labels that the training table lacks, so that no model can learn them."""
    here, there = label_names_of(other), label_names_of(train)
    if here is None or there is None:
        return []
    known = {name for names in there for name in names}
    unseen = [row for row, names in enumerate(here) if not known.issuperset(names)]
    if not unseen:
        return []
    name = next(name for name in here[unseen[0]] if name not in known)
    alike = sorted(each for each in known if _label_key(each) == _label_key(name))
    there_it_is = f", there {_quoted(alike[0])}" if alike else ""
    message = (
        f"{counted(len(unseen), 'row')} with labels that train lacks (row {other.number(unseen[0])}:"
        f" {_quoted(name)}{there_it_is})"
    )
    return [_finding("unseen labels", other, unseen, message)]


@dataclass(frozen=True)
class Lengths:
    """Tokens of each row with its special tokens, and how many are unknown: int64 (n,) each."""

    tokens: np.ndarray
    unknown: np.ndarray

    @property
    def facts(self) -> dict[str, float]:
        """Quantiles of the length, and the proportion of unknown tokens."""
        named = {"median": 0.5, "p90": 0.9, "p99": 0.99, "longest": 1.0}
        quantiles = {name: int(np.quantile(self.tokens, q, method="higher")) for name, q in named.items()}
        return quantiles | {"unknown": float(self.unknown.sum() / max(self.tokens.sum(), 1))}


def described(facts: Mapping[str, float]) -> str:
    """`Lengths.facts` in words."""
    return (
        f"tokens: median {facts['median']:,}, 90 % within {facts['p90']:,}, 99 % within {facts['p99']:,},"
        f" longest {facts['longest']:,}, {100 * facts['unknown']:.2f} % unknown"
    )


def measure_lengths(table: Table, tokenizer: Tokenizer) -> Lengths:
    """Encode every row, uncut."""
    unknown_token = unknown_id(tokenizer)
    rows = table.texts if table.second is None else list(zip(table.texts, table.second, strict=True))
    tokens = np.zeros(len(table), dtype=np.int64)
    unknown = np.zeros(len(table), dtype=np.int64)
    for start in range(0, len(rows), TEXTS_AT_ONCE):
        encodings = tokenizer.encode_batch_fast(list(rows[start : start + TEXTS_AT_ONCE]))
        for row, encoding in enumerate(encodings, start):
            tokens[row] = len(encoding.ids)
            unknown[row] = encoding.ids.count(unknown_token)
    return Lengths(tokens, unknown)


def lengths_of_encoded(data: Encoded, tokenizer: Tokenizer) -> Lengths:
    """As `measure_lengths`, of rows that are encoded already: of cut texts without their ends."""
    unk, examples = unknown_id(tokenizer), data.examples
    unknown = [int(np.count_nonzero(ids == unk)) for ids in examples.tokens]
    tokens_of_row, unknown_of_row = (
        np.bincount(examples.text_of_example, values, minlength=len(data)).astype(np.int64)
        for values in (examples.lengths, unknown)
    )
    return Lengths(tokens_of_row, unknown_of_row)


def check_encoding(
    task: Task,
    table: Table,
    train: Table,
    before: list[Encoded],
    tokenizer: Tokenizer,
    max_length: int,
    overlap: int | None,
) -> list[Finding]:
    """What finetune says when it encodes a labelled table, or why it stops at it.

    Args:
        before: the tables that were encoded before, train first. This one is added.
    """
    try:
        with recorded_warnings() as messages:
            before.append(task.encode(table, tokenizer, max_length, overlap, labelled=True))
            task.learnt(before[0], before[-1:])
        require_pairs(table, train.second is not None, train.path)
    except BrimfulError as error:
        return [Finding("refused", str(table.path), 1, f"finetune stops at this: {error}", [])]
    return [Finding("targets", str(table.path), 1, message, []) for message in messages]


def check_lengths(
    table: Table, lengths: Lengths, max_length: int, longest: int, windows: int | None
) -> list[Finding]:
    """Texts that are cut or read in windows.

    Args:
        max_length: the most tokens of an example.
        longest: what the encoder takes.
        windows: the tokens that windows of a long text share; None: it is cut.
    """
    over = np.flatnonzero(lengths.tokens > max_length).tolist()
    if not over:
        return []
    facts, n = lengths.facts, len(table)
    fate, verb = "cut" if windows is None else "read in windows", "is" if len(over) == 1 else "are"
    message = (
        f"{len(over):,} of {counted(n, 'text')} ({100 * len(over) / n:.1f} %) {verb} over {max_length}"
        f" tokens and {fate} (row {table.number(over[0])} has {lengths.tokens[over[0]]:,}; median"
        f" {facts['median']:,}, 90 % within {facts['p90']:,}, 99 % within {facts['p99']:,}, longest"
        f" {facts['longest']:,}; the encoder takes {longest})"
    )
    if windows is None and max_length < longest:
        message += f"; --max-length {min(longest, int(facts['p99']))} would cut fewer"
    elif windows is None:
        message += "; --overlap 32 would read them in windows"
    return [_finding("long texts", table, over, message)]


def check_unknown(table: Table, lengths: Lengths) -> list[Finding]:
    """Unknown tokens, if there are many."""
    share = lengths.facts["unknown"]
    if share < UNKNOWN_TOKEN_SHARE:
        return []
    rows = np.flatnonzero(lengths.unknown).tolist()
    worst = int((lengths.unknown / np.maximum(lengths.tokens, 1)).argmax())
    message = (
        f"{100 * share:.1f} % of the tokens are unknown, in {counted(len(rows), 'text')}"
        f" ({lengths.unknown[worst]} of {lengths.tokens[worst]} in row {table.number(worst)})"
    )
    return [_finding("unknown tokens", table, rows, message)]


def check_tables(
    train: Table, others: Sequence[Table], labels: Sequence[str] | None
) -> tuple[list[Finding], list[Overlap]]:
    """All findings that need no tokenizer, and the overlap of each other table with train.

    Args:
        labels: the names of the task's labels; None for a task without names, such as regression.
    """
    named = labels is not None
    found = check_rows(train) + (check_labels(train, "learn") if named else [])
    shared = [overlap(train, other) for other in others]
    for other, both in zip(others, shared, strict=True):
        found += [*check_rows(other), *check_overlap(train, other, both)]
        if named:
            found += [*check_labels(other, "measure"), *compare_labels(train, other)]
    for first, second in combinations(others, 2):
        found += check_shared(first, second)
    return found, shared


def label_counts(labels: Sequence[str], table: Table) -> dict[str, int]:
    """How many rows have each label, in the order of `labels`, then others by name."""
    counts = Counter(name for names in label_names_of(table) or [] for name in set(names))
    return {name: counts[name] for name in [*labels, *sorted(counts.keys() - set(labels))]}
