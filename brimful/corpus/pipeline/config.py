"""The options of `brimful prepare`."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from brimful.base.config import Argument, require_positive
from brimful.base.errors import BrimfulError
from brimful.corpus.cleaning.clean import CleanConfig
from brimful.corpus.dedup.duplicates import DedupConfig
from brimful.corpus.reading.read import ReadConfig
from brimful.corpus.tokenize.vocabulary_training import Han, Model

Language = Literal["auto", "zh", "en"]


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """Turn raw text files into a folder of tokenized shards."""

    MAIN = (
        *("paths", "out", "tokenizer", "model", "lowercase", "language"),
        *("lexicon", "read.field", "read.encoding", "clean.html", "max_documents", "dry_run"),
    )
    EXAMPLE = "reviews/ --out data --tokenizer train:8000"

    paths: Annotated[tuple[str, ...], Argument(positional=True)]
    """Files, folders, globs: .txt .md .json .jsonl .csv .tsv .parquet .arrow .html, each also .gz .zst ..."""
    out: str
    """The folder to write. Run again with more paths to add to it."""
    tokenizer: str = "train:8000"
    """train:N trains a vocabulary of N; characters: each one is a token, for text without spaces such as
    proteins; else a tokenizer.json, a vocab.txt, or its folder."""
    model: Model = "wordpiece"
    """Kind of the trained tokenizer: WordPiece (BERT) or byte-level BPE."""
    lowercase: bool = False
    """A trained tokenizer ignores case, and accents of Latin, Greek and Cyrillic that tell no words apart."""
    han: Han = "characters"
    """Chinese in a trained tokenizer: one token for each character, as in BERT, or pieces of up to four."""
    retrain_tokenizer: bool = False
    """Train the tokenizer again on all the text, and tokenize everything again."""
    language: Language = "auto"
    """Chinese word segmentation: wherever there are Han characters (auto, zh), or not at all (en)."""
    lexicon: str | None = None
    """A file of words that masking keeps whole, one a line; they may hold spaces, digits and brackets."""
    shard_tokens: int | None = None
    """About how many tokens a shard holds: more for fewer files. By default a 32nd of the added tokens, at
    most 16 million."""
    validation_share: float = 0.01
    """The fraction of documents held out for validation, chosen by a hash of their text: 0 for none, 1 where
    no model is trained on the text."""
    workers: int = 0
    """How many tasks run at once: fewer where memory is short. 0 means one for each core."""
    document_seconds: float = 30.0
    """Skip and report a document that takes more CPU seconds than this to clean; more for books on a slow
    machine."""
    max_documents: int | None = None
    """Read only the first N documents, for a quick look."""
    dry_run: bool = False
    """Check everything and list what would be read; write nothing."""
    read: ReadConfig = field(default_factory=ReadConfig)
    clean: CleanConfig = field(default_factory=CleanConfig)
    dedup: DedupConfig = field(default_factory=DedupConfig)

    def __post_init__(self) -> None:
        require_positive(self, "shard_tokens")
        if not self.document_seconds > 0:
            raise BrimfulError(f"document_seconds is {self.document_seconds}: it must be more than 0")
        if self.workers < 0 or (self.max_documents is not None and self.max_documents < 1):
            raise BrimfulError("workers must be 0 or more, and max_documents 1 or more")
        if not 0 <= self.validation_share <= 1:
            raise BrimfulError(f"validation_share is {self.validation_share}: it must be from 0 to 1")
