"""`prepare`: raw text files -> a folder of tokenized, word-bounded shards.

    read + clean (per part) -> exact duplicates (across parts) -> tokenizer -> tokenize (per part)

The output is a function of the inputs and the settings: not of the number of workers, nor of kills.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro

from brimful.config import config_hash, verb, write_yaml
from brimful.console import say
from brimful.corpus.clean import CleanConfig
from brimful.corpus.dedup import keep_first
from brimful.corpus.engines import available_cores, run_tasks
from brimful.corpus.inputs import Input, find_inputs
from brimful.corpus.plan import Part, discard_shards, open_plan, part_name
from brimful.corpus.read import ReadConfig, check_encoding
from brimful.corpus.shards import shard_names
from brimful.corpus.stages import (
    CleanTask,
    TokenizeTask,
    clean_part,
    cleaned,
    read_keys,
    read_texts,
    tokenize_part,
    tokenized,
)
from brimful.corpus.summary import require_some, summarise
from brimful.corpus.tokenizer import Han, load, save, tokenizer_hash, train
from brimful.corpus.words import Language, WordsConfig, read_lexicon
from brimful.errors import BrimfulError
from brimful.storage import write_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SAMPLE_CHARACTERS = 50_000_000
# Where and how the work is done; the output does not depend on these.
VOLATILE = ("paths", "out", "workers", "retrain_tokenizer", "dry_run")


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """Turn raw text files into a folder of tokenized shards."""

    paths: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Files, folders and globs: .txt .jsonl .csv .tsv .parquet .html, also .gz and .zst."""
    out: str
    """The folder to write. Run again with more paths to add to it."""
    tokenizer: str = "train:8000"
    """train:N trains a WordPiece vocabulary of N; else a tokenizer.json, a vocab.txt, or its folder."""
    lowercase: bool = True
    """Whether a trained tokenizer ignores case and accents."""
    han: Han = "characters"
    """Chinese in a trained tokenizer: each character a token, as BERT has it, or pieces of up to four."""
    retrain_tokenizer: bool = False
    """Train the tokenizer again on all the text, and tokenize everything again."""
    language: Language = "auto"
    """Chinese word segmentation: wherever there are Han characters (auto, zh), or not at all (en)."""
    workers: int = 0
    """Worker processes; 0 means one for each core."""
    max_documents: int | None = None
    """Read only the first N documents, for a quick look."""
    dry_run: bool = False
    """Check everything and list what would be read; write nothing."""
    read: ReadConfig = field(default_factory=ReadConfig)
    clean: CleanConfig = field(default_factory=CleanConfig)
    words: WordsConfig = field(default_factory=WordsConfig)


@verb(PrepareConfig)
def prepare(config: PrepareConfig) -> dict[str, Any]:
    """Turn raw text files into a folder of tokenized shards.

    What a killed or an earlier run finished is kept, so running again goes on, and new files only add shards.

    Returns:
        the summary, as in OUT/summary.json: documents, dropped by reason, tokens, words ...

    Raises:
        BrimfulError: nothing to read, nothing left after cleaning, a setting that does not fit an existing
            folder, a folder that cannot be written.
    """
    started = time.monotonic()
    out = Path(config.out)
    inputs = find_inputs(config.paths, config.out)
    settings, given = _check(config)
    if config.dry_run:
        return _list(inputs)
    if config.retrain_tokenizer and (out / "plan.json").exists():
        discard_shards(out)
    parts = open_plan(out, inputs, settings)
    write_yaml(out / "config.yaml", config)
    workers = config.workers or available_cores()

    texts = _clean(config, parts, workers)
    names = [part_name(number) for number in range(len(texts))]
    require_some(texts, config.paths)
    keep = keep_first([read_keys(out, name) for name in names])
    fixed = _tokenizer(config, given, names, texts, keep)
    tasks = [
        TokenizeTask(
            directory=out,
            name=name,
            tokenizer_hash=tokenizer_hash(fixed),
            language=config.language,
            lexicon=config.words.lexicon,
            lexicon_hash=settings["lexicon content"],
            keep=flags,
        )
        for name, flags in zip(names, keep, strict=True)
    ]
    records = [tokenized(task, text) for task, text in zip(tasks, texts, strict=True)]
    todo = [number for number, record in enumerate(records) if record is None]
    if todo:
        made = run_tasks(tokenize_part, [tasks[n] for n in todo], workers, "tokenize", lambda task: task.name)
        for number, record in zip(todo, made, strict=True):
            records[number] = record
    summary = summarise(texts, [record for record in records if record is not None])
    summary["seconds"] = round(time.monotonic() - started, 2)
    write_json(out / "summary.json", summary)
    return summary


def _check(config: PrepareConfig) -> tuple[dict[str, Any], "Tokenizer | None"]:
    """Refuse what cannot work; return the settings that bind the output, and the given tokenizer."""
    if config.workers < 0 or (config.max_documents is not None and config.max_documents < 1):
        raise BrimfulError("workers must be 0 or more, and max_documents 1 or more")
    if not 1 <= config.clean.min_characters <= config.clean.max_characters:
        raise BrimfulError("clean.min_characters must be from 1 to clean.max_characters")
    check_encoding(config.read.encoding)
    settings = {key: value for key, value in asdict(config).items() if key not in VOLATILE}
    for group in ("read", "clean", "words"):
        settings.update({f"{group}.{key}": value for key, value in settings.pop(group).items()})
    lexicon = config.words.lexicon
    settings["lexicon content"] = config_hash(read_lexicon(lexicon)) if lexicon else ""
    settings["tokenizer content"] = ""
    if config.tokenizer.startswith("train:"):
        if not config.tokenizer.removeprefix("train:").isdecimal():
            raise BrimfulError(f"tokenizer={config.tokenizer}: write train:SIZE, as in train:8000")
        return settings, None
    given = load(config.tokenizer, lowercase=config.lowercase)
    settings["tokenizer content"] = tokenizer_hash(given)
    return settings, given


def _list(inputs: Sequence[Input]) -> dict[str, Any]:
    for item in inputs:
        say(f"{item.bytes:>15,}  {item.path}")
    return {
        "dry_run": True,
        "files": len(inputs),
        "bytes": sum(item.bytes for item in inputs),
        "inputs": [item.path for item in inputs],
    }


def _clean(config: PrepareConfig, parts: Sequence[Part], workers: int) -> list[dict[str, Any]]:
    """The commit records of the clean parts, made where they are not there yet."""
    out = Path(config.out)
    tasks = [
        CleanTask(directory=out, name=part_name(number), inputs=part, read=config.read, clean=config.clean)
        for number, part in enumerate(parts)
    ]
    if config.max_documents is not None:
        return _clean_first(tasks, config.max_documents)
    records = [cleaned(task) for task in tasks]
    todo = [number for number, record in enumerate(records) if record is None]
    if todo:
        made = run_tasks(clean_part, [tasks[n] for n in todo], workers, "clean", _names_of_inputs)
        for number, record in zip(todo, made, strict=True):
            records[number] = record
    return [record for record in records if record is not None]


def _names_of_inputs(task: CleanTask) -> str:
    more = f" and {len(task.inputs) - 1} more" if len(task.inputs) > 1 else ""
    return f"{task.name} ({task.inputs[0].path}{more})"


def _clean_first(tasks: Sequence[CleanTask], documents: int) -> list[dict[str, Any]]:
    """Clean part after part until enough documents are read."""
    records = []
    for task in tasks:
        limited = replace(task, limit=documents)
        record = cleaned(limited) or run_tasks(clean_part, [limited], 1, "clean", _names_of_inputs)[0]
        records.append(record)
        documents -= record["read"]
        if documents == 0:
            break
    return records


def _tokenizer(
    config: PrepareConfig,
    given: "Tokenizer | None",
    names: Sequence[str],
    texts: Sequence[dict[str, Any]],
    keep: Sequence[np.ndarray],
) -> "Tokenizer":
    """The tokenizer its shards were made with; without shards the given one, or a newly trained one."""
    out = Path(config.out)
    if any(shard_names(out)):
        return load(out / "tokenizer.json")
    tokenizer = given
    if tokenizer is None:
        characters = sum(text["characters"] for text in texts)
        say(f"training a tokenizer on {min(characters, SAMPLE_CHARACTERS):,} of {characters:,} characters")
        sample = _sample(out, names, keep, min(2**64 - 1, 2**64 * SAMPLE_CHARACTERS // characters))
        size = int(config.tokenizer.removeprefix("train:"))
        tokenizer = train(sample, size, lowercase=config.lowercase, han=config.han)
        if (reached := tokenizer.get_vocab_size()) < size:
            say(f"the text gave a vocabulary of {reached:,}, not {size:,}: nothing else in it occurs twice")
    save(tokenizer, out)
    return tokenizer


def _sample(out: Path, names: Sequence[str], keep: Sequence[np.ndarray], bound: int) -> Iterator[str]:
    """Texts to train on: those whose key is at most `bound`, so the choice depends on nothing else."""
    for name, flags in zip(names, keep, strict=True):
        for text, _, _ in read_texts(out, name, flags & (read_keys(out, name) <= np.uint64(bound))):
            yield text
