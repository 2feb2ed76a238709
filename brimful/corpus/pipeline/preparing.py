"""Prepare raw text files: make a folder of tokenized, word-bounded shards.

    clean (one task per part) -> duplicates (the whole corpus) -> tokenizer -> tokenize (one task per shard)

Each stage skips what is finished already. The output depends only on the inputs and the settings, not on the
number of workers or on kills.
"""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TypedDict, TypeVar

import numpy as np

from brimful.base.config import config_hash, to_dict, write_yaml
from brimful.base.console import pluralise, say, warn
from brimful.base.errors import BrimfulError
from brimful.base.folder_lock import FolderLock
from brimful.base.seals import MANIFEST
from brimful.base.storage import find_commit, sweep
from brimful.base.summary import with_overview
from brimful.base.types import Numbers, Values
from brimful.corpus.cleaning.clean import Cleaner
from brimful.corpus.cleaning.version import cleaning_version
from brimful.corpus.dedup.duplicates import NearKeys
from brimful.corpus.engines.engine import Engine
from brimful.corpus.engines.watchdog import hostile_documents
from brimful.corpus.pipeline.cleaning import WATCH, CleanTask, clean_part
from brimful.corpus.pipeline.config import PrepareConfig
from brimful.corpus.pipeline.duplicate_decisions import decide, read_decisions
from brimful.corpus.pipeline.inventory import (
    FOLDERS,
    Inventory,
    ShardDocuments,
    Split,
    cut_shards,
    open_inventory,
    require_corpus_place,
)
from brimful.corpus.pipeline.preparation_summary import (
    count_all,
    length_histogram,
    require_some,
    show_warnings,
    summarise_inputs,
    summarise_preparation,
)
from brimful.corpus.pipeline.text_parts import TextPart
from brimful.corpus.pipeline.tokenizer_choice import (
    describe_tokenizer,
    freeze,
    require_unchanged,
    tokenizer_settings,
    tokens_per_estimate,
)
from brimful.corpus.pipeline.tokenizing import TokenizeTask, in_split, tokenize_shard
from brimful.corpus.reading.charsets import find_charset
from brimful.corpus.reading.input_files import find_inputs, require_forms
from brimful.corpus.shards import write_manifest
from brimful.corpus.words.word_lists import read_lexicon

VOLATILE = ("paths", "out", "workers", "retrain_tokenizer", "dry_run")
"""Options that say where and how the work is done; the output does not depend on them."""
CLEANING = "cleaning version"
"""The name of the version among the settings in MANIFEST.json."""
LEXICON_CHARACTERS = 2_000_000
"""How many characters of the text are searched for a lexicon's words, the same number in each part."""
MIN_ENTRY_SHARE = 1e-3
"""If a smaller share of a lexicon's entries occurs, the text probably spells its words differently."""
# Names of files that `prepare` makes; earlier versions committed decisions by generation.
_OUR_NAMES = re.compile(r"(part|generation|train|validation)-\d{5,}")

T = TypeVar("T", CleanTask, TokenizeTask)


class _Manifest(TypedDict):
    settings: Values


def prepare_corpus(config: PrepareConfig) -> Values:
    """Prepare a corpus; see `brimful.prepare` for the result and the errors."""
    # Mistakes in the options and missing packages are refused before any file is read.
    find_charset(config.read.encoding)
    Cleaner(config.clean)
    if config.dedup.near:
        NearKeys()
    inputs = find_inputs(config.paths, config.out)
    require_forms(inputs, [config.read.field], config.read.encoding)
    preparation = Preparation(config)
    if config.dry_run:
        paths = [item.path for item in inputs]
        size = sum(item.bytes for item in inputs)
        listed = {"dry_run": True, "files": len(inputs), "bytes": size, "inputs": paths}
        return with_overview(listed, summarise_inputs(paths, size))
    out = Path(config.out)
    require_corpus_place(out)
    # Two preparations into one folder would remove each other's files.
    with FolderLock() as lock:
        lock.take(out)
        inventory = open_inventory(out, inputs)
        with Engine(config.workers) as engine:
            facts = preparation.run(inventory, engine)
        write_yaml(out / "config.yaml", config)
    if config.validation_share and not facts["documents"]["validation"]:
        documents = pluralise(facts["documents"]["kept"], "document")
        warn(
            f"none of {documents} was held out, so pretrain has no validation loss: raise --validation-share,"
            " or make more documents of the text (--read.split line)"
        )
    return with_overview(facts, summarise_preparation(facts))


class Preparation:
    """One run of `prepare`.

    Attributes:
        config: the options without the paths, which no task needs.
        settings: everything except the inputs that decides the output, as MANIFEST.json records it.
        names: the names of the text parts of each generation.
        texts: the commit records of the text parts, by name.
        watchdogs: the names of the files in which the parts' watchdogs keep notes.

    Raises:
        BrimfulError: the lexicon or the tokenizer cannot be read.
    """

    def __init__(self, config: PrepareConfig) -> None:
        # The options are sent with every task, and a glob may stand for millions of paths.
        self.config = replace(config, paths=())
        self.out = Path(config.out)
        self.lexicon = read_lexicon(config.lexicon) if config.lexicon else []
        self.lexicon_hash = config_hash(self.lexicon) if self.lexicon else ""
        self.segmenter = f"rjieba {version('rjieba')}"
        self.tokenizer_settings = tokenizer_settings(config)
        self.settings = to_dict(config)
        for name in VOLATILE:
            del self.settings[name]
        self.settings["lexicon content"] = self.lexicon_hash
        self.settings["segmenter"] = self.segmenter
        self.settings[CLEANING] = cleaning_version()
        self.names: list[list[str]] = []
        self.texts: dict[str, Values] = {}
        self.watchdogs: set[str] = set()
        self.seconds: Numbers = {}

    def run(self, inventory: Inventory, engine: Engine) -> Values:
        """Run all stages; return the counts of the whole corpus."""
        self.inventory, self.engine = inventory, engine
        started = time.monotonic()
        self._begin()
        with self._timed("clean"):
            self._clean()
        texts = list(self.texts.values())
        with self._timed("dedup"):
            decisions = decide(self.out, texts, self.config.dedup)
        with self._timed("tokenizer"):
            if inventory.tokenizer is None:
                require_some(texts)
                freeze(inventory, self.config, self.tokenizer_settings, texts)
        tasks = self._make_shard_tasks(decisions)
        # Remove files of former shards before the inputs are fixed, so that a kill leaves no stale shard.
        self._remove_stale_files([task.documents.name for task in tasks])
        spans = list(chain.from_iterable(text["inputs"] for text in texts))
        self.inventory.close(spans)
        with self._timed("tokenize"):
            self._tokenize(tasks)
        facts = self._finish(tasks, spans)
        if self.lexicon:
            self._check_lexicon()
        self.seconds["total"] = round(time.monotonic() - started, 2)
        return {**facts, "seconds": self.seconds}

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        """Note the seconds that a stage takes."""
        begun = time.monotonic()
        yield
        self.seconds[stage] = round(time.monotonic() - begun, 2)

    def _begin(self) -> None:
        """Refuse a changed tokenizer; remove MANIFEST.json if shards will change, and temporary files."""
        if self.config.retrain_tokenizer:
            self.inventory.tokenizer = None
        require_unchanged(self.inventory, self.tokenizer_settings)
        manifest = find_commit(self.out / MANIFEST, _Manifest)
        if manifest is None or manifest["settings"] != self.settings or self.config.retrain_tokenizer:
            # While shards change, the folder must not open as a corpus.
            (self.out / MANIFEST).unlink(missing_ok=True)
        if manifest and manifest["settings"].get(CLEANING) != self.settings[CLEANING]:
            warn(f"{self.out} was cleaned by other rules than this version's: it is cleaned again")
        # Remove files that a killed run left half written.
        for name in ("", *FOLDERS):
            sweep(self.out / name)
        self.inventory.save()

    def _clean(self) -> None:
        """Make the text parts of all generations, and collect their commit records."""
        generations = self.inventory.generations(self.config.read)
        tasks = [CleanTask(config=self.config, part=part) for part in chain.from_iterable(generations)]
        if self.config.max_documents is None:
            self._clean_parts(tasks)
        else:
            tasks = self._clean_first(tasks, self.config.max_documents)
        for task in tasks:
            self.texts[task.part.name] = _require(task.made(), task.part.name)
            self.watchdogs.add(task.watchdog.name)
        for parts in generations:
            self.names.append([part.name for part in parts if part.name in self.texts])

    def _clean_parts(self, tasks: Sequence[CleanTask]) -> None:
        def count_hostile(task: CleanTask) -> int:
            return len(hostile_documents(task.watchdog))

        todo = _select_unfinished(tasks)
        self.engine.run(clean_part, todo, "clean", _describe, count_hostile)

    def _clean_first(self, tasks: Sequence[CleanTask], documents: int) -> list[CleanTask]:
        """Clean part after part until enough documents are read."""
        limited = []
        for task in tasks:
            limited.append(replace(task, limit=documents))
            self._clean_parts(limited[-1:])
            # One part after the other, since each part decides the number of documents still to be read.
            documents -= _require(limited[-1].made(), task.part.name)["read"]
            if documents == 0:
                break
        return limited

    def _make_shard_tasks(self, decisions: Values) -> list[TokenizeTask]:
        """Return a task for each shard; shards depend only on the texts, the decisions and the settings."""
        counts: dict[Split, int] = {"train": 0, "validation": 0}
        tasks = []
        for names in self.names:
            for split in counts:
                shards = self._cut_shards(names, split, counts[split])
                counts[split] += len(shards)
                tasks += [self._make_shard_task(shard, decisions) for shard in shards]
        return tasks

    def _cut_shards(self, names: Sequence[str], split: Split, first: int) -> list[ShardDocuments]:
        expected = []
        for name in names:
            documents = TextPart(self.out, name).documents
            chosen = in_split(documents, split, self.config.validation_share)
            chosen &= read_decisions(self.out, name) == 0
            expected.append(documents["tokens"] * chosen)
        return cut_shards(names, expected, split, first, self._estimated_shard_tokens)

    @cached_property
    def _estimated_shard_tokens(self) -> float | None:
        """`shard_tokens` in the unit of DOCUMENT["tokens"], which is estimated without the tokenizer."""
        if self.config.shard_tokens is None:
            return None
        return self.config.shard_tokens / tokens_per_estimate(self.out, self.names[0])

    def _make_shard_task(self, shard: ShardDocuments, decisions: Values) -> TokenizeTask:
        parts = [documents.part for documents in shard.ranges]
        texts = [self.texts[part] for part in parts]
        inputs = []
        for text in texts:
            inputs.append([(span["path"], span["begin"]) for span in text["inputs"]])
        files = decisions["files"].items()
        decision_files = [item for item in files if item[0].partition(".")[0] in parts]
        return TokenizeTask(
            config=self.config,
            documents=shard,
            inputs=inputs,
            tokenizer_hash=self._tokenizer["hash"],
            lexicon_hash=self.lexicon_hash,
            segmenter=self.segmenter,
            depends=config_hash([decision_files, [text["files"] for text in texts]]),
        )

    @property
    def _tokenizer(self) -> Values:
        assert self.inventory.tokenizer is not None  # the tokenizer is frozen before any shard is made
        return self.inventory.tokenizer

    def _tokenize(self, tasks: Sequence[TokenizeTask]) -> None:
        todo = _select_unfinished(tasks)
        self.engine.run(tokenize_shard, todo, "tokenize", lambda task: task.documents.name)
        if not todo:
            say(f"nothing is new: all {pluralise(len(tasks), 'shard')} of {self.out} are as they were")
        elif len(todo) < len(tasks):
            say(f"new: {len(todo):,} of {pluralise(len(tasks), 'shard')}; the others are as they were")

    def _remove_stale_files(self, shards: Sequence[str]) -> None:
        """Remove files of parts and shards that no longer exist. Files of the user stay."""
        for file in (self.out / "text").glob(f"{WATCH}*"):
            if file.name.removesuffix(".json") not in self.watchdogs:
                file.unlink()
        for folder, names in (("shards", shards), ("text", self.texts), ("dedup", self.texts)):
            files = sorted((self.out / folder).iterdir())
            # Commit records go first, so that no record is left without its files.
            files.sort(key=lambda file: file.suffix != ".json")
            for file in files:
                name = file.name.partition(".")[0]
                if name not in names and _OUR_NAMES.fullmatch(name) and not file.is_dir():
                    file.unlink()

    def _finish(self, tasks: Sequence[TokenizeTask], spans: Sequence[Values]) -> Values:
        """Write MANIFEST.json, without which the folder does not open as a corpus."""
        names = [task.documents.name for task in tasks]
        shards = [_require(task.made(), task.documents.name) for task in tasks]
        decisions = (read_decisions(self.out, name) for name in self.texts)
        summary = count_all(list(self.texts.values()), decisions, shards)
        show_warnings(summary["warnings"], str(self.out / MANIFEST))
        decided = describe_tokenizer(self.out, self.config)
        facts = {**summary, "decided": {**decided, "validation_share": self.config.validation_share}}
        write_manifest(
            self.out,
            names,
            settings=self.settings,
            tokenizer=self._tokenizer,
            inputs=spans,
            length_histogram=length_histogram(shards),
            summary=summary,
            **with_overview({}, summarise_preparation(facts)),
        )
        return facts

    def _check_lexicon(self) -> None:
        """Warn if hardly any entry of the lexicon occurs in the text."""
        from brimful.corpus.words.segmenter import Segmenter, count_entries

        def read_beginnings() -> Iterator[str]:
            for name in self.texts:
                part = TextPart(self.out, name)
                characters = 0
                for _, text, _, _ in part.rows(0, np.ones(len(part.documents), bool)):
                    yield text
                    characters += len(text)
                    if characters >= LEXICON_CHARACTERS // len(self.texts):
                        break

        segmenter = Segmenter(self.config.language, self.lexicon)
        count = count_entries(segmenter, self.lexicon, read_beginnings())
        if count <= MIN_ENTRY_SHARE * len(self.lexicon):
            characters = sum(text["characters"] for text in self.texts.values())
            warn(
                f"{self.config.lexicon}: {count:,} of its {len(self.lexicon):,} words occur in"
                f" {min(characters, LEXICON_CHARACTERS):,} characters of the text (the first is"
                f" {self.lexicon[0]!r:.40}): each line must be one word, spelled as in the text"
            )


def _select_unfinished(tasks: Sequence[T]) -> list[T]:
    """Return the tasks whose output is missing or damaged."""
    return [task for task in tasks if task.made(verify=True) is None]


def _require(record: Values | None, name: str) -> Values:
    if record is None:
        raise BrimfulError(
            f"{name} was finished and has disappeared: another process writes to this folder; run again"
        )
    return record


def _describe(task: CleanTask) -> str:
    first = task.part.spans[0].path
    files = len({span.path for span in task.part.spans})
    if files > 1:
        first += f" and {files - 1} more"
    return f"{task.part.name} ({first})"
