"""Decides for each clean document and line whether it is kept or dropped as a duplicate of earlier ones.

    dedup/NAME.fates         an index into DECISIONS for each document of the text part NAME, uint8
    dedup/NAME.dropped       a bit for each line of the part: 1 if it is dropped
    dedup/generation-N.json  the commit record of a generation's parts

This stage sees the whole corpus, so one process does it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from brimful.base.config import config_hash
from brimful.base.storage import Record, atomic_files, cannot_write, commit
from brimful.corpus.dedup.duplicates import RECORD, DedupConfig, mark_duplicates, mark_recurring
from brimful.corpus.pipeline.inventory import Generation
from brimful.corpus.pipeline.text import TextPart, find_made
from brimful.corpus.shards import map_file, read_bits

DECISIONS = ("kept", "duplicate", "near duplicate")
# Raise this with every change of a decision: decisions of an earlier version are then made again.
RULES = 1


def _record_path(directory: Path, generation: Generation) -> Path:
    return directory / "dedup" / f"{generation.name}.json"


def decided(
    directory: Path,
    generation: Generation,
    texts: Sequence[dict[str, Any]],
    config: DedupConfig,
    *,
    verify: bool = False,
) -> dict[str, Any] | None:
    """The commit record of a generation's decisions; None if they have not been made for these texts or, with
    `verify`, are damaged.

    Args:
        texts: the commit records of all text parts up to the last one of this generation.
    """
    record = _record_path(directory, generation)
    return find_made(record, Record, verify, config_hash=_hash(texts, config))


def _hash(texts: Sequence[dict[str, Any]], config: DedupConfig) -> str:
    return config_hash({"rules": RULES, "dedup": asdict(config), "texts": [text["files"] for text in texts]})


def decide(
    directory: Path,
    generations: Sequence[Generation],
    texts: Sequence[dict[str, Any]],
    config: DedupConfig,
    missing: Sequence[int],
) -> None:
    """Decide for the whole corpus, and commit the decisions on the generations `missing`.

    Raises:
        BrimfulError: the folder cannot be written.
    """
    names = [part.name for generation in generations for part in generation.parts]
    corpus = _Corpus(directory, [TextPart(directory, name) for name in names])
    try:
        decisions = corpus.decide_documents(config)
        dropped = corpus.decide_lines(config, decisions)
    except OSError as error:  # numpy's have no file name, and no errno for a full disk
        raise cannot_write(directory / "dedup", error) from error
    for number in missing:
        hash = _hash(texts[: _parts(generations, number)], config)
        corpus.write(generations[number], decisions, dropped, hash)


def _parts(generations: Sequence[Generation], number: int) -> int:
    """The number of parts up to the end of this generation."""
    return sum(len(generation.parts) for generation in generations[: number + 1])


class _Corpus:
    """All text parts; documents and lines are numbered across them."""

    def __init__(self, directory: Path, parts: list[TextPart]) -> None:
        self._directory = directory
        self._parts = parts
        self._begins = np.cumsum([0, *(len(part.documents) for part in parts)])
        self._scratch = directory / "dedup"
        self._scratch.mkdir(exist_ok=True)

    def decide_documents(self, config: DedupConfig) -> np.ndarray:
        """The decision on each document, uint8 (documents,)."""
        total = int(self._begins[-1])
        decisions = np.zeros(total, np.uint8)
        if config.documents:
            duplicates = np.zeros(total, bool)
            mark_duplicates(self._document_records(), total, self._scratch, duplicates)
            decisions[duplicates] = DECISIONS.index("duplicate")
        if config.near:
            duplicates = np.zeros(total, bool)
            bands = self._parts[0].bands.shape[1] if self._parts else 0
            mark_duplicates(self._band_records(decisions), total * bands, self._scratch, duplicates)
            decisions[duplicates] = DECISIONS.index("near duplicate")
        return decisions

    def decide_lines(self, config: DedupConfig, decisions: np.ndarray) -> np.ndarray:
        """Which lines are dropped, bool (lines,); all False if recurring lines stay."""
        counts = np.concatenate([np.empty(0, np.uint32), *(part.documents["lines"] for part in self._parts)])
        ends = np.cumsum(counts, dtype=np.int64)
        eligible = (decisions == 0) & (counts > 1)  # whole documents are compared above
        dropped = np.zeros(int(ends[-1]) if len(ends) else 0, bool)
        if not config.lines:
            return dropped
        records = self._line_records(np.repeat(eligible, counts))
        mark_recurring(records, len(dropped), self._scratch, ends - counts, config.lines, dropped)
        return dropped

    def _document_records(self) -> Iterator[np.ndarray]:
        for begin, part in zip(self._begins.tolist(), self._parts, strict=False):
            yield _records(part.documents["key"], begin + np.arange(len(part.documents)))

    def _band_records(self, decisions: np.ndarray) -> Iterator[np.ndarray]:
        for begin, part in zip(self._begins.tolist(), self._parts, strict=False):
            kept = np.flatnonzero(decisions[begin : begin + len(part.documents)] == 0)
            bands = part.bands[kept]
            yield _records(bands.reshape(-1), np.repeat(begin + kept, bands.shape[1]))

    def _line_records(self, eligible: np.ndarray) -> Iterator[np.ndarray]:
        begin = 0
        for part in self._parts:
            chosen = np.flatnonzero(eligible[begin : begin + len(part.lines)] & (part.lines != 0))
            yield _records(part.lines[chosen], begin + chosen)
            begin += len(part.lines)

    def write(self, generation: Generation, decisions: np.ndarray, dropped: np.ndarray, hash: str) -> None:
        """Commit the decisions on a generation's parts."""
        own = {part.name for part in generation.parts}
        contents: dict[Path, np.ndarray] = {}
        line = 0
        for begin, part in zip(self._begins.tolist(), self._parts, strict=False):
            end = begin + len(part.documents)
            lines = int(part.documents["lines"].sum())
            if part.name in own:
                contents[self._scratch / f"{part.name}.fates"] = decisions[begin:end]
                bits = np.packbits(dropped[line : line + lines], bitorder="little")
                contents[self._scratch / f"{part.name}.dropped"] = bits
            line += lines
        record = _record_path(self._directory, generation)
        with atomic_files(record, list(contents)) as temporaries:
            for temporary, values in zip(temporaries, contents.values(), strict=True):
                temporary.write_bytes(values.tobytes())
        commit(record, contents, config_hash=hash)


def _records(keys: np.ndarray, places: np.ndarray) -> np.ndarray:
    records = np.empty(len(keys), RECORD)
    records["key"], records["place"] = keys, places
    return records


def read_decisions(directory: Path, name: str) -> np.ndarray:
    """The decision on each document of a text part, an index into DECISIONS, uint8 (documents,)."""
    return map_file(directory / "dedup" / f"{name}.fates", np.uint8)


def read_dropped(directory: Path, name: str, begin: int, end: int) -> np.ndarray:
    """Which lines from `begin` to `end` of a text part are dropped, bool (end - begin,)."""
    return read_bits(map_file(directory / "dedup" / f"{name}.dropped", np.uint8), begin, end)
