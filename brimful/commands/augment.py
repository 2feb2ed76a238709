"""The verb `brimful augment`: copies of labelled texts in which some words are others (TinyBERT)."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from brimful.augmentation.config import CandidateConfig
from brimful.augmentation.table import CandidateTable, candidate_table
from brimful.augmentation.written import RowFile, read_rows
from brimful.config import require_positive, require_seeds, verb
from brimful.console import progress
from brimful.data.augmented import copy_keys, picked
from brimful.distributed import default_device
from brimful.errors import BrimfulError
from brimful.tasks.layouts import OWN, Columns, find_layout
from brimful.text.characters import WORD, character_classes


@dataclass(frozen=True, kw_only=True)
class AugmentTableConfig(CandidateConfig):
    """Write a table with copies of its texts in which some words are replaced (TinyBERT's augmentation)."""

    input: str
    """TSV, CSV, JSONL or Parquet with the columns text and text_b (optional), and any others."""
    output: str
    """File to write, in the same format: each row, and behind it its copies. Other columns are copied."""
    encoder: str
    """Run of pretraining, or folder of an encoder: its masked LM proposes words for those of one piece, its
    input embeddings for the others."""
    copies: int = 20
    """Copies of each text (N of TinyBERT); of a pair, of each of its two texts, with the other one as it is.
    Those that are equal to the row or another copy are left out."""
    columns: Columns = OWN
    """Other names of the columns."""
    layout: str | None = None
    """How the input is laid out: glue/mnli, clue/tnews ... Instead of columns."""
    seed: int = 0
    """Decides which words become which."""
    dry_run: bool = False
    """Resolve and check everything, and do nothing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_seeds(self.seed)
        require_positive(self, "copies")


@verb(AugmentTableConfig)
def augment(config: AugmentTableConfig) -> dict[str, Any]:
    """Write copies of labelled texts in which some words are replaced, as TinyBERT trains its students on.

    The copies are those that `brimful distil --augment.copies` sees in its first epoch with this seed, where
    the tokenizer divides the words as the text does. `distil` draws new ones in each epoch and needs no file.

    Returns:
        the numbers of rows read and written, of distinct texts, and of words by the source of candidates.

    Raises:
        BrimfulError: the input is no table of texts or has no word to replace; the output has another format
            or cannot be written; or as `candidate_table`.
    """
    started = time.perf_counter()
    layout, path = find_layout(config.layout, config.columns), Path(config.output)
    rows, columns = read_rows(Path(config.input), layout)
    if path.suffix != rows.form:
        raise BrimfulError(f"--output {path}: the name must end in {rows.form}, as the input does")
    if path.resolve() == Path(config.input).resolve():
        raise BrimfulError(f"--output {path} is the input; name another file")
    texts = [row[column] for column in columns for row in rows.values]
    facts = {"rows": len(rows.values), "distinct_texts": len(set(texts))}
    if config.dry_run:
        config.files(Path(config.encoder))
        return {"dry_run": True, **facts}
    table = candidate_table(texts, config, config.encoder, device=default_device())
    if not len(table.counts):
        raise BrimfulError(f"{config.input} has no word with candidates: there is nothing to replace")
    written = 0
    with RowFile.opened(path, rows) as file, progress("augment: rows", len(rows.values)) as advance:
        for number, row in enumerate(rows.values):
            seen = {tuple(row[column] for column in columns)}
            file.add(row)
            for field, column in enumerate(columns):
                place = number + field * len(rows.values)
                for text in copies(row[column], table, place, number, field, config):
                    copy = row | {column: text}
                    key = tuple(copy[name] for name in columns)
                    if key not in seen:
                        seen.add(key)
                        file.add(copy)
            written += len(seen)
            advance()
    return {
        **facts,
        "written": written,
        "words": table.facts,
        "seconds": time.perf_counter() - started,
        "output": str(path),
    }


def copies(
    text: str, table: CandidateTable, place: int, number: int, field: int, config: AugmentTableConfig
) -> Iterator[str]:
    """The copies of a text.

    Args:
        place: of the text in the table.
        number, field: its row in the file, and 1 for the second of a pair.
    """
    rows = table.rows(place)
    spans, counts = table.spans[rows].tolist(), table.counts[rows]
    if not spans:
        return
    proposed = [table.candidates_of(row) for row in range(rows.start, rows.stop)]
    for key in copy_keys(config.seed, 0, number, field, np.arange(config.copies)):
        copy, end = "", 0
        for word, choice in enumerate(picked(key, np.arange(len(spans)), counts, config.rate).tolist()):
            if choice >= 0:
                copy = joined(joined(copy, text[end : spans[word][0]]), proposed[word][choice])
                end = spans[word][1]
        yield joined(copy, text[end:])


def joined(left: str, right: str) -> str:
    """Two parts of a text, with a space where letters would become one word: where a Latin word stands in for
    a Han one."""
    classes = character_classes()
    meet = left and right and classes[ord(left[-1])] == classes[ord(right[0])] == WORD
    return f"{left} {right}" if meet else left + right
