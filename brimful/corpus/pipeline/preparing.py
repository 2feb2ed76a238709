"""Raw text files -> a folder of tokenized, word-bounded shards.

    read, clean (per part) -> find duplicates (whole corpus) -> tokenizer -> tokenize (per shard)

The output depends on the inputs and the settings alone: not on the number of workers, the engine, the number
of machines, or kills.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from brimful.base.config import config_hash, to_dict, write_yaml
from brimful.base.console import counted, warn
from brimful.base.folder_lock import FolderLock
from brimful.base.summary import with_overview
from brimful.corpus.cleaning.clean import Cleaner
from brimful.corpus.cleaning.version import cleaning_version
from brimful.corpus.dedup.duplicates import NearKeys
from brimful.corpus.engines.engine import Engine, EngineConfig
from brimful.corpus.pipeline.config import PrepareConfig
from brimful.corpus.pipeline.inventory import open_inventory, require_corpus_place
from brimful.corpus.pipeline.prepare_summary import summarise_inputs, summarise_preparation
from brimful.corpus.pipeline.stages import CLEANING, Preparation, Settings
from brimful.corpus.pipeline.text import check_lexicon
from brimful.corpus.pipeline.tokenizer_choice import TokenizerChoice, peak_memory_mb
from brimful.corpus.reading.inputs import Input, find_inputs, format_of
from brimful.corpus.reading.read import check_encoding
from brimful.corpus.words.segmenter import segmenter_name
from brimful.corpus.words.word_lists import word_list

# Where and how the work is done; the output does not depend on these.
VOLATILE = (
    "paths",
    "out",
    "workers",
    "engine",
    "retrain_tokenizer",
    "dry_run",
)


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
        with Engine(EngineConfig(engine=config.engine, workers=config.workers)) as engine:
            summary = Preparation(settings, inventory, engine).run()
        if config.lexicon:
            check_lexicon(out, config.language, config.lexicon)
        write_yaml(out / "config.yaml", config)
    documents = summary["documents"]
    if config.validation_share and not documents["validation"]:
        cure = "raise --validation-share"
        whole = config.read.split == "file" and all(format_of(each.path) == "text" for each in inputs)
        if whole and len(inputs) * config.validation_share < 1:
            cure = "a text file is one document, unless --read.split line makes each line one"
        warn(
            f"none of {counted(documents['kept'], 'document')} was held out, so pretrain has no validation"
            f" loss: {cure}"
        )
    memory = {"main": peak_memory_mb("self")}
    if config.engine == "local":
        memory["workers"] = peak_memory_mb("children")
    facts = {**summary, "memory_mb": memory}
    return with_overview(facts, summarise_preparation(facts))


def _settings(config: PrepareConfig) -> Settings:
    lexicon_hash = ""
    if config.lexicon:
        words, notes = word_list(config.lexicon, "lexicon")
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
    segmenter = segmenter_name()
    facts = {"lexicon content": lexicon_hash, "segmenter": segmenter, CLEANING: cleaning_version()}
    return Settings(
        config=config,
        given={**given, **facts},
        tokenizer=tokenizer,
        tokenizer_settings=tokenizer.check(),
        lexicon_hash=lexicon_hash,
        segmenter=segmenter,
    )


def _list(inputs: Sequence[Input]) -> dict[str, Any]:
    paths, size = [item.path for item in inputs], sum(item.bytes for item in inputs)
    facts = {"dry_run": True, "files": len(inputs), "bytes": size, "inputs": paths}
    return with_overview(facts, summarise_inputs(paths, size))
