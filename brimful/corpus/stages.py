"""The two per-part stages, as pure tasks: inputs -> clean text, clean text -> shard.

Each commits its output atomically and is skipped when a commit record says it is done, so a killed run
goes on where it stopped and yields the bytes of a run that was not killed.
"""

import functools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from brimful.config import config_hash
from brimful.corpus.clean import CleanConfig, clean
from brimful.corpus.dedup import document_key
from brimful.corpus.inputs import Input, format_of
from brimful.corpus.read import ReadConfig, read_documents
from brimful.corpus.sentences import sentence_spans
from brimful.corpus.shards import TokenBatch, write_shard
from brimful.corpus.tokenizer import load, special_ids, tokenizer_hash
from brimful.corpus.words import Language, Segmenter, read_lexicon, word_starts
from brimful.errors import BrimfulError
from brimful.storage import atomic_file, commit, crc32, read_commit

if TYPE_CHECKING:
    from tokenizers import Tokenizer

ROW_GROUP_CHARACTERS = 1 << 22
# A tokenizer's answer takes some 150 bytes a token.
BATCH_CHARACTERS = 1 << 19


@dataclass(frozen=True, kw_only=True)
class CleanTask:
    """One part to read and clean. `limit` bounds the documents read."""

    directory: Path
    name: str
    inputs: tuple[Input, ...]
    read: ReadConfig
    clean: CleanConfig
    limit: int | None = None

    @property
    def hash(self) -> str:
        """Names the settings that the clean text depends on."""
        return config_hash({"read": asdict(self.read), "clean": asdict(self.clean), "limit": self.limit})


@dataclass(frozen=True, kw_only=True)
class TokenizeTask:
    """One part to tokenize. `keep` holds a bit for each of its documents: is it the first of its kind?"""

    directory: Path
    name: str
    tokenizer_hash: str
    language: Language
    lexicon: str | None
    lexicon_hash: str
    keep: np.ndarray


def text_path(directory: Path, name: str) -> Path:
    """The clean text of a part: a Parquet file of text, input, record, key."""
    return directory / "text" / f"{name}.parquet"


def _committed(record: Path, **facts: Any) -> dict[str, Any] | None:
    """The commit record, if its files are whole and it states these facts."""
    try:
        known = read_commit(record)
    except BrimfulError:
        return None
    return known if all(known.get(name) == value for name, value in facts.items()) else None


def cleaned(task: CleanTask) -> dict[str, Any] | None:
    """The commit record of a part that is clean already, else None."""
    record = _committed(text_path(task.directory, task.name).with_suffix(".json"), config_hash=task.hash)
    if record is None or [Input(**_without_crc(entry)) for entry in record["inputs"]] != list(task.inputs):
        return None
    return record


def _without_crc(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "crc32"}


def clean_part(task: CleanTask) -> dict[str, Any]:
    """Read and clean a part; returns its commit record."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = text_path(task.directory, task.name)
    fields = [("text", pa.string()), ("input", pa.uint32()), ("record", pa.uint64()), ("key", pa.uint64())]
    schema = pa.schema(fields)
    progress = _CleanProgress()
    with atomic_file(path) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        rows: list[tuple[str, int, int, int]] = []
        size = 0
        for row in _clean_rows(task, progress):
            rows.append(row)
            size += len(row[0])
            if size >= ROW_GROUP_CHARACTERS:
                writer.write_table(pa.table(list(zip(*rows, strict=True)), schema=schema))
                rows, size = [], 0
        if rows:
            writer.write_table(pa.table(list(zip(*rows, strict=True)), schema=schema))
    return commit(
        path.with_suffix(".json"),
        [path],
        config_hash=task.hash,
        inputs=[{**asdict(item), "crc32": _crc32_or_none(item.path)} for item in task.inputs],
        read=progress.read,
        documents=progress.kept,
        characters=progress.characters,
        counts=dict(sorted(progress.counts.items())),
        issues={name: dict(sorted(found.items())) for name, found in progress.issues.items() if found},
    )


class _CleanProgress:
    """What a part's cleaning has seen so far."""

    def __init__(self) -> None:
        self.read = self.kept = self.characters = 0
        self.counts: Counter[str] = Counter()
        self.issues: dict[str, Counter[str]] = {}


def _clean_rows(task: CleanTask, progress: _CleanProgress) -> Iterator[tuple[str, int, int, int]]:
    for number, item in enumerate(task.inputs):
        issues = progress.issues.setdefault(item.path, Counter())
        is_html = format_of(item.path) == "html"
        for record, raw in read_documents(item.path, task.read, issues):
            if progress.read == task.limit:
                return
            progress.read += 1
            for text in clean(raw, task.clean, progress.counts, is_html=is_html):
                progress.kept += 1
                progress.characters += len(text)
                yield text, number, record, document_key(text)


def _crc32_or_none(path: str) -> int | None:
    try:
        return crc32(path)
    except OSError:
        return None


def read_keys(directory: Path, name: str) -> np.ndarray:
    """The document keys of a clean part, uint64 (documents,)."""
    import pyarrow.parquet as pq

    return pq.read_table(text_path(directory, name), columns=["key"]).column("key").to_numpy()


def read_texts(directory: Path, name: str, keep: np.ndarray) -> Iterator[tuple[str, int, int]]:
    """(text, input, record) of the documents of a clean part that `keep` says to keep."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    begin = 0
    with pq.ParquetFile(text_path(directory, name)) as file:
        for batch in file.iter_batches(1024, columns=["text", "input", "record"]):
            chosen = batch.filter(pa.array(keep[begin : begin + len(batch)]))
            begin += len(batch)
            yield from zip(*(column.to_pylist() for column in chosen.columns), strict=True)


@functools.lru_cache(maxsize=1)
def _tools(
    directory: Path, expected_hash: str, language: Language, lexicon: str | None, lexicon_hash: str
) -> tuple["Tokenizer", Segmenter]:
    tokenizer = load(directory / "tokenizer.json")
    if tokenizer_hash(tokenizer) != expected_hash:
        raise BrimfulError(f"{directory / 'tokenizer.json'} changed while it was in use; run prepare again")
    tokenizer.encode_special_tokens = True  # a text that spells [MASK] or <s> must not inject that token
    return tokenizer, Segmenter(language, read_lexicon(lexicon) if lexicon else None)


def _shard_hash(task: TokenizeTask, text: dict[str, Any]) -> str:
    return config_hash(
        {
            "text": text["config_hash"],
            "files": text["files"],
            "language": task.language,
            "lexicon": task.lexicon_hash,
        }
    )


def tokenized(task: TokenizeTask, text: dict[str, Any]) -> dict[str, Any] | None:
    """The commit record of a shard that is finished already, else None; `text` is its clean part's record."""
    record = task.directory / "shards" / f"{task.name}.json"
    return _committed(record, config_hash=_shard_hash(task, text), tokenizer_hash=task.tokenizer_hash)


def tokenize_part(task: TokenizeTask) -> dict[str, Any]:
    """Tokenize a clean part into a shard; returns its commit record."""
    text = read_commit(text_path(task.directory, task.name).with_suffix(".json"))
    tokenizer, segmenter = _tools(
        task.directory, task.tokenizer_hash, task.language, task.lexicon, task.lexicon_hash
    )
    unk = special_ids(tokenizer).unk
    counts: Counter[str] = Counter({"unknown tokens": 0, "characters": 0})
    counts["dropped: duplicate"] = int(len(task.keep) - task.keep.sum())

    def batches() -> Iterator[TokenBatch]:
        for rows in _by_characters(read_texts(task.directory, task.name, task.keep)):
            batch = encode(tokenizer, segmenter, [row[0] for row in rows])
            filled = batch.lengths > 0
            counts["dropped: no tokens"] += int((~filled).sum())
            counts["characters"] += sum(len(row[0]) for row in rows)
            counts["unknown tokens"] += int((batch.tokens == unk).sum()) if unk is not None else 0
            sources = np.array([row[1:] for row in rows], np.int64)
            yield TokenBatch(
                batch.tokens, batch.word_starts, batch.sentence_starts, batch.lengths[filled], sources[filled]
            )

    return write_shard(
        task.directory / "shards",
        task.name,
        batches(),
        vocabulary_size=tokenizer.get_vocab_size(),
        tokenizer_hash=task.tokenizer_hash,
        config_hash=_shard_hash(task, text),
        inputs=[entry["path"] for entry in text["inputs"]],
        counts=counts,
    )


def _by_characters(rows: Iterable[tuple[str, int, int]]) -> Iterator[list[tuple[str, int, int]]]:
    batch: list[tuple[str, int, int]] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += len(row[0])
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def encode(tokenizer: "Tokenizer", segmenter: Segmenter, texts: list[str]) -> TokenBatch:
    """Tokenize clean texts, without special tokens, and find their words and sentences.

    The texts are segmented as one, with a line break between them: a call a text would cost more than the
    segmentation itself. `sources` is left empty.
    """
    encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
    lengths = np.fromiter(map(len, encodings), np.int64, len(texts))
    total = int(lengths.sum())
    tokens = np.fromiter(chain.from_iterable(encoding.ids for encoding in encodings), np.uint32, total)
    offsets = chain.from_iterable(encoding.offsets for encoding in encodings)
    begins = np.fromiter(map(itemgetter(0), offsets), np.int64, total)
    bases = np.cumsum([0] + [len(text) + 1 for text in texts[:-1]])
    begins += np.repeat(bases, lengths)
    joined = "\n".join(texts)
    words = word_starts(begins, segmenter.spans(joined))
    # A sentence can only start where a word does: a lexicon word such as `Yahoo! Inc` is not cut.
    sentences = word_starts(begins, sentence_spans(joined)) & words
    firsts = (np.cumsum(lengths) - lengths)[lengths > 0]
    words[firsts] = sentences[firsts] = True
    return TokenBatch(tokens, words, sentences, lengths, np.empty((0, 2), np.int64))
