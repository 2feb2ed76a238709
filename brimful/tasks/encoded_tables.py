"""A table with its examples: what a model reads, and where each prediction belongs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray
from tokenizers import Tokenizer

from brimful.base.console import warn
from brimful.corpus.text.special_ids import special_ids
from brimful.data.examples import Examples, encode_texts
from brimful.data.ragged import Ragged
from brimful.tables.table import Table

Targets = dict[str, ndarray]
"""Targets of each row by name: (n,) or (n, C)."""


@dataclass(frozen=True)
class Encoded:
    """A table and its examples: text i of `examples` is row i of `table`."""

    table: Table
    examples: Examples

    def __len__(self) -> int:
        return len(self.table)

    @property
    def labels(self) -> Sequence[Any]:
        """The labels of a labelled table."""
        assert self.table.labels is not None
        return self.table.labels

    @cached_property
    def targets(self) -> Targets:
        """The targets of each row, without targets of tokens."""
        # All windows of a text have the same targets.
        first, targets = self.examples.first_of_text, self.examples.targets
        return {name: values[first] for name, values in targets.items() if not isinstance(values, Ragged)}

    def take(self, rows: ndarray) -> "Encoded":
        """Return the given rows (int64) in the given order."""
        return Encoded(self.table.take(rows), self.examples.take_texts(rows))

    def drop_empty(self) -> "Encoded":
        """Return the rows whose text is not empty."""
        # One text at a time: the column may lie in a file.
        has_text = np.fromiter(map(bool, self.table.texts), dtype=bool, count=len(self))
        return self if has_text.all() else self.take(np.flatnonzero(has_text))


def encode(
    table: Table,
    tokenizer: Tokenizer,
    max_length: int,
    *,
    overlap: int | None = None,
    characters: bool = False,
    targets: Targets | None = None,
    prompt: str = "",
) -> Encoded:
    """Encode each row as [CLS] prompt text [SEP] (text_b [SEP]), in at most `max_length` tokens; other
    arguments as for `data.examples.encode_texts`."""
    examples = encode_texts(
        tokenizer,
        [prompt + text for text in table.texts] if prompt else table.texts,
        table.second,
        max_length=max_length,
        pad=special_ids(tokenizer).pad,
        overlap=overlap,
        characters=characters,
        targets=targets,
        where=table.where,
    )
    return Encoded(table, examples)


def warn_of_lost_ends(cut: int, texts: int, path: Path | str, max_length: int) -> None:
    """Warn of the number of texts of a table that were `cut`, if any were, and say how to keep their ends."""
    if cut:
        warn(
            f"{cut:,} of {texts:,} texts of {path} are over {max_length:,} tokens and are cut there; raise"
            " --max-length, or read them in windows (--overlap 32, as finetune has it)"
        )
