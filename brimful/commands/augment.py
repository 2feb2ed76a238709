"""The verb `brimful augment`: copies of labelled texts in which some words are others (TinyBERT)."""

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from brimful.augmentation.config import CandidateConfig
from brimful.augmentation.copies import copies
from brimful.augmentation.table import candidate_table
from brimful.augmentation.written import RowFile, read_rows
from brimful.config import require_positive, require_seeds, verb
from brimful.console import progress
from brimful.device import default_device
from brimful.errors import BrimfulError
from brimful.tables.layouts import TextColumns, find_layout


@dataclass(frozen=True, kw_only=True)
class AugmentTableConfig(CandidateConfig):
    """Write a table with copies of its texts in which some words are replaced (TinyBERT's augmentation)."""

    MAIN = (
        *("input", "output", "encoder", "copies", "rate"),
        *("choices", "layout", "vectors", "stop_words", "seed", "dry_run"),
    )
    EXAMPLE = "--input train.tsv --output more.tsv --encoder runs/pretrain"

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
    columns: TextColumns = TextColumns()
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

    They are written as they are made, so memory does not depend on how many there are.

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
    table = candidate_table(texts, config, config.encoder, default_device())
    if not len(table.counts):
        raise BrimfulError(f"{config.input} has no word with candidates: there is nothing to replace")
    drawn = partial(copies, table=table, count=config.copies, rate=config.rate, seed=config.seed)
    written = 0
    with RowFile.opened(path, rows) as file, progress("augment: rows", len(rows.values)) as advance:
        for number, row in enumerate(rows.values):
            seen = {tuple(row[column] for column in columns)}
            file.add(row)
            for field, column in enumerate(columns):
                place = number + field * len(rows.values)
                for text in drawn(row[column], place=place, row=number, field=field):
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
