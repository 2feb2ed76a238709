"""Raw text files -> a folder of tokenized, word-bounded shards.

    read, clean (per part) -> find duplicates (whole corpus) -> tokenizer -> tokenize (per shard)

The output depends on the inputs and the settings alone: not on the number of workers, the engine, the number
of machines, or kills.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from brimful.config import config_hash, require_positive, to_dict, write_yaml
from brimful.console import say, warn
from brimful.corpus.cleaning.clean import CleanConfig, Cleaner
from brimful.corpus.cleaning.version import cleaning_version
from brimful.corpus.dedup.duplicates import DedupConfig, NearKeys
from brimful.corpus.engines.engine import Engine, EngineConfig
from brimful.corpus.pipeline.inventory import open_inventory, require_corpus_place
from brimful.corpus.pipeline.lexicon import check_lexicon
from brimful.corpus.pipeline.stages import CLEANING, Preparation, Settings
from brimful.corpus.pipeline.tokenizer import TokenizerChoice, peak_memory_mb
from brimful.corpus.reading.inputs import Input, find_inputs
from brimful.corpus.reading.read import ReadConfig, check_encoding
from brimful.corpus.tokenize.training import Han, Model
from brimful.corpus.words.segmenter import Language, segmenter_name
from brimful.corpus.words.word_lists import word_list
from brimful.errors import BrimfulError
from brimful.folder_lock import FolderLock

# Where and how the work is done; the output does not depend on these.
VOLATILE = (
    "paths",
    "out",
    "workers",
    "engine",
    "retrain_tokenizer",
    "dry_run",
)


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """Turn raw text files into a folder of tokenized shards."""

    MAIN = (
        *("paths", "out", "tokenizer", "model", "lowercase", "language"),
        *("lexicon", "read.field", "read.encoding", "clean.html", "max_documents", "dry_run"),
    )
    EXAMPLE = "reviews/ --out data --tokenizer train:8000"

    paths: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Files, folders, globs: .txt .md .json .jsonl .csv .tsv .parquet .arrow .html, each also .gz .zst ..."""
    out: str
    """The folder to write. Run again with more paths to add to it."""
    tokenizer: str = "train:8000"
    """train:N trains a vocabulary of N; else a tokenizer.json, a vocab.txt, or its folder."""
    extend: int = 0
    """Add this many frequent pieces of the text to a given tokenizer; its own pieces keep their ids."""
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
    """The fraction of documents held out for validation, chosen by a hash of their text; 0 = none."""
    engine: Literal["local", "ray"] = "local"
    """Where the work is done: processes on this machine; or a running Ray cluster, at RAY_ADDRESS or the one
    that this machine belongs to."""
    workers: int = 0
    """How many tasks run at once: fewer where memory is short. 0 means one for each core (with ray, of the
    cluster)."""
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
        if self.extend < 0:
            raise BrimfulError(f"extend is {self.extend}: it must not be negative")
        if self.shard_tokens is not None:
            require_positive(self, "shard_tokens")
        if not self.document_seconds > 0:
            raise BrimfulError(f"document_seconds is {self.document_seconds}: it must be more than 0")
        if self.workers < 0 or (self.max_documents is not None and self.max_documents < 1):
            raise BrimfulError("workers must be 0 or more, and max_documents 1 or more")
        if not 0 <= self.validation_share < 1:
            raise BrimfulError(
                f"validation_share is {self.validation_share}: it must be at least 0 and below 1"
            )

    @property
    def engine_config(self) -> EngineConfig:
        """Where tasks run."""
        return EngineConfig(engine=self.engine, workers=self.workers)


def prepare_corpus(config: PrepareConfig) -> dict[str, Any]:
    """Prepare a corpus; `brimful.prepare` says what comes back and what is refused."""
    check_encoding(config.read.encoding)
    Cleaner(config.clean)
    if config.dedup.near:
        NearKeys()
    inputs = find_inputs(config.paths, config.out)
    settings = _settings(config)
    if config.dry_run:
        return _list(inputs)
    out = Path(config.out)
    require_corpus_place(out)
    with FolderLock() as lock:
        lock.take(out)
        inventory = open_inventory(out, inputs)
        with Engine(config.engine_config) as engine:
            summary = Preparation(settings, inventory, engine).run()
        if config.lexicon:
            check_lexicon(out, config.language, config.lexicon)
        write_yaml(out / "config.yaml", config)
    memory = {"main": peak_memory_mb("self")}
    if config.engine == "local":
        memory["workers"] = peak_memory_mb("workers")
    return {**summary, "memory_mb": memory}


def _settings(config: PrepareConfig) -> Settings:
    lexicon = config.lexicon
    lexicon_hash = ""
    if lexicon:
        words, notes = word_list(lexicon, "lexicon")
        lexicon_hash = config_hash(words)
        for note in notes:
            warn(note)
    given = {key: value for key, value in to_dict(config).items() if key not in VOLATILE}
    tokenizer = TokenizerChoice(
        tokenizer=config.tokenizer,
        model=config.model,
        lowercase=config.lowercase,
        han=config.han,
        nfkc=config.clean.nfkc,
        max_documents=config.max_documents,
        extend=config.extend,
    )
    return Settings(
        given={
            **given,
            "lexicon content": lexicon_hash,
            "segmenter": segmenter_name(),
            CLEANING: cleaning_version(),
        },
        read=config.read,
        clean=config.clean,
        dedup=config.dedup,
        tokenizer=tokenizer,
        tokenizer_settings=tokenizer.check(),
        retrain_tokenizer=config.retrain_tokenizer,
        language=config.language,
        lexicon=lexicon,
        lexicon_hash=lexicon_hash,
        segmenter=segmenter_name(),
        shard_tokens=config.shard_tokens,
        validation_share=config.validation_share,
        document_seconds=config.document_seconds,
        max_documents=config.max_documents,
    )


def _list(inputs: Sequence[Input]) -> dict[str, Any]:
    for item in inputs:
        say(f"{item.bytes:>15,}  {item.path}")
    return {
        "dry_run": True,
        "files": len(inputs),
        "bytes": sum(item.bytes for item in inputs),
        "inputs": [item.path for item in inputs],
    }
