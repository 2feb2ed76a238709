"""The configuration of `brimful augment`: which words are replaced, by what, and how often."""

from dataclasses import dataclass
from typing import Annotated

from brimful.base.config import require_positive, require_seeds
from brimful.base.errors import BrimfulError
from brimful.base.storage import require_file_place
from brimful.hf.model_folder import ModelPath
from brimful.tables.layouts import TableOptions
from brimful.tables.text_files import TablePath


@dataclass(frozen=True, kw_only=True)
class AugmentTableConfig(TableOptions):
    """Write a table with copies of its texts in which some words are replaced (TinyBERT's augmentation)."""

    MAIN = (
        *("input", "output", "encoder", "copies", "rate"),
        *("choices", "layout", "stop_words", "seed", "dry_run"),
    )
    EXAMPLE = "--input train.tsv --output more.tsv --encoder runs/pretrain"

    input: TablePath
    """TSV, CSV, JSONL or Parquet with the columns text and text_b (optional), and any others."""
    output: Annotated[str, require_file_place]
    """File to write, in the same format: each row, and behind it its copies. Other columns are copied."""
    encoder: ModelPath
    """Run of pretraining, or folder of an encoder: its masked LM replaces words of one piece, its input
    embeddings all others."""
    copies: int = 20
    """Copies of each text (N of TinyBERT); of a pair, of each of its two texts, with the other one as it is.
    Those that are equal to the row or another copy are left out."""
    rate: float = 0.4
    """Probability that a word is replaced in a copy (p of TinyBERT)."""
    choices: int = 15
    """The most candidates of a word (K of TinyBERT)."""
    stop_words: str | None = None
    """File of words that are never replaced, one a line, beside the built-in ones of English and Chinese."""
    lexicon: str | None = None
    """File of words that stay whole, one a line, as for prepare."""
    seed: int = 0
    """Decides which words become which."""
    dry_run: bool = False
    """Resolve and check everything, and do nothing."""

    def __post_init__(self) -> None:
        require_seeds(self.seed)
        require_positive(self, "copies", "choices")
        if not 0 <= self.rate <= 1:
            raise BrimfulError(f"rate is {self.rate:g}: it must be a fraction from 0 to 1")
