"""A table with its examples: what a model reads, and where each prediction belongs."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from brimful.base.console import warn
from brimful.corpus.text.special_ids import special_ids
from brimful.data.examples import Examples, encode_texts
from brimful.data.ragged import Ragged
from brimful.tables.table import Table


@dataclass(frozen=True)
class Encoded:
    """A table and the examples that its texts became: text i of `examples` is row i of `table`."""

    table: Table
    examples: Examples

    def __len__(self) -> int:
        return len(self.table)

    @cached_property
    def targets(self) -> dict[str, np.ndarray]:
        """The targets of each row, by name: (n,) or (n, C). Targets of tokens are in `examples` alone."""
        first = self.examples.first_of_text
        by_text = self.examples.targets.items()
        return {name: values[first] for name, values in by_text if not isinstance(values, Ragged)}

    def take(self, rows: np.ndarray) -> "Encoded":
        """The given rows (int64), in the given order."""
        return Encoded(self.table.take(rows), self.examples.take_texts(rows))

    def drop_empty(self) -> "Encoded":
        """Without the rows whose text is empty; itself if there are none."""
        empty = np.fromiter((not text for text in self.table.texts), dtype=bool, count=len(self))
        return self.take(np.flatnonzero(~empty)) if empty.any() else self


def encode(
    table: Table,
    tokenizer: Tokenizer,
    max_length: int,
    *,
    overlap: int | None = None,
    characters: bool = False,
    targets: dict[str, np.ndarray] | None = None,
    prompt: str = "",
) -> Encoded:
    """Token ids of each row, [CLS] text [SEP] (text_b [SEP]), at most `max_length` tokens.

    Args:
        overlap, characters, targets: as in `data.examples.encode_texts`.
        prompt: what stands before each text.
    """
    pad = special_ids(tokenizer).pad
    examples = encode_texts(
        tokenizer,
        [prompt + text for text in table.texts] if prompt else table.texts,
        table.second,
        max_length=max_length,
        pad=pad,
        overlap=overlap,
        characters=characters,
        targets=targets,
        where=table.where,
    )
    return Encoded(table, examples)


def trim_spaces(places: np.ndarray, text: str) -> np.ndarray:
    """The characters of tokens (n, 2) without white space at their ends.

    Some tokenizers count the space before a word as part of it. A token of white space alone becomes empty.
    Only the characters from the first token to the last are looked at: a long text is read in windows.
    """
    filled = (places[:, 0] < places[:, 1])[:, None]
    first, end = places.min(initial=len(text), where=filled), places.max(initial=0, where=filled)
    space = np.array([*(character.isspace() for character in text[first:end]), False])
    if not space.any():
        return places
    starts, ends = np.where(filled, places - first, 0).T
    while (leading := (starts < ends) & space[starts]).any():
        starts += leading
    while (trailing := (starts < ends) & space[ends - 1]).any():
        ends -= trailing
    return np.where(filled, np.stack([starts, ends], -1) + first, places)


def warn_of_lost_ends(cut: int, texts: int, path: Path | str, max_length: int) -> None:
    """Say how many texts lost their ends, and what would keep them."""
    if cut:
        warn(
            f"{cut:,} of {texts:,} texts of {path} are over {max_length:,} tokens and are cut there; raise"
            " --max-length, or read them in windows (--overlap 32, as finetune has it)"
        )
