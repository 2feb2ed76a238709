"""The stages of a preparation in order; each skips what is finished already.

clean (a task a text part) -> duplicates (the whole corpus) -> tokenizer -> tokenize (a task a shard)

"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypedDict

from brimful.base.config import config_hash
from brimful.base.console import counted, say, warn
from brimful.base.errors import BrimfulError
from brimful.base.storage import find_commit, sweep
from brimful.base.summary import with_overview
from brimful.corpus.engines.engine import Engine
from brimful.corpus.engines.watchdog import explained
from brimful.corpus.pipeline.cleaning import WATCH, CleanTask, clean_part, cleaned
from brimful.corpus.pipeline.config import PrepareConfig
from brimful.corpus.pipeline.duplicate_decisions import decide, decided, read_decisions
from brimful.corpus.pipeline.inventory import (
    FOLDERS,
    Generation,
    Inventory,
    ShardDocuments,
    Split,
    cut_shards,
)
from brimful.corpus.pipeline.manifest import length_histogram, require_some, show_warnings, summarise
from brimful.corpus.pipeline.prepare_summary import summarise_preparation
from brimful.corpus.pipeline.text import TextPart
from brimful.corpus.pipeline.tokenizer_choice import (
    TokenizerChoice,
    choices_of,
    freeze,
    require_unchanged,
    tokens_a_guess,
)
from brimful.corpus.pipeline.tokenizing import TokenizeTask, in_split, tokenize_shard, tokenized
from brimful.corpus.shards import MANIFEST, write_manifest

Record = dict[str, Any]
CLEANING = "cleaning version"  # its name among the settings in MANIFEST.json
_OURS = re.compile(r"(part|generation|train|validation)-\d{5,}")


class _Manifest(TypedDict):
    settings: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of all stages: the configuration, and what follows from it and from its files.

    Attributes:
        given: everything but the inputs that decides the output, as MANIFEST.json records it.
        lexicon_hash: of the words of the lexicon; empty without one.
    """

    config: PrepareConfig
    given: Record
    tokenizer: TokenizerChoice
    tokenizer_settings: Record
    lexicon_hash: str
    segmenter: str


class Preparation:
    """One run of `prepare`."""

    def __init__(self, settings: Settings, inventory: Inventory, engine: Engine) -> None:
        self.settings, self.inventory, self.engine = settings, inventory, engine
        self.config = settings.config
        self.out = inventory.directory
        self.generations: list[Generation] = []
        self.texts: list[Record] = []
        self.seconds: dict[str, float] = {}

    def run(self) -> Record:
        """Run all stages; returns the summary."""
        started = time.monotonic()
        self._begin()
        self._timed("clean", self._clean)
        self._timed("dedup", self._decide)
        trained = self._timed("tokenizer", self._freeze)
        tasks = self._shard_tasks()
        self._retire([task.name for task in tasks])
        self.inventory.close([entry for text in self.texts for entry in text["inputs"]])
        self._timed("tokenize", self._tokenize, tasks)
        summary = self._finish(tasks)
        self.seconds["total"] = round(time.monotonic() - started, 2)
        return {**summary, "tokenizer": trained, "seconds": self.seconds}

    def _timed(self, stage: str, function: Callable[..., Any], *arguments: Any) -> Any:
        begun = time.monotonic()
        result = function(*arguments)
        self.seconds[stage] = round(time.monotonic() - begun, 2)
        return result

    def _begin(self) -> None:
        """Refuse a changed tokenizer, remove MANIFEST.json if shards will change, remove temporary files."""
        if self.config.retrain_tokenizer:
            self.inventory.tokenizer = None
        require_unchanged(self.inventory, self.settings.tokenizer_settings)
        manifest = find_commit(self.out / MANIFEST, _Manifest)
        if manifest is None or manifest["settings"] != self.settings.given or self.config.retrain_tokenizer:
            (self.out / MANIFEST).unlink(missing_ok=True)
        if manifest and manifest["settings"].get(CLEANING) != self.settings.given[CLEANING]:
            warn(f"{self.out} was cleaned by other rules than this version's: it is cleaned again")
        for folder in (self.out, *(self.out / name for name in FOLDERS)):
            sweep(folder)
        self.inventory.save()

    # Clean

    def _clean(self) -> None:
        """Make the text parts of all generations, and collect their commit records."""
        config = self.config
        generations = self.inventory.generations(config.read)
        tasks = [
            CleanTask(
                directory=self.out,
                part=part,
                read=config.read,
                clean=config.clean,
                dedup=config.dedup,
                seconds=config.document_seconds,
            )
            for generation in generations
            for part in generation.parts
        ]
        if config.max_documents is None:
            self._clean_parts(tasks)
        else:
            tasks = self._clean_first(tasks, config.max_documents)
        self.texts = [_require(cleaned(task), task.name) for task in tasks]
        names = {task.name for task in tasks}
        limited = (
            replace(generation, parts=tuple(part for part in generation.parts if part.name in names))
            for generation in generations
        )
        self.generations = [generation for generation in limited if generation.parts]

    def _clean_parts(self, tasks: Sequence[CleanTask]) -> None:
        todo = [task for task in tasks if cleaned(task, verify=True) is None]
        self.engine.run(clean_part, todo, "clean", _describe, explained=lambda task: explained(task.watchdog))

    def _clean_first(self, tasks: Sequence[CleanTask], documents: int) -> list[CleanTask]:
        """Clean part after part until enough documents are read."""
        limited: list[CleanTask] = []
        for task in tasks:
            limited.append(replace(task, limit=documents))
            self._clean_parts(limited[-1:])
            documents -= _require(cleaned(limited[-1]), task.name)["read"]
            if documents == 0:
                break
        return limited

    # Duplicates and tokenizer: what needs the whole corpus

    def _decisions(self, number: int, *, verify: bool = False) -> Record | None:
        """The commit record of the decisions on a generation; None if they are missing or damaged."""
        texts = self.texts[: sum(len(generation.parts) for generation in self.generations[: number + 1])]
        return decided(self.out, self.generations[number], texts, self.config.dedup, verify=verify)

    def _decide(self) -> None:
        numbers = range(len(self.generations))
        missing = [number for number in numbers if self._decisions(number, verify=True) is None]
        if missing:
            decide(self.out, self.generations, self.texts, self.config.dedup, missing)

    def _freeze(self) -> Record:
        if self.inventory.tokenizer is not None:
            return {}
        require_some(self.texts)
        return freeze(self.inventory, self.settings.tokenizer, self.settings.tokenizer_settings, self.texts)

    # Tokenize

    def _shard_tasks(self) -> list[TokenizeTask]:
        """A task for each shard; shards depend on the texts, the decisions and the settings alone."""
        texts = {text["name"]: text for text in self.texts}
        counts: dict[Split, int] = {"train": 0, "validation": 0}
        tasks = []
        for number, generation in enumerate(self.generations):
            decisions = _require(self._decisions(number), generation.name)
            for split in counts:
                shards = self._cut(generation, split, counts[split])
                counts[split] += len(shards)
                tasks += [self._shard_task(shard, texts, decisions) for shard in shards]
        return tasks

    def _cut(self, generation: Generation, split: Split, first: int) -> list[ShardDocuments]:
        names = [part.name for part in generation.parts]
        expected = []
        for name in names:
            documents = TextPart(self.out, name).documents
            chosen = in_split(documents, split, self.config.validation_share)
            chosen &= read_decisions(self.out, name) == 0
            expected.append(documents["tokens"] * chosen)
        return cut_shards(names, expected, split, first, self._guesses_a_shard)

    @cached_property
    def _guesses_a_shard(self) -> float | None:
        """`shard_tokens` in the unit of DOCUMENT["tokens"], which were estimated without the tokenizer."""
        if self.config.shard_tokens is None:
            return None
        first = [part.name for part in self.generations[0].parts]
        return self.config.shard_tokens / tokens_a_guess(self.out, first)

    @property
    def _tokenizer(self) -> Record:
        assert self.inventory.tokenizer is not None
        return self.inventory.tokenizer

    def _shard_task(self, shard: ShardDocuments, texts: dict[str, Record], decisions: Record) -> TokenizeTask:
        parts = [documents.part for documents in shard.ranges]
        made_of = [
            [name, facts] for name, facts in decisions["files"].items() if name.partition(".")[0] in parts
        ]
        return TokenizeTask(
            directory=self.out,
            documents=shard,
            inputs=tuple(
                tuple((entry["path"], entry["begin"]) for entry in texts[part]["inputs"]) for part in parts
            ),
            validation_share=self.config.validation_share,
            tokenizer_hash=self._tokenizer["hash"],
            language=self.config.language,
            lexicon=self.config.lexicon,
            lexicon_hash=self.settings.lexicon_hash,
            segmenter=self.settings.segmenter,
            depends=config_hash([made_of, [texts[part]["files"] for part in parts]]),
        )

    def _tokenize(self, tasks: Sequence[TokenizeTask]) -> None:
        todo = [task for task in tasks if tokenized(task, verify=True) is None]
        self.engine.run(tokenize_shard, todo, "tokenize", lambda task: task.name)
        if not todo:
            say(f"nothing is new: all {counted(len(tasks), 'shard')} of {self.out} are as they were")
        elif len(todo) < len(tasks):
            say(f"new: {len(todo):,} of {counted(len(tasks), 'shard')}; the others are as they were")

    def _retire(self, shards: Sequence[str]) -> None:
        """Remove files that no part or shard owns any more, commit records first. Files of the user stay."""
        parts = {text["name"] for text in self.texts}
        generations = {generation.name for generation in self.generations}
        planned = {"shards": set(shards), "text": parts, "dedup": parts | generations}
        for folder, names in planned.items():
            for file in sorted((self.out / folder).iterdir(), key=lambda file: file.suffix != ".json"):
                name = file.name.removeprefix(WATCH).partition(".")[0]
                if name not in names and _OURS.fullmatch(name) and not file.is_dir():
                    file.unlink()

    def _finish(self, tasks: Sequence[TokenizeTask]) -> Record:
        """Write MANIFEST.json, which makes the corpus exist."""
        shards = [_require(tokenized(task), task.name) for task in tasks]
        summary = summarise(
            self.texts, [read_decisions(self.out, text["name"]) for text in self.texts], shards
        )
        histogram = length_histogram(shards)
        show_warnings(summary["warnings"], str(self.out / MANIFEST))
        decided = choices_of(self.out, self.settings.tokenizer)
        facts = {**summary, "decided": {**decided, "validation_share": self.config.validation_share}}
        write_manifest(
            self.out,
            [task.name for task in tasks],
            settings=self.settings.given,
            tokenizer=self._tokenizer,
            inputs=[entry for text in self.texts for entry in text["inputs"]],
            length_histogram=histogram,
            summary=summary,
            **with_overview({}, summarise_preparation(facts, histogram)),
        )
        return facts


def _require(record: Record | None, name: str) -> Record:
    if record is None:
        raise BrimfulError(
            f"{name} was finished and has disappeared: another process writes to this folder; run again"
        )
    return record


def _describe(task: CleanTask) -> str:
    paths = list(dict.fromkeys(span.path for span in task.part.spans))
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{task.name} ({paths[0]}{more})"
