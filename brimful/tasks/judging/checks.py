"""What a careful colleague would notice in tables before training: repeats, leaks, contradictions.

A finding is one line with a count and an example. Rows are numbered from 1 in the whole table, also where a
part of it is looked at. Texts are the same but for case, width and spaces if `normalised` makes them equal.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations, islice, pairwise
from math import isfinite
from typing import Any

import numpy as np
from scipy import stats
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
from brimful.tasks.alike import SOURCE, sides_of, sources_of
from brimful.tasks.encoded import Encoded
from brimful.tasks.task import Task

FEW = 10
"""A label of fewer rows is rare."""
MAJORITY = 0.8
"""A label of at least this proportion of the rows dominates."""
SHIFT, SHIFT_P = 0.1, 1e-3
"""The labels of two tables differ if this proportion of rows would have to change its label, and if the
chi-squared test of homogeneity gives a smaller p."""
UNKNOWN = 0.01
"""A larger proportion of unknown tokens is a finding."""
SHOWN_ROWS = 5
SHOWN_CHARACTERS = 40
AT_ONCE = 10_000


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


def _same(first: Any, second: Any) -> bool:
    return sorted(map(str, first)) == sorted(map(str, second)) if isinstance(first, list) else first == second


def _quoted(text: str) -> str:
    text = " ".join(visible(text.replace("\n", " ").replace("\t", " ")).split())
    return repr(text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…")


def _earlier(keys: Sequence[str]) -> dict[int, int]:
    """Of each row whose key an earlier row has, the first such row (from 0)."""
    first: dict[str, int] = {}
    return {row: before for row, key in enumerate(keys) if (before := first.setdefault(key, row)) != row}


def check_rows(table: Table) -> list[Finding]:
    """Empty texts, rows that repeat earlier ones, and equal texts with different labels."""
    file, found = str(table.path), []
    empty = [row for row, key in enumerate(_keys(table)) if not key.strip()]
    if empty:
        rows = counted(len(empty), "row")
        found.append(_finding("empty", table, empty, f"{rows} without text (row {table.number(empty[0])})"))
    exact, alike = _earlier(_keys(table)), _earlier(_keys(table, normalised))
    if exact:
        row, before = next(iter(exact.items()))
        rows = f"{counted(len(exact), 'row')} repeat{'s' * (len(exact) == 1)} an earlier one"
        example = f"(row {table.number(row)} is row {table.number(before)}: {_quoted(table.texts[row])})"
        found.append(_finding("duplicates", table, list(exact), f"{rows} {example}"))
    more = {row: before for row, before in alike.items() if row not in exact}
    if more:
        row, before = next(iter(more.items()))
        rows = f"{counted(len(more), 'row')} repeat{'s' * (len(more) == 1)} an earlier one"
        example = f"(row {table.number(row)} and row {table.number(before)}: {_quoted(table.texts[row])})"
        found.append(_finding("alike", table, list(more), f"{rows} but for case, width and spaces {example}"))
    if table.labels is not None:
        labels = table.labels
        clashing = {row: before for row, before in alike.items() if not _same(labels[row], labels[before])}
        if clashing:
            row, before = next(iter(clashing.items()))
            texts, example = len(set(clashing.values())), _quoted(table.texts[row])
            message = (
                f"{counted(texts, 'text')} in several rows with different labels (row {table.number(before)}"
                f" has {_label(labels[before])}, row {table.number(row)} {_label(labels[row])}: {example})"
            )
            rows_of = sorted({*clashing, *clashing.values()})
            found.append(Finding("conflicts", file, texts, message, _shown(table, rows_of)))
    return found


def _label(label: Any) -> str:
    if isinstance(label, list):
        names = [part.label if isinstance(part, LabelledSpan) else part for part in label]
        if any(isinstance(part, Answer) for part in label):
            names = list(dict.fromkeys(part.text for part in label))
        label = "|".join(map(str, names))
    return _quoted(str(label))


def _shown(table: Table, rows: Iterable[int]) -> list[int]:
    return [table.number(row) for row in islice(rows, SHOWN_ROWS)]


def _is_number(label: str) -> bool:
    try:
        return isfinite(float(label))
    except ValueError:
        return False


def _finding(kind: str, table: Table, rows: Sequence[int], message: str) -> Finding:
    return Finding(kind, str(table.path), len(rows), message, _shown(table, rows))


def check_labels(table: Table, purpose: str) -> list[Finding]:
    """Rare labels, one that dominates, and rows that are sorted by label.

    Args:
        purpose: what rows of a rare label are too few for: `learn` or `measure`.
    """
    named = label_names_of(table)
    if named is None:
        return []
    found, counts = [], Counter(name for names in named for name in names)
    found += _odd_labels(table, named, counts)
    rare = sorted((n, name) for name, n in counts.items() if n < FEW)
    if rare:
        examples = ", ".join(f"{_quoted(name)} {n}" for n, name in rare[:SHOWN_ROWS])
        verb = "is" if len(rare) == 1 else "are"
        labels = (
            f"{len(rare)} of {counted(len(counts), 'label')} {verb} on fewer than {FEW} rows ({examples})"
        )
        rows = [row for row, names in enumerate(named) if any(counts[name] < FEW for name in names)]
        message = f"{labels}, too few to {purpose} them well"
        values = all(map(_is_number, counts)) and not all(map(str.isdecimal, counts))
        if values and 2 * len(rare) > len(counts):
            message += "; all are numbers, and --task regression predicts values"
        found.append(Finding("rare", str(table.path), len(rare), message, _shown(table, rows)))
    single = all(len(names) == 1 for names in named) and not isinstance((table.labels or [None])[0], list)
    if not single or len(counts) < 2:
        return found
    name, most = counts.most_common(1)[0]
    if most >= MAJORITY * len(table):
        share = f"{100 * most / len(table):.1f} %"
        message = (
            f"{_quoted(name)} is the label of {share} of the rows: always answering it is {share} accurate"
        )
        found.append(Finding("imbalance", str(table.path), most, message, []))
    changes = sum(before != after for before, after in pairwise(names[0] for names in named))
    n = len(table)
    expected = (n - 1) * (1 - sum(m * (m - 1) for m in counts.values()) / (n * (n - 1)))
    # The number of changes among shuffled rows has a variance below its mean.
    if changes < expected / 2 and changes < expected - 4 * expected**0.5:
        message = (
            f"rows are sorted by label, wholly or in part ({counted(changes, 'change')} of"
            f" label between neighbours, {expected:.0f} if shuffled); finetune shuffles them, but a cut by"
            " position would not be a sample"
        )
        found.append(Finding("sorted", str(table.path), changes, message, []))
    return found


def _label_key(name: str) -> str:
    """Equal for labels that a person takes for the same one: also 1 and 1.0, also with a mark of no width."""
    key = "".join(c for c in normalised(name) if unicodedata.category(c) != "Cf")
    return f"{float(key):g}" if _is_number(key) and "_" not in key else key


def _odd_labels(table: Table, named: list[list[str]], counts: Counter[str]) -> list[Finding]:
    """Labels that are almost the same, that stand for a missing value, or that are lists."""
    found, keys = [], {name: _label_key(name) for name in counts}
    alike: dict[str, list[str]] = {}
    for name, key in keys.items():
        alike.setdefault(key, []).append(name)

    def rows_of(names: Set[str]) -> list[int]:
        return [row for row, each in enumerate(named) if any(name in names for name in each)]

    if several := [names for names in alike.values() if len(names) > 1]:
        shown = ", ".join(" and ".join(ascii(name) for name in names) for names in several[:SHOWN_ROWS])
        rows = rows_of({name for names in several for name in names})
        message = (
            "labels that differ in case, width, spaces, Unicode form or the way of a number alone are others:"
            f" {shown} ({counted(len(rows), 'row')})"
        )
        found.append(_finding("labels alike", table, rows, message))
    if missing := MISSING & counts.keys():
        rows = rows_of(missing)
        names = ", ".join(_quoted(name) for name in sorted(missing))
        message = (
            f"{counted(len(rows), 'row')} with the label {names}, which programs write for missing values"
        )
        found.append(_finding("missing labels", table, rows, message))
    lists = {name for name in counts if name[:1] + name[-1:] in ("[]", "{}") or "|" in name}
    if lists and not isinstance((table.labels or [None])[0], list):
        rows = rows_of(lists)
        message = (
            f"{counted(len(rows), 'row')} whose label looks like a list ({_quoted(sorted(lists)[0])});"
            " --task multi-label reads lists"
        )
        found.append(_finding("lists", table, rows, message))
    return found


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
    found = []
    if shared.same:
        row, there = next(iter(shared.same.items()))
        message = f"{len(shared.same):,} of {counted(len(other), 'row')} are in train too"
        if train.labels is not None and other.labels is not None:
            pairs = ((other.labels[row], train.labels[there]) for row, there in shared.same.items())
            if differ := sum(not _same(ours, theirs) for ours, theirs in pairs):
                message += f", {differ:,} with another label"
        message += (
            f" (row {other.number(row)} is row {train.number(there)} there: {_quoted(other.texts[row])})"
        )
        found.append(
            _finding("leakage", other, list(shared.same), f"{message}; metrics on them are too optimistic")
        )
    if shared.near:
        row, (there, similarity) = max(shared.near.items(), key=lambda item: item[1][1])
        message = (
            f"{counted(len(shared.near), 'row')} almost as in train (row {other.number(row)} shares"
            f" {int(100 * similarity)} % with row {train.number(there)}: {_quoted(other.texts[row])},"
            f" {_quoted(train.texts[there])})"
        )
        found.append(_finding("near leakage", other, list(shared.near), message))
    source, known = sources_of(train), shared.same | shared.near
    common = {
        row: source.keys() & set(texts) for row, texts in enumerate(sides_of(other)) if row not in known
    }
    if rows := [row for row, texts in common.items() if texts]:
        text = min(common[rows[0]])
        first = source[text]
        shown = next(each for each in train.keys()[first] if normalised(each) == text)
        message = (
            f"{counted(len(rows), 'row')} with a text of {SOURCE} characters or more that is in train (row"
            f" {other.number(rows[0])} and row {train.number(first)} there: {_quoted(shown)})"
        )
        found.append(_finding("shared texts", other, rows, message))
    return found


def compare_labels(train: Table, other: Table) -> list[Finding]:
    """Labels that only one of the tables has, and other proportions of them."""
    ours, theirs = label_names_of(other), label_names_of(train)
    if ours is None or theirs is None:
        return []
    found, file = [], str(other.path)
    here, there = (Counter(name for names in rows for name in names) for rows in (ours, theirs))
    unseen = [row for row, names in enumerate(ours) if any(name not in there for name in names)]
    if unseen:
        name = next(name for name in ours[unseen[0]] if name not in there)
        rows = f"{counted(len(unseen), 'row')} with labels that train lacks"
        near = next((known for known in there if _label_key(known) == _label_key(name)), None)
        found.append(
            _finding(
                "unseen labels",
                other,
                unseen,
                f"{rows} (row {other.number(unseen[0])}: {_quoted(name)}"
                + (f", there {_quoted(near)})" if near else ")"),
            )
        )
    absent = [name for name in there if name not in here]
    if absent:
        names = ", ".join(_quoted(name) for name in absent[:SHOWN_ROWS])
        message = f"{counted(len(absent), 'label')} of train never here ({names}): not measured"
        found.append(Finding("absent labels", file, len(absent), message, []))
    known = [name for name in there if name in here]
    if len(known) > 1:
        table = np.array([[counts[name] for name in known] for counts in (there, here)])
        shares = table / table.sum(1, keepdims=True)
        far = float(np.abs(shares[1] - shares[0]).sum() / 2)
        if far >= SHIFT and stats.chi2_contingency(table).pvalue < SHIFT_P:
            worst = int(np.abs(shares[1] - shares[0]).argmax())
            before, after = (f"{100 * share:.1f} %" for share in shares[:, worst])
            message = (
                f"labels are distributed otherwise than in train"
                f" ({_quoted(known[worst])}: {before} there, {after} here)"
            )
            found.append(Finding("shift", file, round(far * len(other)), message, []))
    return found


@dataclass(frozen=True)
class Lengths:
    """Tokens of each row with its special tokens, uncut, and how many are unknown: int64 (n,) each.

    Attributes:
        pieces: the most frequent unknown pieces of text, among the first rows that have any.
    """

    tokens: np.ndarray
    unknown: np.ndarray
    pieces: list[str]

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
    unk = unknown_id(tokenizer)
    rows = table.texts if table.second is None else list(zip(table.texts, table.second, strict=True))
    tokens, unknown = (np.zeros(len(table), dtype=np.int64) for _ in range(2))
    for start in range(0, len(rows), AT_ONCE):
        for row, encoding in enumerate(tokenizer.encode_batch_fast(rows[start : start + AT_ONCE]), start):
            ids = encoding.ids
            tokens[row], unknown[row] = len(ids), ids.count(unk)
    pieces: Counter[str] = Counter()
    for row in np.flatnonzero(unknown)[:200].tolist():
        sides = rows[row] if isinstance(rows[row], tuple) else (rows[row],)
        for text in sides:
            encoding = tokenizer.encode(text, add_special_tokens=False)
            places = (
                place for place, index in zip(encoding.offsets, encoding.ids, strict=True) if index == unk
            )
            pieces.update(text[start:end] for start, end in places if end > start)
    return Lengths(tokens, unknown, [piece for piece, _ in pieces.most_common(SHOWN_ROWS)])


def lengths_of_encoded(data: Encoded, tokenizer: Tokenizer) -> Lengths:
    """As `measure_lengths`, of rows that are encoded already: of cut texts without their ends, no pieces."""
    unk, examples = unknown_id(tokenizer), data.examples
    unknown = [int(np.count_nonzero(ids == unk)) for ids in examples.tokens]
    tokens_of_row, unknown_of_row = (
        np.bincount(examples.text_of_example, values, minlength=len(data)).astype(np.int64)
        for values in (examples.lengths, unknown)
    )
    return Lengths(tokens_of_row, unknown_of_row, [])


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


def check_room(table: Table, crowded: Mapping[int, int], max_length: int) -> list[Finding]:
    """Rows whose first text leaves no room for windows of the second (`data.examples.without_room`)."""
    if not crowded:
        return []
    row, length = next(iter(crowded.items()))
    message = (
        f"{counted(len(crowded), 'row')} whose first text leaves no room for windows of the second in"
        f" {max_length} tokens (row {table.number(row)}: it has {length:,}); finetune stops at them: raise"
        " --max-length, or lower --overlap"
    )
    return [_finding("no room", table, list(crowded), message)]


def check_lengths(
    table: Table,
    lengths: Lengths,
    max_length: int,
    longest: int,
    windows: int | None,
    *,
    refused: Collection[int] = (),
) -> list[Finding]:
    """Texts that are cut or read in windows.

    Args:
        max_length: the most tokens of an example.
        longest: what the encoder takes.
        windows: the tokens that windows of a long text share; None: it is cut.
        refused: rows that finetune does not take.
    """
    found, n = [], len(table)
    over = np.setdiff1d(np.flatnonzero(lengths.tokens > max_length), np.array(refused, dtype=np.int64))
    if len(over):
        facts = lengths.facts
        fate, verb = "cut" if windows is None else "read in windows", "is" if len(over) == 1 else "are"
        message = (
            f"{len(over):,} of {counted(n, 'text')} ({100 * len(over) / n:.1f} %) {verb} over {max_length}"
            f" tokens and {fate} (row {table.number(over[0])} has {lengths.tokens[over[0]]:,}; median"
            f" {facts['median']:,}, 90 % within {facts['p90']:,}, 99 % within {facts['p99']:,}, longest"
            f" {facts['longest']:,};"
            f" the encoder takes {longest})"
        )
        if windows is None and max_length < longest:
            message += f"; --max-length {min(longest, int(facts['p99']))} would cut fewer"
        elif windows is None:
            message += "; --overlap 32 would read them in windows"
        found.append(_finding("long texts", table, over.tolist(), message))
    return found


def check_unknown(table: Table, lengths: Lengths) -> list[Finding]:
    """Unknown tokens, if there are many."""
    rate = lengths.facts["unknown"]
    if rate < UNKNOWN:
        return []
    rows = np.flatnonzero(lengths.unknown)
    worst = int((lengths.unknown / np.maximum(lengths.tokens, 1)).argmax())
    pieces = ", ".join(_quoted(piece) for piece in lengths.pieces)
    message = (
        f"{100 * rate:.1f} % of the tokens are unknown, in {counted(len(rows), 'text')}"
        f" ({lengths.unknown[worst]} of {lengths.tokens[worst]} in row {table.number(worst)}"
        + (f"; most often {pieces})" if pieces else ")")
    )
    return [_finding("unknown tokens", table, rows.tolist(), message)]


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
