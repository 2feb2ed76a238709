"""Which rows of a table are alike, so that a cut leaves them on one side; and the cut itself.

Rows are alike if their texts are equal but for case, width, spaces, punctuation and numbers, or almost the
same (`corpus.dedup.near_pairs`), pairs in either order; if they share a long text, their source; or if they
are alike to the same third row. Numbers and punctuation count where they are most of a text, or all that
tells many texts apart, as in a table of a few templates.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import chain

import numpy as np
from numpy import ndarray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from brimful.base.console import warn
from brimful.base.randomness import derive_key, hash_words
from brimful.corpus.dedup.near_pairs import find_near_groups
from brimful.corpus.text.characters import normalise
from brimful.tables.table import Table

MIN_LETTERS = 8
"""Numbers and punctuation count in texts with fewer letters: runs of eight bytes also make near pairs."""
TEMPLATE_SHARE = 0.1
"""They also count where at least this proportion of the texts, and at least `SMALL_GROUP_ROWS`, would be
equal."""
MAX_GROUPED_SHARE = 0.5
"""A rule does not hold where groups of more than `SMALL_GROUP_ROWS` would have more than this proportion of
the texts (templates that differ in numbers, few words in many orders), or fewer than `MIN_DIFFERENT_TEXTS`
groups would remain."""
SMALL_GROUP_ROWS = 10
MIN_DIFFERENT_TEXTS = 50
"""Different texts of a table that test is cut from."""
MIN_SOURCE_CHARACTERS = 20
"""Characters, without spaces, of a text that is the source of the rows that share it, such as a premise."""
MAX_SOURCE_SHARE = 0.1
"""A text that more than this proportion of the rows share, such as a prompt, is not a source; and no group of
rows is larger."""
MAX_SURPLUS_OF_SOURCES = 0.25
"""The most rows that a cut of whole sources has beyond its share, as a proportion of it."""
_NO_LETTERS = re.compile(r"[\W\d_]+")

Sides = tuple[str, ...]  # the normalised text of a row, or the two texts of a pair


def group_alike_rows(table: Table) -> ndarray:
    """Return the group of each row, int64 (n,), from 0: a cut divides neither alike rows nor rows that belong
    together, such as questions on one context. A warning names each text that too many rows share."""
    sides, pairs = list_sides(table), dict[int, Sides]()
    for row, texts in enumerate(sides):
        if len(texts) > 1 and all(texts):
            pairs[row] = texts
    max_rows = max(SMALL_GROUP_ROWS, MAX_SOURCE_SHARE * len(table))  # the most rows that may share a source
    for text, rows in _count_rows(pairs.values()).items():
        if rows > max_rows:
            texts_as_written = chain.from_iterable(table.keys())
            example = next(side for side in texts_as_written if normalise(side) == text)
            warn(
                f"{table.path}: {rows:,} of {len(table):,} rows share {example[:40]!r}: too many to be on one"
                " side of a cut, so rows with it are on both"
            )
    return _join_by_sources(_group_texts(join_sides(table)), pairs, max_rows)


def _join_by_sources(groups: ndarray, pairs: Mapping[int, Sides], max_rows: float) -> ndarray:
    """Join the groups of rows, int64 (n,), whose pairs share a source. Where that leaves few groups or a
    large one, only first texts are sources, or only second ones, or neither."""
    first_source = int(groups.max()) + 1
    largest = max(max_rows, np.bincount(groups).max())
    for part in (slice(2), slice(1), slice(1, 2)):
        counts = _count_rows(pair[part] for pair in pairs.values())
        rows, sources = list[int](), list[str]()
        for row, pair in pairs.items():
            shared = [text for text in set(pair[part]) if 1 < counts[text] <= max_rows]
            rows += [row] * len(shared)
            sources += shared
        if not rows:
            continue
        # A graph of groups and, behind them, sources: what is connected becomes one group.
        numbers = first_source + _number_values(sources)
        edges = np.ones(len(rows)), (groups[rows], numbers)
        graph = coo_array(edges, shape=(int(numbers.max()) + 1,) * 2)
        component = connected_components(graph, directed=False)[1]
        joined = _number_values(component[groups].tolist())
        sizes = np.bincount(joined)
        if sizes.max() <= largest and len(sizes) >= min(MIN_DIFFERENT_TEXTS, first_source):
            return joined
    return groups


def _count_rows(sides: Iterable[Sides]) -> Counter[str]:
    """Count the rows that have each long text."""
    counts = Counter[str]()
    for texts in sides:
        counts.update(text for text in set(texts) if len(text) >= MIN_SOURCE_CHARACTERS)
    return counts


def _number_values(values: Iterable[Hashable]) -> ndarray:
    """Number values from 0 in the order in which they first occur, int64 (n,); equal ones alike."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=np.int64)


def _group_texts(texts: Sequence[str]) -> ndarray:
    """Group texts with the same letters and near pairs, int64 (n,), from 0."""
    distinct = list(dict.fromkeys(texts))
    equal = _group_by_letters(distinct)
    near = find_near_groups(distinct, equal)
    groups = near
    if not _can_be_cut(near):
        groups = equal
    group_of_text = dict(zip(distinct, groups.tolist(), strict=True))
    return _number_values(map(group_of_text.get, texts))


def join_sides(table: Table) -> list[str]:
    """The text of each row, of a pair in either order, or what it has in common with others of its group."""
    return ["\n\n".join(sorted(filter(None, sides))) for sides in list_sides(table)]


def list_sides(table: Table) -> list[Sides]:
    """Return the normalised text or texts of each row that make rows alike."""
    sides = []
    for texts in table.groups():
        whole = (texts,) if isinstance(texts, str) else texts
        sides.append(tuple(map(normalise, whole)))
    return sides


def find_sources(table: Table) -> dict[str, int]:
    """Find the long texts that not too many rows have, each with the first row that has it."""
    sides = list_sides(table)
    counts, first_row = _count_rows(sides), dict[str, int]()
    for row, texts in enumerate(sides):
        for text in texts:
            if 0 < counts[text] <= max(SMALL_GROUP_ROWS, MAX_SOURCE_SHARE * len(table)):
                first_row.setdefault(text, row)
    return first_row


def only_letters(text: str) -> str:
    """A text without punctuation and numbers, unless they are most of it."""
    letters = _NO_LETTERS.sub("", text)
    if len(letters) < MIN_LETTERS:
        return text
    return letters


def _group_by_letters(texts: Sequence[str]) -> ndarray:
    """Group different texts with the same letters, int64 (n,); none where too few groups would remain."""
    letters = list(map(only_letters, texts))
    counts = Counter(letters)
    max_rows = max(SMALL_GROUP_ROWS, TEMPLATE_SHARE * len(texts))
    for place, text in enumerate(texts):
        if counts[letters[place]] >= max_rows:  # a template: its texts differ by their numbers
            letters[place] = text
    groups = _number_values(letters)
    if _can_be_cut(groups):
        return groups
    return np.arange(len(texts))


def _can_be_cut(groups: ndarray) -> bool:
    """Whether groups of different texts, int64 (n,), are many, and small ones have most of the texts."""
    sizes = np.bincount(groups)
    are_many = np.count_nonzero(sizes) >= MIN_DIFFERENT_TEXTS or len(groups) < MIN_DIFFERENT_TEXTS
    return bool(are_many and sizes[sizes > SMALL_GROUP_ROWS].sum() <= MAX_GROUPED_SHARE * len(groups))


def cut_rows(
    groups: ndarray,
    strata: Sequence[object],
    contents: ndarray,
    share: float,
    name: str,
    *,
    by_source: bool = False,
) -> ndarray:
    """Choose the rows of a cut: whole groups, and as nearly as they allow the same share of each stratum.

    The hashes of the contents decide, so a row is on the same side in whatever order rows stand. Each stratum
    keeps a row outside. A group that is larger than the share of its stratum stays outside, and other groups
    do not make up for it.

    Args:
        groups: int64 (n,), from 0; rows of a group stay together.
        strata: what each row is like.
        contents: uint64 (n,), hashes of the rows.
        share: the proportion of the rows that the cut takes.
        name: the name of the cut; another one takes other rows.
        by_source: whether groups have rows of many strata, so few fit into the share of each. One is taken if
            the strata come nearer to their shares (the sum of squared distances over the shares), and the cut
            has at most a quarter more rows than its share.

    Returns:
        bool (n,), whether the cut takes each row.
    """
    row_counts = Counter(strata)
    # From the rarest on, so that its share is rounded first.
    ordered = sorted(row_counts, key=lambda one: (row_counts[one], str(one)))
    number = {one: place for place, one in enumerate(ordered)}
    stratum = np.array([number[one] for one in strata], dtype=np.int64)
    sizes = np.bincount(stratum)
    # A part, (group, stratum), has the rows of one stratum in one group.
    parts, counts = np.unique(np.stack([groups, stratum], axis=1), axis=0, return_counts=True)
    fits = counts <= np.maximum(share * sizes[parts[:, 1]], 1)
    usable = np.bincount(parts[fits, 1], weights=counts[fits], minlength=len(sizes))
    # Sums are rounded, so that each stratum makes up for the rounding of those before it.
    wanted = share * sizes
    free_rows = np.minimum(np.diff(np.round(np.cumsum(share * usable)), prepend=0), sizes - 1)
    if by_source:
        free_rows = wanted.copy()
    places = np.full(int(groups.max()) + 1, np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(places, groups, hash_words(derive_key("cut", name), contents))
    bounds = np.searchsorted(parts[:, 0], np.arange(len(places) + 1))
    is_in_cut = np.zeros(len(places), dtype=bool)
    for group in np.argsort(places, kind="stable").tolist():
        own = slice(bounds[group], bounds[group + 1])
        own_strata, own_counts = parts[own, 1], counts[own]
        free = free_rows[own_strata]
        is_taken = (own_counts <= free).all()
        if by_source:
            comes_nearer = (own_counts * (2 * free - own_counts) / wanted[own_strata]).sum() > 0
            remaining = sizes[own_strata] - wanted[own_strata] + free - own_counts
            most = free_rows.sum() + MAX_SURPLUS_OF_SOURCES * wanted.sum()
            is_taken = comes_nearer and own_counts.sum() <= most and remaining.min() > 0.5
        if is_taken:
            free_rows[own_strata] -= own_counts
            is_in_cut[group] = True
    return is_in_cut[groups]
