"""Which rows of a table are alike, so that a cut leaves them on one side; and the cut itself.

Rows are alike whose texts are equal but for case, width, spaces, punctuation and numbers, or almost the
same (`corpus.dedup.near_pairs`), and rows that are alike to the same third one. Numbers and punctuation count
where they are most of a text, or all that tells many texts apart.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

import numpy as np

from brimful.corpus.dedup.near_pairs import near_groups
from brimful.randomness import derive_key, hash_words
from brimful.tables.table import Table

LETTERS = 8
"""Of texts with fewer letters, numbers and punctuation count: as near pairs have runs of eight bytes."""
TEMPLATE = 0.1
"""They also count where at least this proportion of the texts (and not fewer than `FEW`) would be equal."""
FEW = 10
_NO_LETTERS = re.compile(r"[\W\d_]+")


def normalised(text: str) -> str:
    """A text without case, width (NFKC) and whitespace."""
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


def equal_rows(table: Table, other: Table) -> np.ndarray:
    """bool (n,), whether a row of the other table has the same text, but for case, width and spaces."""
    known, here = (
        [tuple(map(normalised, key)) for key in each.keys()]  # noqa: SIM118
        for each in (other, table)
    )
    there = set(known)
    return np.array([key in there for key in here], dtype=bool)


def alike_rows(table: Table) -> np.ndarray:
    """The group of each row, int64 (n,): rows of equal groups are alike, or belong together in their table,
    such as questions on one context. Groups have numbers from 0, in the order of their first rows."""
    number: dict[str, int] = {}
    rows = [
        number.setdefault(normalised(each if isinstance(each, str) else "\n".join(each)), len(number))
        for each in table.groups()
    ]
    texts = list(number)
    groups = near_groups(texts, _equal_letters(texts))[rows]
    return np.unique(groups, return_inverse=True)[1].astype(np.int64)


def _equal_letters(texts: Sequence[str]) -> np.ndarray:
    """int64 (n,), the same for texts with the same letters."""
    letters = [_NO_LETTERS.sub("", text) for text in texts]
    most = max(FEW, TEMPLATE * len(texts))
    count = Counter(letters)
    kept = [
        short if len(short) >= LETTERS and count[short] < most else text
        for short, text in zip(letters, texts, strict=True)
    ]
    number: dict[str, int] = {}
    return np.array([number.setdefault(each, len(number)) for each in kept], dtype=np.int64)


def cut_rows(
    groups: np.ndarray, strata: Sequence[object], contents: np.ndarray, share: float, name: str
) -> np.ndarray:
    """Which rows a cut takes, bool (n,): whole groups, and of each stratum its share as nearly as they allow.

    The hashes of the contents decide, so a row is on the same side in whatever order rows stand. Each stratum
    keeps a group outside. A group of rows of several strata counts in the rarest.

    Args:
        groups: int64 (n,), from 0; rows of a group stay together.
        strata: what each row is like.
        contents: uint64 (n,), hashes of the rows.
        share: of the rows, that the cut takes.
        name: of the cut; another one takes other rows.
    """
    key = derive_key("cut", name)
    sizes = np.bincount(groups)
    places = np.full(len(sizes), np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(places, groups, hash_words(key, contents))
    rows = Counter(strata)
    stratum = [
        min({strata[row] for row in members}, key=lambda one: (rows[one], str(one)))
        for members in np.split(np.argsort(groups, kind="stable"), np.cumsum(sizes)[:-1])
    ]
    taken = np.zeros(len(sizes), dtype=bool)
    members: dict[object, list[int]] = {}
    for group in np.argsort(places, kind="stable").tolist():
        members.setdefault(stratum[group], []).append(group)
    owed = 0.0
    for one in sorted(members, key=lambda one: (rows[one], str(one))):
        wanted, left = share * sizes[members[one]].sum() + owed, len(members[one])
        found = 0
        for group in members[one]:
            if left > 1 and found + sizes[group] <= wanted + 0.5:
                taken[group] = True
                found, left = found + sizes[group], left - 1
        owed = min(max(wanted - found, -0.5), 0.5)  # what one stratum lacks, the next makes good
    return taken[groups]
