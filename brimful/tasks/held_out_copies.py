"""Rows of a file that repeat rows which were held out of another one."""

from collections.abc import Sequence

import numpy as np
from numpy import ndarray

from brimful.corpus.dedup.near_pairs import find_near_pairs
from brimful.tables.table import Table
from brimful.tasks.row_groups import find_sources, join_sides, list_sides, only_letters


def find_held_out_copies(table: Table, held_out: Sequence[Table], train: Table) -> ndarray:
    """Find the rows of another file that repeat rows which were cut from a table.

    A copy has the text of a held-out row, or almost the same, but for case, width, spaces, punctuation and
    numbers (which count where `train` has the same letters), and is not as near to `train`; or it shares a
    source with the held-out rows and not with `train`.

    Args:
        held_out: the parts that were cut.
        train: the other rows of the table that they were cut from.

    Returns:
        bool (n,), whether each row is a copy.
    """
    texts, train_texts = join_sides(table), join_sides(train)
    held_out_texts, sources = dict[str, None](), set[str]()
    for part in held_out:
        held_out_texts |= dict.fromkeys(join_sides(part))
        sources.update(find_sources(part))
    sources -= find_sources(train).keys()
    letters = set(map(only_letters, held_out_texts)) - set(map(only_letters, train_texts))
    is_copy = np.zeros(len(texts), dtype=bool)
    for row, (text, sides) in enumerate(zip(texts, list_sides(table), strict=True)):
        has_equal_text = text in held_out_texts or only_letters(text) in letters
        is_copy[row] = has_equal_text or not sources.isdisjoint(sides)
    match, nearness = find_near_pairs(list(held_out_texts), texts)
    near = np.flatnonzero((match >= 0) & ~is_copy)
    nearness_to_train = find_near_pairs(train_texts, [texts[row] for row in near.tolist()])[1]
    is_copy[near[nearness_to_train < nearness[near]]] = True
    return is_copy
