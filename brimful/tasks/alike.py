"""Which rows of a table are alike, so that a cut leaves them on one side; and the cut itself.

Rows are alike whose texts are equal but for case, width, spaces, punctuation and numbers, or almost the
same (`corpus.dedup.near_pairs`), pairs in either order; rows that share a long text, their source; and rows
that are alike to the same third one. Numbers and punctuation count where they are most of a text, or all that
tells many texts apart, as in a table of a few templates.
"""

import re
from collections import Counter
from collections.abc import Sequence, Sized

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from brimful.base.console import warn
from brimful.base.randomness import derive_key, hash_words
from brimful.corpus.dedup.near_pairs import find_near_groups, find_near_pairs
from brimful.corpus.text.characters import normalise
from brimful.tables.table import Table

MIN_LETTERS = 8
"""Of texts with fewer letters, numbers and punctuation count: as near pairs have runs of eight bytes."""
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
SOURCE_CHARACTERS = 20
"""Characters, without spaces, of a text that is the source of the rows that share it, such as a premise."""
COMMON_SHARE = 0.1
"""What more than this proportion of the rows share is no source, such as a prompt; and no group is larger."""
_NO_LETTERS = re.compile(r"[\W\d_]+")


def held_out_copies(table: Table, held_out: Sequence[Table], train: Table) -> np.ndarray:
    """bool (n,), whether a row of another file has a text of the rows that were cut from a table, or almost
    the same, but for case, width, spaces, punctuation and numbers. The last two count where the rest of the
    table, `train`, has the same letters; and what is as near to a row of `train` is no copy. A row that
    shares a source with those rows, and not with `train`, is one too."""
    texts, train_texts = _texts(table), _texts(train)
    held_out_texts = dict.fromkeys(text for each in held_out for text in _texts(each))
    letters = set(map(_letters, held_out_texts)) - set(map(_letters, train_texts))
    sources = set().union(*map(sources_of, held_out)) - set(sources_of(train))
    is_copy = np.array([text in held_out_texts or _letters(text) in letters for text in texts], dtype=bool)
    is_copy |= [not sources.isdisjoint(row) for row in sides_of(table)]
    match, nearness = find_near_pairs(list(held_out_texts), texts)
    near = np.flatnonzero((match >= 0) & ~is_copy)
    of_train = find_near_pairs(train_texts, [texts[row] for row in near.tolist()])[1]
    is_copy[near[of_train < nearness[near]]] = True
    return is_copy


def alike_rows(table: Table) -> np.ndarray:
    """The group of each row, int64 (n,): rows of equal groups are alike, or belong together in their table,
    such as questions on one context. Groups have numbers from 0. A warning says which text is no source."""
    sides = sides_of(table)
    for text, rows in _shared([row for row in sides if len(row) > 1 and all(row)]).items():
        if rows > _most(table):
            example = next(each for row in table.keys() for each in row if normalise(each) == text)  # noqa: SIM118
            warn(
                f"{table.path}: {rows:,} of {len(table):,} rows share {example[:40]!r}: too many to be on one"
                " side of a cut, so rows with it are on both"
            )
    return _sourced(_groups(_texts(table)), sides)


def _sourced(groups: np.ndarray, sides: Sequence[tuple[str, ...]]) -> np.ndarray:
    """The groups of rows, int64 (n,), joined where pairs share a source. Where that leaves few groups or a
    large one, as where each text is in many pairs, only first texts are sources, or second ones, or none."""
    first = int(groups.max()) + 1
    for of in (slice(2), slice(1), slice(1, 2)):
        shared = _shared([row[of] for row in sides if len(row) > 1 and all(row)])
        sources = (side for side, rows in shared.items() if 1 < rows <= _most(sides))
        number = {side: place for place, side in enumerate(sources, first)}
        rows = zip(groups.tolist(), sides, strict=True)
        edges = [(group, number[side]) for group, row in rows for side in set(row[of]) if side in number]
        if not edges:
            continue
        graph = coo_array((np.ones(len(edges)), np.array(edges).T), shape=(first + len(number),) * 2)
        parts = connected_components(graph, directed=False)[1]
        joined = np.unique(parts[groups], return_inverse=True)[1].astype(np.int64)
        largest = max(_most(sides), np.bincount(groups).max())
        if np.bincount(joined).max() <= largest and joined.max() + 1 >= min(MIN_DIFFERENT_TEXTS, first):
            return joined
    return groups


def _shared(sides: Sequence[tuple[str, ...]]) -> Counter[str]:
    """How many rows have each long text."""
    return Counter(side for row in sides for side in set(row) if len(side) >= SOURCE_CHARACTERS)


def _most(rows: Sized) -> float:
    """The most rows that share a source."""
    return max(SMALL_GROUP_ROWS, COMMON_SHARE * len(rows))


def _groups(every: Sequence[str]) -> np.ndarray:
    """The group of each text, int64 (n,), from 0."""
    number: dict[str, int] = {}
    rows = [number.setdefault(text, len(number)) for text in every]
    texts = list(number)
    equal = _equal_letters(texts)
    near = find_near_groups(texts, equal)
    groups = near if _can_be_cut(near) else equal
    return np.unique(groups[rows], return_inverse=True)[1].astype(np.int64)


def _texts(table: Table) -> list[str]:
    """The text of each row, of a pair in either order, or what it has in common with others of its group."""
    return ["\n\n".join(sorted(filter(None, sides))) for sides in sides_of(table)]


def sides_of(table: Table) -> list[tuple[str, ...]]:
    """The text or texts of each row that make rows alike, normalised."""
    groups = ((each,) if isinstance(each, str) else each for each in table.groups())
    return [tuple(map(normalise, each)) for each in groups]


def sources_of(table: Table) -> dict[str, int]:
    """The long texts that not too many rows have, each with the first row that has it."""
    sides = sides_of(table)
    shared, first_row = _shared(sides), dict[str, int]()
    for row, texts in enumerate(sides):
        for text in texts:
            if 0 < shared[text] <= _most(table):
                first_row.setdefault(text, row)
    return first_row


def _letters(text: str) -> str:
    """A text without punctuation and numbers, unless they are most of it."""
    short = _NO_LETTERS.sub("", text)
    return short if len(short) >= MIN_LETTERS else text


def _equal_letters(texts: Sequence[str]) -> np.ndarray:
    """int64 (n,), the same for texts with the same letters; for none where too few would differ."""
    letters = list(map(_letters, texts))
    most = max(SMALL_GROUP_ROWS, TEMPLATE_SHARE * len(texts))
    count = Counter(letters)
    keys = [short if count[short] < most else text for short, text in zip(letters, texts, strict=True)]
    number: dict[str, int] = {}
    groups = np.array([number.setdefault(each, len(number)) for each in keys], dtype=np.int64)
    return groups if _can_be_cut(groups) else np.arange(len(texts))


def _can_be_cut(groups: np.ndarray) -> bool:
    """Whether groups of different texts, int64 (n,), are many, and small ones have most of the texts."""
    sizes = np.bincount(groups)
    enough = np.count_nonzero(sizes) >= MIN_DIFFERENT_TEXTS or len(groups) < MIN_DIFFERENT_TEXTS
    return bool(enough and sizes[sizes > SMALL_GROUP_ROWS].sum() <= MAX_GROUPED_SHARE * len(groups))


def cut_rows(
    groups: np.ndarray, strata: Sequence[object], contents: np.ndarray, share: float, name: str
) -> np.ndarray:
    """Which rows a cut takes, bool (n,): whole groups, and of each stratum its share as nearly as they allow.

    The hashes of the contents decide, so a row is on the same side in whatever order rows stand. Each stratum
    keeps a row outside. A group that is larger than the share of its stratum stays outside, and is not made
    good by others.

    Args:
        groups: int64 (n,), from 0; rows of a group stay together.
        strata: what each row is like.
        contents: uint64 (n,), hashes of the rows.
        share: of the rows, that the cut takes.
        name: of the cut; another one takes other rows.
    """
    rows = Counter(strata)
    number = {one: place for place, one in enumerate(sorted(rows, key=lambda one: (rows[one], str(one))))}
    stratum = np.array([number[one] for one in strata], dtype=np.int64)
    sizes = np.bincount(stratum)
    parts, counts = np.unique(np.stack([groups, stratum], axis=1), axis=0, return_counts=True)
    fits = counts <= np.maximum(share * sizes[parts[:, 1]], 1)
    usable = np.bincount(parts[fits, 1], weights=counts[fits], minlength=len(sizes))
    # Rounded sums: what one stratum lacks, the next makes good.
    room = np.minimum(np.diff(np.round(np.cumsum(share * usable)), prepend=0), sizes - 1)
    places = np.full(int(groups.max()) + 1, np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(places, groups, hash_words(derive_key("cut", name), contents))
    bounds = np.searchsorted(parts[:, 0], np.arange(len(places) + 1))
    is_taken = np.zeros(len(places), dtype=bool)
    for group in np.argsort(places, kind="stable").tolist():
        here = slice(bounds[group], bounds[group + 1])
        of, count = parts[here, 1], counts[here]
        if (count <= room[of]).all():
            room[of] -= count
            is_taken[group] = True
    return is_taken[groups]
